"use strict";

/// Pixels for the labels of addresses, so that the axes of time of both charts stand over each other.
const LEFT = 132;
const RIGHT = 16;
const LABELS = "11px system-ui, sans-serif";
const ADDRESSES = "11px ui-monospace, monospace";

/// How many steps the chart of shares has, and how many samples are worth one: less is noise.
const MIN_STEPS = 24;
const MAX_STEPS = 240;
const SAMPLES_OF_STEP = 8;

/// Both charts, and what part of time and addresses they show.
class Charts {
  /// `onHover` hears of the box under the pointer, or -1, and where that is; `onPick` of the box that was clicked.
  constructor(values, shown, { onHover, onPick, onView }) {
    Object.assign(this, { values, shown, onHover, onPick, onView });
    this.painter = new Painter(values);
    this.process = -1;
    this.layout = new Layout(values, this.process, shown);
    this.series = shareSeries(values, this.process);
    this.view = this.whole();
    /// How long it took to draw each of the last frames, in milliseconds.
    this.frames = [];
    this.isAsked = false;
    this.cacheElement = document.getElementById("cache-chart");
    this.shareElement = document.getElementById("share-chart");
    this.painter.setTheme();
    this.makeCache();
    this.makeShare();
    new ResizeObserver(() => this.resize()).observe(this.cacheElement);
    new ResizeObserver(() => this.resize()).observe(this.shareElement);
  }

  /// All there is.
  whole() {
    return { x0: 0, x1: this.values.span, y0: 0, y1: this.layout.height };
  }

  makeCache() {
    const chart = {
      ...sizeOf(this.cacheElement),
      padding: [8, RIGHT, 0, 0],
      legend: { show: false },
      scales: { x: fixedScale(0, this.values.span), y: fixedScale(0, this.layout.height) },
      series: [{}, { scale: "y", paths: () => null, points: { show: false } }],
      axes: [
        timeAxis(),
        {
          ...axisLook(),
          scale: "y",
          size: LEFT,
          font: ADDRESSES,
          grid: { show: false },
          splits: (chart, axis, low, high) => this.layout.ticks(low, high, (18 * (high - low)) / (chart.over.clientHeight || 1)),
          values: (chart, heights) => heights.map((height) => this.layout.addressAt(height + 1e-9)),
        },
      ],
      cursor: {
        ...cursorLook(),
        // Near its edges uPlot takes each click for the end of a drag, and keeps it; `click` below knows better.
        drag: { x: true, y: true, dist: 5, setScale: false, click: () => {} },
        bind: {
          mousedown: (chart, element, handler) => (event) => {
            this.wasDragged = false;
            if (event.shiftKey) this.startPan(event);
            else handler(event);
          },
          dblclick: () => () => this.show(this.whole()),
        },
      },
      hooks: {
        draw: [(chart) => this.drawCache(chart)],
        setCursor: [(chart) => this.askHover(chart)],
        setSelect: [(chart) => this.zoomTo(chart, true)],
      },
    };
    this.cache = new uPlot(chart, [[0, this.values.span], [null, null]], this.cacheElement);
    const over = this.cache.over;
    over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    over.addEventListener("click", (event) => this.click(event));
    over.addEventListener("mouseleave", () => this.hover(-1));
  }

  makeShare() {
    const { values } = this;
    const look = this.series.toReversed().map(({ color, label }) => ({
      label,
      scale: "y",
      fill: () => cssColor(color),
      width: 0,
      paths: uPlot.paths.stepped({ align: 1 }),
      points: { show: false },
    }));
    const chart = {
      ...sizeOf(this.shareElement),
      padding: [8, RIGHT, 0, 0],
      legend: { show: false },
      scales: { x: fixedScale(0, values.span), y: fixedScale(0, 100) },
      series: [{}, ...look],
      axes: [
        timeAxis(),
        { ...axisLook(), scale: "y", size: LEFT, splits: () => [0, 25, 50, 75, 100], values: (chart, splits) => splits.map((value) => `${value} %`) },
      ],
      cursor: {
        ...cursorLook(),
        y: false,
        drag: { x: true, y: false, dist: 5, setScale: false },
        bind: { dblclick: () => () => this.show(this.whole()) },
      },
      hooks: {
        setSelect: [(chart) => this.zoomTo(chart, false)],
        setCursor: [(chart) => this.tellView(chart)],
      },
    };
    this.share = new uPlot(chart, this.shareData(), this.shareElement);
    this.share.over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  drawCache(chart) {
    const started = performance.now();
    this.painter.paint(chart, this.layout);
    this.frames.push(performance.now() - started);
    if (this.frames.length > 1000) this.frames.splice(0, 500);
  }

  /// What is shown of the samples, in so many steps that each can be seen.
  shareData() {
    const { x0, x1 } = this.view;
    return stackedShare(this.values, this.series, x0, x1);
  }

  /// Shows a part of time and addresses with the next frame.
  show(view) {
    const { span } = this.values, { height, leastScale } = this.layout;
    const [x0, x1] = within(view.x0, view.x1, span, Math.max(span / 1e7, 2e-9));
    const [y0, y1] = within(view.y0, view.y1, height, Math.min(height, 32 * leastScale));
    this.view = { x0, x1, y0, y1 };
    this.ask();
  }

  /// Asks for a frame.
  ask() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw();
    });
  }

  draw() {
    const { x0, x1, y0, y1 } = this.view;
    this.cache.batch(() => {
      this.cache.setScale("x", { min: x0, max: x1 });
      this.cache.setScale("y", { min: y0, max: y1 });
      this.cache.redraw(false, true);
    });
    this.share.batch(() => {
      this.share.setData(this.shareData(), false);
      this.share.setScale("x", { min: x0, max: x1 });
    });
    this.onView(this.view);
  }

  /// Shows another process, or all with -1.
  setProcess(process) {
    this.process = process;
    this.series = shareSeries(this.values, process);
    this.setShown();
    this.show(this.whole());
  }

  /// Lays out what is shown now. The time that is shown stays, and all addresses are.
  setShown() {
    this.layout = new Layout(this.values, this.process, this.shown);
    this.hover(-1);
    const { x0, x1 } = this.view;
    this.show({ ...this.whole(), x0, x1 });
  }

  /// Takes the colours of the page's theme anew.
  setTheme() {
    this.painter.setTheme();
    this.ask();
    this.share.redraw(false, true);
  }

  resize() {
    this.cache.setSize(sizeOf(this.cacheElement));
    this.share.setSize(sizeOf(this.shareElement));
  }

  /// Zooms by a factor around a place, which stays where it is: parts of the width and height from the lower left.
  zoom(factor, { byTime = true, byAddress = true, at = [0.5, 0.5] } = {}) {
    const { x0, x1, y0, y1 } = this.view;
    const scaled = (low, high, part) => {
      const middle = low + (high - low) * part;
      return [middle - (middle - low) * factor, middle + (high - middle) * factor];
    };
    const [left, right] = byTime ? scaled(x0, x1, at[0]) : [x0, x1];
    const [lower, upper] = byAddress ? scaled(y0, y1, at[1]) : [y0, y1];
    this.show({ x0: left, x1: right, y0: lower, y1: upper });
  }

  /// Moves by parts of what is shown.
  pan(byTime, byAddress) {
    const { x0, x1, y0, y1 } = this.view;
    const right = (x1 - x0) * byTime, up = (y1 - y0) * byAddress;
    this.show(moved({ x0, x1, y0, y1 }, right, up, this.values.span, this.layout.height));
  }

  /// Zooms to the box with most samples of some functions, and some of what is around it.
  reveal(functions) {
    const { boxes } = this.values;
    let best = -1;
    for (const of of functions) {
      if (!this.shown.isShown(of)) continue;
      for (const box of boxesOf(this.values, of)) {
        if (best < 0 || boxes.samples[box] > boxes.samples[best]) best = box;
      }
    }
    if (best < 0) return;
    const { low, high } = this.layout;
    const around = (start, end, whole, times, parts) => {
      const room = Math.max((end - start) * times, whole / parts);
      const middle = (start + end) / 2;
      return room >= whole ? [0, whole] : slid(middle - room / 2, middle + room / 2, whole);
    };
    const [x0, x1] = around(boxes.from[best], boxes.until[best], this.values.span, 4, 40);
    const [y0, y1] = around(low[best], high[best], this.layout.height, 16, 2000);
    this.show({ x0, x1, y0, y1 });
  }

  startPan(event) {
    event.preventDefault();
    const { clientX, clientY } = event;
    const start = { ...this.view };
    const { clientWidth, clientHeight } = this.cache.over;
    const move = (event) => {
      const right = ((clientX - event.clientX) / clientWidth) * (start.x1 - start.x0);
      const up = ((event.clientY - clientY) / clientHeight) * (start.y1 - start.y0);
      this.show(moved(start, right, up, this.values.span, this.layout.height));
    };
    const end = () => {
      removeEventListener("mousemove", move);
      this.cacheElement.classList.remove("panning");
    };
    this.cacheElement.classList.add("panning");
    addEventListener("mousemove", move);
    addEventListener("mouseup", end, { once: true });
  }

  wheel(event) {
    // With these, browsers make the page itself larger.
    if (event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const isCache = event.currentTarget === this.cache.over;
    const { left, top, width, height } = event.currentTarget.getBoundingClientRect();
    // With Shift, some browsers turn the wheel sideways.
    const turned = event.deltaY || event.deltaX;
    const lines = event.deltaMode === 1 ? turned * 33 : turned;
    const factor = 1.0015 ** Math.min(Math.max(lines, -400), 400);
    this.zoom(factor, {
      byTime: !event.altKey,
      byAddress: isCache && !event.shiftKey,
      at: [(event.clientX - left) / width, 1 - (event.clientY - top) / height],
    });
  }

  /// Zooms to what was marked with the pointer.
  zoomTo(chart, byAddress) {
    const { left, top, width, height } = chart.select;
    if (width < 3 || (byAddress && height < 3)) return;
    const view = { ...this.view, x0: chart.posToVal(left, "x"), x1: chart.posToVal(left + width, "x") };
    if (byAddress) Object.assign(view, { y0: chart.posToVal(top + height, "y"), y1: chart.posToVal(top, "y") });
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.wasDragged = true;
    this.show(view);
  }

  click(event) {
    // The end of a drag or of a pan (with Shift) does not count as a click.
    const wasDragged = this.wasDragged;
    this.wasDragged = false;
    if (wasDragged || event.shiftKey) return;
    this.onPick(this.boxAt(event.offsetX, event.offsetY));
  }

  askHover(chart) {
    const { left, top } = chart.cursor;
    this.tellView(chart);
    if (this.isHoverAsked) return;
    this.isHoverAsked = true;
    requestAnimationFrame(() => {
      this.isHoverAsked = false;
      this.hover(left >= 0 && top >= 0 ? this.boxAt(chart.cursor.left, chart.cursor.top) : -1);
    });
  }

  /// Shows what is shown, or where the pointer is.
  tellView(chart) {
    const isInside = chart.cursor.left >= 0;
    const time = isInside ? chart.posToVal(chart.cursor.left, "x") : null;
    const height = isInside && chart === this.cache ? chart.posToVal(chart.cursor.top, "y") : null;
    if (chart.cursor.event) this.onView(this.view, time, height);
  }

  hover(box) {
    const of = box < 0 ? -1 : this.values.boxes.function[box];
    if (of !== this.painter.hovered) {
      this.painter.hovered = of;
      this.ask();
    }
    this.onHover(box);
  }

  /// Returns the box at a position of the chart, or the nearest one within some pixels; -1 without one.
  boxAt(left, top) {
    const { drawn, order } = this.layout;
    const { from, until, low, high } = drawn;
    const { clientWidth, clientHeight } = this.cache.over;
    const { x0, x1, y0, y1 } = this.view;
    const byX = clientWidth / (x1 - x0), byY = clientHeight / (y1 - y0);
    const time = x0 + left / byX, height = y1 - top / byY;
    let nearest = -1, least = 4;
    for (let at = order.length - 1; at >= 0; at--) {
      const away = Math.max((from[at] - time) * byX, (time - until[at]) * byX, (low[at] - height) * byY, (height - high[at]) * byY);
      if (away < 0) return order[at];
      if (away < least) [nearest, least] = [order[at], away];
    }
    return nearest;
  }
}

/// A part of what there is from 0 to `end`, no smaller than `least`.
function within(low, high, end, least) {
  const length = Math.max(high - low, least);
  if (length > end * (1 - 1e-9)) return [0, end];
  const middle = (low + high) / 2;
  return slid(middle - length / 2, middle + length / 2, end);
}

/// Moves a range so that it is inside 0 to `end`.
function slid(low, high, end) {
  const by = Math.max(-low, 0) - Math.max(high - end, 0);
  return [low + by, high + by];
}

/// A view moved as far as there is something.
function moved({ x0, x1, y0, y1 }, right, up, span, height) {
  right = Math.min(Math.max(right, -x0), span - x1);
  up = Math.min(Math.max(up, -y0), height - y1);
  return { x0: x0 + right, x1: x1 + right, y0: y0 + up, y1: y1 + up };
}

function sizeOf(element) {
  return { width: Math.max(element.clientWidth, 200), height: Math.max(element.clientHeight, 80) };
}

function fixedScale(min, max) {
  return { time: false, auto: false, min, max, range: (chart, low, high) => [low ?? min, high ?? max] };
}

function themeColor(name) {
  return () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axisLook() {
  const line = themeColor("--line");
  return { stroke: themeColor("--faint"), font: LABELS, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 5 } };
}

function timeAxis() {
  return { ...axisLook(), scale: "x", size: 34, space: 90, values: (chart, splits, axis, space, step) => splits.map((time) => timeText(time, step, chart.scales.x.max)) };
}

function cursorLook() {
  return {
    points: { show: false },
    sync: { key: "time", scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
  };
}

/// The series of the chart of shares that a process has, or all with -1: each with its samples in all parts of time.
function shareSeries(values, process) {
  const { share, tiers } = values;
  const all = new Float64Array(share.bins);
  const parts = Array.from({ length: tiers.length + 2 }, () => new Float64Array(share.bins));
  for (let row = 0; row < share.bin.length; row++) {
    if (process >= 0 && share.process[row] !== process) continue;
    const of = share.series[row] === 0 ? all : parts[share.series[row] - 1];
    of[share.bin[row]] += share.samples[row];
  }
  const [unnamed, unknown, ...known] = parts;
  const series = known.map((samples, tier) => ({ label: tiers[tier], color: tierColor(values, tier), samples }));
  series.push({ label: "not known", color: tierColor(values, tiers.length), samples: unknown });
  series.push({ label: "without a name", color: UNNAMED_COLOR, samples: unnamed });
  series.all = all;
  return series;
}

/// Times, and for each series the part that it and those before it have of all samples, in percent; the highest first,
/// so that the others are drawn over it.
function stackedShare({ span, share }, series, x0, x1) {
  const width = span / share.bins;
  const first = Math.max(0, Math.floor(x0 / width)), end = Math.min(share.bins, Math.ceil(x1 / width) + 1);
  let shown = 0;
  for (let bin = first; bin < end; bin++) shown += series.all[bin];
  const steps = Math.min(Math.max(shown / SAMPLES_OF_STEP, MIN_STEPS), MAX_STEPS);
  // Steps have few lengths and places, so that nothing flickers when what is shown moves.
  const length = 2 ** Math.max(0, Math.ceil(Math.log2((end - first) / steps)));
  const times = [], parts = series.map(() => []);
  for (let start = first - (first % length); start < end; start += length) {
    const stop = Math.min(start + length, share.bins);
    let all = 0;
    for (let bin = start; bin < stop; bin++) all += series.all[bin];
    times.push(start * width);
    let sum = 0;
    series.forEach(({ samples }, at) => {
      for (let bin = start; bin < stop; bin++) sum += samples[bin];
      parts[at].push(all === 0 ? 0 : (100 * sum) / all);
    });
  }
  times.push(Math.min(end, share.bins) * width);
  for (const part of parts) part.push(part[part.length - 1] ?? 0);
  return [times, ...parts.reverse()];
}
