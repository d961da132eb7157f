"use strict";

/// What is shown of the functions. What no sample touches is folded away at first: compilers without samples, and code that
/// is part of the runtime.
class Shown {
  constructor(values) {
    this.values = values;
    this.start(-1);
  }

  /// Starts anew for a process, or for all with -1.
  start(process) {
    const { functions, tiers } = this.values;
    const of = () => ({ functions: 0, samples: 0, untouched: 0 });
    this.process = process;
    this.counts = Array.from({ length: tiers.length + 1 }, of);
    /// Functions that are part of the runtime and have no samples.
    this.untouched = 0;
    for (let at = 0; at < functions.count; at++) {
      if (process >= 0 && functions.process[at] !== process) continue;
      const count = this.counts[functions.tier[at]];
      count.functions++;
      count.samples += functions.samples[at];
      if (this.isUntouched(at)) {
        count.untouched++;
        this.untouched++;
      }
    }
    const hasSamples = this.counts.some(({ samples }) => samples > 0);
    /// For each compiler, whether its functions are shown. Without any samples, nothing is less interesting than the rest.
    this.tiers = this.counts.map(({ samples }) => samples > 0 || !hasSamples);
    this.builtIns = !hasSamples;
  }

  /// Whether a function is part of the runtime and has no samples.
  isUntouched(of) {
    const { functions } = this.values;
    return functions.isBuiltIn[of] === 1 && functions.samples[of] === 0;
  }

  /// Whether a function is shown.
  isShown(of) {
    const { functions } = this.values;
    return this.tiers[functions.tier[of]] && (this.builtIns || !this.isUntouched(of));
  }

  /// Whether all functions are shown.
  isAll() {
    return this.tiers.every((isShown, tier) => isShown || this.counts[tier].functions === 0) && (this.builtIns || this.untouched === 0);
  }

  /// Shows some functions; returns whether any was folded away.
  unfold(functions) {
    const folded = functions.filter((of) => !this.isShown(of));
    for (const of of folded) {
      this.tiers[this.values.functions.tier[of]] = true;
      if (this.isUntouched(of)) this.builtIns = true;
    }
    return folded.length > 0;
  }
}

/// Fills the row of what can be shown and hidden: a box to check for each compiler, and one for untouched code of the
/// runtime. `onChange` is called after each change.
function fillShown(shown, onChange) {
  const { values } = shown;
  const group = document.getElementById("shown");
  const boxes = [];
  const add = (text, about, color, isChecked, set) => {
    const label = element("label", undefined, { title: about });
    const box = element("input", undefined, { type: "checkbox" });
    box.checked = isChecked;
    box.addEventListener("change", () => {
      set(box.checked);
      onChange();
    });
    label.append(box, ...(color ? [swatch(color)] : []), text);
    boxes.push(label);
  };
  const tiers = shown.counts.map((count, tier) => ({ ...count, tier })).filter(({ functions }) => functions > 0);
  tiers.sort((one, other) => other.samples - one.samples || one.tier - other.tier);
  for (const { tier, functions, samples } of tiers) {
    const about = `${counted(functions, "function")}, ${counted(samples, "sample")}`;
    const text = document.createElement("span");
    text.append(nameText(tierTitle(values, tier), 40), " ", element("small", samples > 0 ? numbers.format(samples) : "no samples"));
    add(text, about, tierColor(values, tier), shown.tiers[tier], (isShown) => (shown.tiers[tier] = isShown));
  }
  if (shown.untouched > 0) {
    const text = `built-ins without samples (${numbers.format(shown.untouched)})`;
    const about = "Code that is part of the runtime and that no sample was taken in";
    add(text, about, null, shown.builtIns, (isShown) => {
      shown.builtIns = isShown;
      // Their compilers may have nothing else.
      if (isShown) shown.counts.forEach(({ untouched }, tier) => (shown.tiers[tier] ||= untouched > 0));
    });
  }
  // What has the focus keeps it.
  const focused = [...group.querySelectorAll("input")].indexOf(document.activeElement);
  group.replaceChildren(element("legend", "Shown"), ...boxes);
  group.querySelectorAll("input")[focused]?.focus();
}
