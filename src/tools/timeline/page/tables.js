"use strict";

/// How many functions of each compiler stand in the table, and how many boxes of what is selected.
const HOTTEST = 10;
const SHOWN_BOXES = 12;

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

function swatch(color) {
  const made = element("span", "", { class: "swatch", "aria-hidden": "true" });
  made.style.background = cssColor(color);
  return made;
}

function percentText(part, all) {
  if (all === 0) return "";
  const percent = (100 * part) / all;
  return percent.toFixed(percent > 0 && percent < 0.1 ? 2 : 1);
}

/// The samples of each compiler in a process, or in all with -1, and its functions by name, those with most samples first.
function hottest(values, process) {
  const { functions } = values;
  const tiers = Array.from({ length: values.tiers.length + 1 }, () => ({ functions: 0, sampled: [] }));
  for (let of = 0; of < functions.count; of++) {
    if (process >= 0 && functions.process[of] !== process) continue;
    const tier = tiers[functions.tier[of]];
    const samples = functions.samples[of];
    tier.functions++;
    if (samples > 0) tier.sampled.push({ of, name: functions.name[of], samples });
  }
  return tiers
    .map((tier, at) => ({ tier: at, functions: tier.functions, ...byName(tier.sampled) }))
    .filter((tier) => tier.functions > 0)
    .sort((one, other) => other.samples - one.samples || one.tier - other.tier);
}

/// Fills the table of the hottest functions. `onPick` hears of the functions of the row that was clicked.
function fillHottest(values, process, onPick) {
  const table = document.getElementById("hottest");
  for (const body of [...table.tBodies]) body.remove();
  const tiers = hottest(values, process);
  const all = values.processes.reduce((sum, { samples }, at) => (process < 0 || process === at ? sum + samples : sum), 0);
  for (const tier of tiers) {
    const body = table.createTBody();
    const title = `${tierName(values, tier.tier)} `;
    addTotal(body, tierColor(values, tier.tier), [title, element("small", counted(tier.functions, "function"))], tier.samples, all);
    addNames(values, body, tier, all, onPick);
  }
  const unnamed = unnamedSamples(values, process);
  if (unnamed > 0) addTotal(table.createTBody(), UNNAMED_COLOR, ["JIT code without a name"], unnamed, all);
  const inlined = hottestInlined(values, process);
  if (inlined.names === 0) return;
  const body = table.createTBody();
  body.id = "inlined";
  addTotal(body, null, ["Inlined ", element("small", "also counted above")], inlined.samples, all);
  addNames(values, body, inlined, all, onPick);
}

/// Functions by name: the number of names, the rows of those with most samples, and the samples of all.
function byName(rows) {
  const names = new Map();
  let all = 0;
  for (const { of, name, samples } of rows) {
    all += samples;
    const row = names.get(name);
    if (row) {
      row.samples += samples;
      row.functions.push(of);
    } else {
      names.set(name, { name, samples, functions: [of] });
    }
  }
  const sorted = [...names.values()].sort((one, other) => other.samples - one.samples || one.name - other.name);
  return { names: sorted.length, rows: sorted.slice(0, HOTTEST), samples: all };
}

/// The functions that are inlined into others in a process, or in all with -1.
function hottestInlined(values, process) {
  const rows = [];
  for (const [of, inlined] of values.inlined) {
    if (process >= 0 && values.functions.process[of] !== process) continue;
    for (const { name, samples } of inlined) rows.push({ of, name, samples });
  }
  return byName(rows);
}

/// Adds the rows of a group of functions.
function addNames(values, body, group, all, onPick) {
  for (const row of group.rows) {
    const line = body.insertRow();
    const button = element("button", undefined, { type: "button", title: nameText(values.names[row.name]), "aria-pressed": "false" });
    addName(values, button, row.name);
    button.picks = row.functions;
    button.addEventListener("click", () => onPick(row.functions));
    line.insertCell().append(button);
    line.append(element("td", numbers.format(row.samples)), element("td", percentText(row.samples, all)));
  }
  addMore(body, group, 3);
}

/// Adds a row of so many columns that says how many names of a group are left out.
function addMore(body, group, columns) {
  if (group.names === group.rows.length) return;
  body.insertRow().append(element("td", `and ${numbers.format(group.names - group.rows.length)} more with samples`, { colspan: columns, class: "more" }));
}

/// Adds a name, with its path in a second line.
function addName(values, parent, of) {
  const [name, path] = nameLines(values, of);
  parent.append(element("span", name, path === "" ? { class: "whole" } : {}));
  if (path === "") return;
  // The end of a path tells more than its start.
  const below = element("small", undefined, { dir: "rtl", class: "path" });
  below.append(element("bdi", path, { dir: "ltr" }));
  parent.append(below);
}

/// Adds the row of a compiler, or of another group, which has a color or none.
function addTotal(body, color, texts, samples, all) {
  const title = element("th", undefined, { scope: "rowgroup" });
  if (color !== null) title.append(swatch(color));
  title.append(...texts);
  body.insertRow().append(title, element("td", numbers.format(samples)), element("td", percentText(samples, all)));
}

/// The samples of a process, or of all with -1, in JIT code without a name.
function unnamedSamples({ share }, process) {
  let sum = 0;
  for (let row = 0; row < share.bin.length; row++) {
    if (share.series[row] === 1 && (process < 0 || share.process[row] === process)) sum += share.samples[row];
  }
  return sum;
}

/// How many characters of the name of what is selected are shown, to be copied.
const SELECTED_CHARACTERS = 4000;

/// Shows what is selected: its name and places.
function fillSelected(values, functions) {
  const section = document.getElementById("selected");
  section.hidden = functions.length === 0;
  if (section.hidden) return;
  const { boxes } = values;
  const names = new Set(functions.map((of) => values.functions.name[of]));
  const samples = functions.reduce((sum, of) => sum + values.functions.samples[of], 0);
  const [first] = names;
  document.getElementById("selected-name").textContent = names.size === 1 ? nameText(values.names[first], SELECTED_CHARACTERS) : counted(names.size, "name");
  const places = document.getElementById("selected-places");
  places.replaceChildren();
  let count = 0;
  for (const of of functions) {
    let before = -1;
    for (const box of boxesOf(values, of)) {
      const isRest = before >= 0 && isPiece(boxes, before, box);
      before = box;
      count++;
      if (count > SHOWN_BOXES) continue;
      const row = places.insertRow();
      const region = values.regions[boxes.region[box]];
      row.append(
        element("td", boxes.isFromStart[box] ? "before" : momentText(boxes.from[box])),
        element("td", boxes.isUntilEnd[box] ? "end" : momentText(boxes.until[box])),
        element("td", rangeText(values, box), { title: `process ${values.processes[region.process].pid}` }),
        // Those of what is left of one place are the same.
        element("td", isRest ? "" : numbers.format(boxes.samples[box])),
      );
    }
  }
  const more = count > SHOWN_BOXES ? `, of which ${SHOWN_BOXES} are shown` : "";
  const tier = tierName(values, values.functions.tier[functions[0]]);
  document.getElementById("selected-more").textContent =
    `${counted(functions.length, "function")} of tier ${tier} in ${count} box${count === 1 ? "" : "es"}${more}; ${counted(samples, "sample")}`;
  fillSelectedInlined(values, functions);
}

/// Shows what is inlined into what is selected.
function fillSelectedInlined(values, functions) {
  const rows = functions.flatMap((of) => (values.inlined.get(of) ?? []).map(({ name, samples }) => ({ of, name, samples })));
  const inlined = byName(rows);
  const table = document.getElementById("selected-inlined");
  table.hidden = inlined.names === 0;
  const body = table.tBodies[0];
  body.replaceChildren();
  for (const { name, samples } of inlined.rows) {
    const cell = element("td", undefined, { title: nameText(values.names[name]) });
    addName(values, cell, name);
    body.insertRow().append(cell, element("td", numbers.format(samples)));
  }
  addMore(body, inlined, 2);
}

function rangeText(values, box) {
  const { boxes } = values;
  const region = values.regions[boxes.region[box]];
  return `${addressText(region, boxes.offset[box])} + ${numbers.format(boxes.size[box])}`;
}

/// What there is to say of a box, line by line, its name first.
function tipLines(values, box) {
  const { boxes, functions } = values;
  const of = boxes.function[box];
  const region = values.regions[boxes.region[box]];
  const end = addressText(region, boxes.offset[box] + boxes.size[box]);
  const from = boxes.isFromStart[box] ? "from before the recording" : `from ${momentText(boxes.from[box])}`;
  const until = boxes.isUntilEnd[box] ? "to its end" : `until ${momentText(boxes.until[box])}`;
  const places = boxesOf(values, of);
  const lines = [
    nameText(values.names[functions.name[of]]),
    `tier ${tierName(values, functions.tier[of])}, process ${values.processes[functions.process[of]].pid}`,
    `${addressText(region, boxes.offset[box])} to ${end}, ${counted(boxes.size[box], "byte")}`,
    `${from} ${until}, ${momentText(boxes.until[box] - boxes.from[box])}`,
    counted(boxes.samples[box], "sample") + (places.length > 1 ? ` here, ${numbers.format(functions.samples[of])} in all` : ""),
  ];
  if (places.length > 1) lines.push(`box ${places.indexOf(box) + 1} of ${places.length}`);
  return lines;
}
