"use strict";

/// A column as a typed array, each value made by `make` if there is one.
function column(Type, values, make = (value) => value) {
  const made = new Type(values.length);
  for (let at = 0; at < values.length; at++) made[at] = make(values[at]);
  return made;
}

/// The values of the page, with their columns as typed arrays. Times are seconds since the recording began.
function readValues(text) {
  const values = JSON.parse(text);
  const seconds = (times, otherwise) => column(Float64Array, times, (time) => (time ?? otherwise) / 1e9);
  const { functions, boxes } = values;
  const read = {
    ...values,
    span: values.span / 1e9,
    regions: values.regions.map((region) => ({ ...region, base: BigInt("0x" + region.base) })),
    functions: {
      count: functions.name.length,
      name: column(Uint32Array, functions.name),
      // The unknown compiler follows the known ones.
      tier: column(Uint8Array, functions.tier, (tier) => tier ?? values.tiers.length),
      process: column(Uint32Array, functions.process),
      samples: column(Float64Array, functions.samples),
    },
    boxes: {
      count: boxes.function.length,
      function: column(Uint32Array, boxes.function),
      region: column(Uint32Array, boxes.region),
      offset: column(Float64Array, boxes.offset),
      size: column(Float64Array, boxes.size),
      from: seconds(boxes.from, 0),
      until: seconds(boxes.until, values.span),
      samples: column(Uint32Array, boxes.samples),
      isFromStart: column(Uint8Array, boxes.from, (time) => Number(time === null)),
      isUntilEnd: column(Uint8Array, boxes.until, (time) => Number(time === null)),
    },
  };
  read.functions.isBuiltIn = flags(functions.name.length, values.built_ins);
  read.locations = locationsOf(values);
  read.lines = linesOf(values);
  read.inlined = inlinedOf(values);
  read.levels = levelsOf(read.boxes);
  read.places = placesOf(read);
  return read;
}

/// A flag for each of `count` rows, set for those that are listed.
function flags(count, rows) {
  const flags = new Uint8Array(count);
  for (const row of rows) flags[row] = 1;
  return flags;
}

/// The parts of the names that contain a place in a source file, by the number of the name.
function locationsOf({ locations }) {
  const { name, function_start, function_end, path_start, path_end, line } = locations;
  return new Map(name.map((of, at) => [of, { own: [function_start[at], function_end[at]], path: [path_start[at], path_end[at]], line: line[at] }]));
}

/// The rows of each function, by the number of the function. `row` makes one.
function byFunction(functions, row) {
  const rows = new Map();
  functions.forEach((of, at) => {
    if (!rows.has(of)) rows.set(of, []);
    rows.get(of).push(row(at));
  });
  return rows;
}

/// The source lines of each function with their samples.
function linesOf({ lines }) {
  return byFunction(lines.function, (at) => ({ file: lines.file[at], line: lines.line[at], samples: lines.samples[at] }));
}

/// The functions inlined into each function with their samples.
function inlinedOf({ inlined }) {
  return byFunction(inlined.function, (at) => ({ name: inlined.name[at], samples: inlined.samples[at] }));
}

/// How many steps of brightness there are: the first one for no samples.
const LEVELS = 17;

/// The step of brightness of each box: the logarithm of its samples.
function levelsOf({ samples }) {
  let most = 1;
  for (const count of samples) most = Math.max(most, count);
  const steps = (LEVELS - 2) / Math.max(Math.log(most), 1e-9);
  return column(Uint8Array, samples, (count) => (count === 0 ? 0 : 1 + Math.round(Math.log(count) * steps)));
}

/// The boxes of each function: those of function f are `boxes` from `start[f]` to `start[f + 1]`, in the order of time. For
/// each box, whether the function was moved there from another.
function placesOf({ functions, boxes }) {
  const start = new Uint32Array(functions.count + 1);
  for (const of of boxes.function) start[of + 1]++;
  for (let at = 0; at < functions.count; at++) start[at + 1] += start[at];
  const next = start.slice();
  const ordered = new Uint32Array(boxes.count);
  const isMoved = new Uint8Array(boxes.count);
  for (let box = 0; box < boxes.count; box++) {
    const of = boxes.function[box];
    isMoved[box] = next[of] > start[of] && !isPiece(boxes, ordered[next[of] - 1], box) ? 1 : 0;
    ordered[next[of]++] = box;
  }
  return { start, boxes: ordered, isMoved };
}

/// Whether two boxes of a function came at the same time: they are what is left of it at one place.
function isPiece(boxes, one, other) {
  return boxes.from[one] === boxes.from[other];
}

/// The boxes of a function.
function boxesOf(values, of) {
  const { start, boxes } = values.places;
  return boxes.subarray(start[of], start[of + 1]);
}

/// How many characters of a name are shown. A browser takes seconds to lay out the 64 KiB that a name can have.
const SHOWN_CHARACTERS = 400;

/// A name as it is shown: of a long one its start and its end, which tells methods of one class apart.
function nameText(name, most = SHOWN_CHARACTERS) {
  if (name === "") return "(no name)";
  if (name.length <= most) return name;
  // No half of a character that has two numbers is left.
  const start = name.slice(0, most / 2).replace(/[\ud800-\udbff]$/, "");
  const end = name.slice(-most / 2).replace(/^[\udc00-\udfff]/, "");
  return `${start} … ${end}`;
}

/// A path without its folders.
function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

/// A name in two lines: the function and the base name of its file, and the path. Names without a place have one line.
function nameLines(values, name) {
  const text = values.names[name];
  const found = values.locations.get(name);
  if (!found) return [nameText(text), ""];
  const path = text.slice(...found.path);
  const own = text.slice(...found.own) || "(anonymous)";
  const line = found.line > 0 ? `:${found.line}` : "";
  return [`${nameText(own, 200)}  ${nameText(baseName(path), 120)}${line}`, nameText(path)];
}

/// What to call the compiler of this number.
function tierName(values, tier) {
  return tier < values.tiers.length ? nameText(values.tiers[tier]) : "not known";
}

/// The same where nothing says that it is a tier.
function tierTitle(values, tier) {
  return tier < values.tiers.length ? tierName(values, tier) : "tier not known";
}

const numbers = new Intl.NumberFormat("en");

/// A number with what it counts.
function counted(count, what) {
  return `${numbers.format(count)} ${what}${count === 1 ? "" : "s"}`;
}

/// The unit for times of this size: how many seconds it is, and what it is called.
function unitOf(seconds) {
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
  return units.find(([size]) => Math.abs(seconds) >= size) ?? [1e-9, "ns"];
}

/// Formats a time with enough digits to distinguish it from one a step away. `largest` is the largest time shown.
function timeText(seconds, step, largest) {
  const [size, unit] = unitOf(largest);
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-6));
  // Axes also have steps of 2.5, 0.25 and so on.
  const isQuarter = Math.abs((step / size) * 10 ** digits - 2.5) < 1e-6;
  return `${(seconds / size).toFixed(Math.min(digits + (isQuarter ? 1 : 0), 9))} ${unit}`;
}

/// A time by itself.
function momentText(seconds) {
  const [size, unit] = unitOf(seconds);
  const value = seconds / size;
  return `${value.toFixed(value >= 100 ? 1 : value >= 10 ? 2 : 3)} ${unit}`;
}

/// An address: so many bytes behind the start of a region.
function addressText(region, offset) {
  return "0x" + (region.base + BigInt(Math.round(offset))).toString(16);
}
