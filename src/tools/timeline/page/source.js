"use strict";

/// How many files, and of each how many lines without text, are shown.
const SHOWN_FILES = 20;
const SHOWN_LINES = 40;

/// How many lines are shown before and after each with samples, as many as the values have.
const SHOWN_AROUND = 4;

/// Shows the lines of what is selected with their samples, beside the source text if the page has it.
function fillSource(values, functions) {
  const section = document.getElementById("source");
  const files = sampledFiles(values, functions);
  section.hidden = files.length === 0;
  const parts = document.getElementById("source-files");
  parts.replaceChildren();
  for (const { file, lines } of files.slice(0, SHOWN_FILES)) {
    const path = values.files[file];
    const heading = element("h3", nameText(baseName(path), 120), { title: nameText(path) });
    const excerpts = values.excerpts.filter((excerpt) => excerpt.file === file);
    const table = element("table", undefined, { class: "source" });
    const caption = element("caption", `Samples by line of ${nameText(path)}`, { class: "spoken" });
    table.append(caption);
    if (excerpts.length > 0) addText(table.createTBody(), excerpts, lines);
    else addLines(table.createTBody(), lines);
    const scroll = element("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": `Lines of ${nameText(baseName(path), 120)}` });
    scroll.append(table);
    parts.append(heading, element("p", nameText(path), { class: "name path" }), scroll);
  }
  if (files.length > SHOWN_FILES) parts.append(element("p", `and ${numbers.format(files.length - SHOWN_FILES)} more files`, { class: "path" }));
}

/// The files of functions with the samples of each line, the file with most samples first.
function sampledFiles(values, functions) {
  const files = new Map();
  for (const of of functions) {
    for (const { file, line, samples } of values.lines.get(of) ?? []) {
      if (!files.has(file)) files.set(file, { file, samples: 0, lines: new Map() });
      const found = files.get(file);
      found.samples += samples;
      found.lines.set(line, (found.lines.get(line) ?? 0) + samples);
    }
  }
  return [...files.values()].sort((one, other) => other.samples - one.samples || one.file - other.file);
}

/// Adds the text around the lines of a function. Text of other functions in the file is left out.
function addText(body, excerpts, lines) {
  const near = new Set();
  for (const of of lines.keys()) for (let line = of - SHOWN_AROUND; line <= of + SHOWN_AROUND; line++) near.add(line);
  let before = null;
  for (const { first, text } of excerpts) {
    text.forEach((code, at) => {
      const line = first + at;
      if (!near.has(line)) return;
      if (before !== null && line !== before + 1) body.insertRow().append(element("td", "⋮", { colspan: "3", class: "more" }));
      before = line;
      addLine(body, line, lines.get(line) ?? 0, code);
    });
  }
}

/// Adds lines without text.
function addLines(body, lines) {
  const sorted = [...lines].filter(([, samples]) => samples > 0).sort(([one], [other]) => one - other);
  for (const [line, samples] of sorted.slice(0, SHOWN_LINES)) addLine(body, line, samples);
  if (sorted.length > SHOWN_LINES) body.insertRow().append(element("td", `and ${numbers.format(sorted.length - SHOWN_LINES)} more lines`, { colspan: "3", class: "more" }));
}

/// Adds a line with its text, if that is known.
function addLine(body, line, samples, code) {
  const row = body.insertRow();
  row.append(element("td", samples > 0 ? numbers.format(samples) : ""));
  if (code === undefined) {
    row.append(element("th", `line ${line}`, { scope: "row", colspan: "2" }));
    return;
  }
  if (samples > 0) row.className = "hot";
  row.append(element("th", String(line), { scope: "row" }), element("td", code, { class: "code" }));
}
