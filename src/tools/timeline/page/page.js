"use strict";

/// Puts the page together: what is typed and clicked on one side, charts and tables on the other.
class Page {
  constructor(values) {
    this.values = values;
    this.get = (id) => document.getElementById(id);
    this.process = -1;
    this.selected = [];
    this.matches = [];
    this.match = -1;
    this.showNotes();
    this.get("input").title = values.input;
    if (values.processes.length === 0) {
      this.get("tools").hidden = true;
      return this.say("This profile has no JIT code that anything is known of: no function of a jitdump, a log or a perf map, and no sample in memory of JIT code.");
    }
    if (values.boxes.count === 0) {
      this.say("No function of this profile is known, so only the share of samples in JIT code is shown.");
      this.get("cache").hidden = true;
    }
    this.get("main").hidden = false;
    this.shown = new Shown(values);
    this.charts = new Charts(values, this.shown, {
      onHover: (box) => this.tip(box),
      onPick: (box) => this.select(box < 0 ? [] : [values.boxes.function[box]]),
      onView: (view, time, height) => this.tellView(view, time, height),
    });
    this.fillProcesses();
    this.fillTables();
    this.fillShown();
    this.listen();
    this.tellView(this.charts.view);
  }

  say(text) {
    const message = this.get("message");
    message.textContent = text;
    message.hidden = false;
  }

  showNotes() {
    this.get("notes").hidden = this.values.notes.length === 0;
    this.get("notes-list").append(...this.values.notes.map((note) => element("li", note)));
  }

  fillProcesses() {
    const { processes } = this.values;
    const { count } = this.values.functions;
    const option = (value, text) => element("option", text, { value });
    const chooser = this.get("process");
    if (processes.length > 1) chooser.append(option(-1, `all ${processes.length}`));
    processes.forEach(({ pid, jit, samples }, at) => chooser.append(option(at, `${pid}: ${numbers.format(jit)} of ${counted(samples, "sample")} in JIT code`)));
    chooser.disabled = processes.length === 1;
    this.get("hottest-title").title = counted(count, "function");
  }

  fillTables() {
    fillHottest(this.values, this.process, (functions) => {
      this.select(this.selected === functions ? [] : functions);
      if (this.selected.length > 0) this.reveal(functions);
    });
  }

  fillShown() {
    this.get("shown").hidden = this.values.boxes.count === 0;
    fillShown(this.shown, () => {
      this.charts.setShown();
      this.fillShown();
    });
  }

  /// Zooms to functions, also to those that are folded away.
  reveal(functions) {
    if (this.shown.unfold(functions)) {
      this.charts.setShown();
      this.fillShown();
    }
    this.charts.reveal(functions);
  }

  listen() {
    const { charts } = this;
    const search = this.get("search");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.nextMatch(event.shiftKey ? -1 : 1);
    });
    this.get("process").addEventListener("change", (event) => this.setProcess(Number(event.target.value)));
    this.get("reset").addEventListener("click", () => charts.show(charts.whole()));
    this.get("theme").addEventListener("click", () => this.turnTheme());
    this.get("help").addEventListener("click", () => this.get("keys").showModal());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.setTheme());
    document.addEventListener("keydown", (event) => this.key(event));
    charts.cacheElement.addEventListener("keydown", (event) => this.chartKey(event, true));
    charts.shareElement.addEventListener("keydown", (event) => this.chartKey(event, false));
    document.addEventListener("mousemove", (event) => this.placeTip(event));
  }

  setProcess(process) {
    this.process = process;
    this.select([]);
    this.shown.start(process);
    this.charts.setProcess(process);
    this.fillTables();
    this.fillShown();
    this.search(this.get("search").value);
  }

  turnTheme() {
    const root = document.documentElement;
    const themes = ["auto", "dark", "light"];
    const next = themes[(themes.indexOf(root.dataset.theme ?? "auto") + 1) % themes.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    this.get("theme").textContent = `Theme: ${next}`;
    this.charts.setTheme();
  }

  /// Marks functions with a text in their names, or in those of functions that are inlined into them.
  search(text) {
    const { names, functions, inlined } = this.values;
    const wanted = text.toLowerCase();
    const emphasis = this.charts.painter.emphasis.fill(PLAIN);
    this.charts.painter.isSearching = wanted !== "";
    this.matches = [];
    this.match = -1;
    if (wanted !== "") {
      this.lowerNames ??= names.map((name) => name.toLowerCase());
      const fits = column(Uint8Array, this.lowerNames, (name) => Number(name.includes(wanted)));
      const isFound = (of) => fits[functions.name[of]] === 1 || (inlined.get(of) ?? []).some(({ name }) => fits[name] === 1);
      for (let of = 0; of < functions.count; of++) {
        const isMatch = isFound(of) && (this.process < 0 || functions.process[of] === this.process);
        emphasis[of] = isMatch ? MARKED : DIMMED;
        if (isMatch) this.matches.push(of);
      }
      this.matches.sort((one, other) => functions.samples[other] - functions.samples[one] || one - other);
    }
    this.get("matches").textContent = wanted === "" ? "" : counted(this.matches.length, "function");
    this.charts.ask();
  }

  nextMatch(step) {
    const count = this.matches.length;
    if (count === 0) return;
    this.match = this.match < 0 && step < 0 ? count - 1 : (this.match + step + count) % count;
    const of = this.matches[this.match];
    this.get("matches").textContent = `${numbers.format(this.match + 1)} of ${counted(count, "function")}`;
    this.select([of]);
    this.reveal([of]);
  }

  /// Selects functions, and shows all their places.
  select(functions) {
    this.selected = functions;
    this.charts.painter.marked = functions;
    fillSelected(this.values, functions);
    fillSource(this.values, functions);
    const name = functions.length > 0 ? nameText(this.values.names[this.values.functions.name[functions[0]]]) : null;
    for (const button of this.get("hottest").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.picks === functions));
    }
    if (name !== null) this.get("spoken").textContent = `Selected ${name}. ${this.get("selected-more").textContent}`;
    this.charts.ask();
  }

  tip(box) {
    const tip = this.get("tip");
    tip.hidden = box < 0;
    if (box >= 0 && box !== this.tipBox) tip.replaceChildren(...tipLines(this.values, box).map((line) => element("p", line)));
    this.tipBox = box;
    this.placeTip(this.pointer);
  }

  placeTip(event) {
    this.pointer = event;
    const tip = this.get("tip");
    if (!event || tip.hidden) return;
    const { clientX, clientY } = event;
    const { offsetWidth, offsetHeight } = tip;
    tip.style.left = `${clientX + 18 + offsetWidth > innerWidth ? Math.max(4, clientX - 14 - offsetWidth) : clientX + 18}px`;
    tip.style.top = `${Math.max(4, Math.min(clientY + 14, innerHeight - offsetHeight - 4))}px`;
  }

  /// Says what is shown, and where the pointer is.
  tellView({ x0, x1, y0, y1 }, time = null, height = null) {
    const { layout } = this.charts ?? {};
    if (!layout) return;
    const hasAddresses = layout.lanes.length > 0;
    const moment = (seconds) => timeText(seconds, (x1 - x0) / 1e3, x1);
    let text = `Shown: ${moment(x0)} to ${moment(x1)}`;
    if (hasAddresses) text += `, ${layout.addressAt(y0)} to ${layout.addressAt(y1 - 1e-9)}`;
    if (time !== null) text += `; pointer: ${moment(time)}`;
    if (height !== null && hasAddresses) text += `, ${layout.addressAt(height)}`;
    this.get("view").textContent = text;
  }

  key(event) {
    const isTyping = event.target.matches("input:not([type=checkbox]), select, textarea");
    if (event.ctrlKey || event.metaKey || this.get("keys").open) return;
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      this.get("search").focus();
      this.get("search").select();
    } else if (event.key === "?" && !isTyping) {
      event.preventDefault();
      this.get("keys").showModal();
    } else if (event.key === "Escape") {
      this.escape();
    }
  }

  /// Takes back what was done last: a search, a selection, or what is zoomed to.
  escape() {
    const search = this.get("search");
    if (search.value !== "") {
      search.value = "";
      this.search("");
    } else if (this.selected.length > 0 && isSame(this.charts.view, this.charts.whole())) {
      this.select([]);
    } else {
      this.charts.show(this.charts.whole());
    }
  }

  /// A key for one of the charts; that of shares has no addresses.
  chartKey(event, hasAddresses) {
    const { charts } = this;
    // The browser has its own use for these.
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const whole = charts.whole();
    const byTime = { byTime: true, byAddress: false }, byAddress = { byTime: false, byAddress: true };
    const both = { byTime: true, byAddress: hasAddresses };
    const keys = {
      "+": () => charts.zoom(1 / 1.5, both),
      "=": () => charts.zoom(1 / 1.5, both),
      "-": () => charts.zoom(1.5, both),
      "_": () => charts.zoom(1.5, both),
      w: () => charts.zoom(1 / 1.5, byTime),
      s: () => charts.zoom(1.5, byTime),
      ArrowLeft: () => charts.pan(-0.15, 0),
      ArrowRight: () => charts.pan(0.15, 0),
      Home: () => charts.show(hasAddresses ? whole : { ...charts.view, x0: whole.x0, x1: whole.x1 }),
    };
    const ofAddresses = {
      W: () => charts.zoom(1 / 1.5, byAddress),
      S: () => charts.zoom(1.5, byAddress),
      ArrowUp: () => charts.pan(0, 0.15),
      ArrowDown: () => charts.pan(0, -0.15),
    };
    const act = keys[event.key] ?? (hasAddresses ? ofAddresses[event.key] : undefined);
    if (!act) return;
    event.preventDefault();
    act();
  }
}

function isSame(one, other) {
  return Object.keys(one).every((key) => one[key] === other[key]);
}

{
  const started = performance.now();
  const page = new Page(readValues(document.getElementById("values").textContent));
  const made = performance.now() - started;
  /// What the page shows, for tests and for the curious.
  window.jitinject = {
    page,
    /// How long the page took to read its values and put itself together, in milliseconds.
    made,
    state: () => ({
      view: page.charts?.view,
      whole: page.charts?.whole(),
      process: page.process,
      matches: page.matches.length,
      selected: page.selected.map((of) => page.values.names[page.values.functions.name[of]]),
      hovered: page.charts && page.charts.painter.hovered >= 0 ? page.values.names[page.values.functions.name[page.charts.painter.hovered]] : null,
      boxes: page.charts?.layout.order.length ?? 0,
    }),
  };
}
