"use strict";

/// Colors of code of unknown compilers, and without a name. Those of compilers are in the values.
const UNKNOWN_COLOR = "#6f83a6";
const UNNAMED_COLOR = [170, 175, 182];

/// How a function is shown: as it is, fainter than others that are searched for, or as one of those.
const PLAIN = 0, DIMMED = 1, MARKED = 2;

/// The most boxes that get a frame each.
const MAX_FRAMED = 4000;

/// The colour of a compiler, as red, green and blue.
function tierColor(values, tier) {
  return parseColor(values.colors[tier] ?? UNKNOWN_COLOR);
}

function parseColor(text) {
  const number = parseInt(text.trim().slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function mix(from, to, part) {
  return from.map((value, at) => Math.round(value + (to[at] - value) * part));
}

function cssColor(color) {
  return `rgb(${color.join(" ")})`;
}

/// Draws boxes into pixels: one pass over all of them, from the brightest to the faintest, which passes over those that
/// can't be seen. Of the others only those pixels are drawn that none was drawn at yet, so each is drawn once however
/// many boxes lie on it.
class Painter {
  constructor(values) {
    this.values = values;
    this.emphasis = new Uint8Array(values.functions.count);
    this.isSearching = false;
    this.hovered = -1;
    this.image = null;
  }

  /// Takes the colours of the page's theme.
  setTheme() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => parseColor(style.getPropertyValue(name));
    this.background = color("--plot");
    this.mark = color("--mark");
    this.faint = cssColor(color("--faint"));
    this.line = cssColor(color("--line"));
    const isDark = this.background[0] < 128;
    const strongest = isDark ? [255, 255, 255] : [0, 0, 0];
    const tiers = this.values.tiers.length + 1;
    /// For each compiler, level and emphasis, a colour and one for edges, as pixels.
    this.colors = new Uint32Array(tiers * LEVELS * 3 * 2);
    for (let tier = 0; tier < tiers; tier++) {
      const base = tierColor(this.values, tier);
      for (let level = 0; level < LEVELS; level++) {
        const part = level / (LEVELS - 1);
        const saturated = mix(this.background, base, level === 0 ? 0.3 : Math.min(1, 0.5 + 0.6 * part));
        const plain = mix(saturated, strongest, Math.max(0, part - 0.7) * 0.7);
        const dimmed = mix(this.background, plain, 0.22);
        const marked = mix(base, strongest, 0.1);
        [plain, dimmed, marked].forEach((fill, emphasis) => {
          const at = this.colorAt(tier, level, emphasis);
          this.colors[at] = pixel(fill);
          this.colors[at + 1] = pixel(mix(fill, [0, 0, 0], isDark ? 0.45 : 0.2));
        });
      }
    }
  }

  colorAt(tier, level, emphasis) {
    return ((tier * LEVELS + level) * 3 + emphasis) * 2;
  }

  /// Draws what a chart shows of a layout.
  paint(chart, layout) {
    const { left, top, width, height } = chart.bbox;
    if (!(width >= 1 && height >= 1)) return;
    const context = chart.ctx;
    const columns = Math.round(width), rows = Math.round(height);
    if (this.image?.width !== columns || this.image?.height !== rows) {
      this.image = context.createImageData(columns, rows);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.itself = Uint32Array.from({ length: this.pixels.length + 1 }, (_, at) => at);
      /// For each pixel itself if it is free, or one nearer to the next one that is.
      this.free = new Uint32Array(this.itself.length);
    }
    this.free.set(this.itself);
    this.pixels.fill(pixel(this.background));
    const sight = sightOf(chart, columns, rows);
    // What is searched for comes first, so that nothing hides it.
    if (this.isSearching) this.paintBoxes(layout, sight, MARKED);
    this.paintBoxes(layout, sight);
    context.putImageData(this.image, Math.round(left), Math.round(top));
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.translate(Math.round(left), Math.round(top));
    this.paintGaps(context, layout, sight);
    this.nameProcesses(context, layout, sight);
    this.frameMarked(context, layout, sight);
    context.restore();
  }

  /// Draws all boxes, or those of functions that are shown in one way.
  paintBoxes({ drawn }, { x0, y1, byX, byY, columns, rows }, only = -1) {
    const { from, until, low, high } = drawn;
    const { colors, emphasis } = this;
    const mark = pixel(this.mark);
    const ratio = Math.max(1, Math.round(devicePixelRatio));
    for (let at = from.length - 1; at >= 0; at--) {
      let left = (from[at] - x0) * byX, right = (until[at] - x0) * byX;
      let upper = (y1 - high[at]) * byY, lower = (y1 - low[at]) * byY;
      if (right < 0 || left > columns || lower < 0 || upper > rows) continue;
      const level = drawn.level[at], look = emphasis[drawn.function[at]];
      if (only >= 0 && look !== only) continue;
      // What is smaller than a pixel can be seen all the same, and what has samples a little better.
      const least = level > 0 || look === MARKED ? 2 * ratio : ratio;
      left = Math.floor(left);
      right = Math.max(Math.floor(right), left + least);
      lower = Math.ceil(lower);
      upper = Math.min(Math.floor(upper), lower - least);
      if (right <= 0 || left >= columns || lower <= 0 || upper >= rows) continue;
      const color = this.colorAt(drawn.tier[at], level, look);
      const fill = colors[color], edge = colors[color + 1];
      const first = Math.max(left, 0), end = Math.min(right, columns);
      const start = Math.max(upper, 0), stop = Math.min(lower, rows);
      const isHigh = lower - upper > 3 * ratio, isMoved = drawn.isMoved[at] === 1;
      const hasSide = right - left > 3 * ratio && left >= 0 && (isHigh || isMoved);
      const side = hasSide ? Math.min(left + (isMoved ? 2 * ratio : 1), columns) : first;
      if (isHigh && lower <= rows) this.fillRow(edge, (lower - 1) * columns + side, (lower - 1) * columns + end);
      for (let row = start, line = start * columns; row < stop; row++, line += columns) {
        if (hasSide) this.fillRow(isMoved && look !== DIMMED ? mark : edge, line + first, line + side);
        this.fillRow(fill, line + side, line + end);
      }
    }
  }

  /// Draws those of some neighbouring pixels that are free.
  fillRow(color, first, end) {
    const { pixels, free } = this;
    for (let at = first; at < end; at++) {
      let next = at;
      while (free[next] !== next) next = free[next];
      // What was passed through leads straight there from now on.
      while (free[at] !== next) {
        const following = free[at];
        free[at] = next;
        at = following;
      }
      at = next;
      if (at >= end) return;
      pixels[at] = color;
      // All up to the end will be drawn.
      free[at] = end;
    }
  }

  /// Shows where addresses are cut out, and where another process begins.
  paintGaps(context, { lanes }, { y1, byY, columns, rows }) {
    context.lineWidth = Math.max(1, Math.round(devicePixelRatio));
    for (let at = 1; at < lanes.length; at++) {
      const row = Math.round((y1 - (lanes[at - 1].high + lanes[at].low) / 2) * byY) + 0.5;
      if (row < 0 || row > rows) continue;
      const isOther = lanes[at - 1].process !== lanes[at].process;
      context.strokeStyle = isOther ? this.faint : this.line;
      context.setLineDash(isOther ? [] : [4 * context.lineWidth, 4 * context.lineWidth]);
      context.beginPath();
      context.moveTo(0, row);
      context.lineTo(columns, row);
      context.stroke();
    }
    context.setLineDash([]);
  }

  /// Writes the numbers of processes, if there are several, over the regions of each.
  nameProcesses(context, { lanes }, { y1, byY, rows }) {
    if (lanes.every((lane) => lane.process === lanes[0].process)) return;
    const size = Math.round(11 * devicePixelRatio);
    context.font = `600 ${size}px system-ui, sans-serif`;
    context.textAlign = "left";
    context.textBaseline = "bottom";
    let lowest = Infinity;
    for (let at = 0; at < lanes.length; at++) {
      const row = Math.round((y1 - lanes[at].low) * byY) - 2;
      const isFirst = at === 0 || lanes[at].process !== lanes[at - 1].process;
      if (!isFirst || row < size || row > rows || lowest - row < size + 4) continue;
      lowest = row;
      const text = `process ${this.values.processes[lanes[at].process].pid}`;
      context.fillStyle = cssColor(this.background);
      context.globalAlpha = 0.8;
      context.fillRect(0, row - size - 2, context.measureText(text).width + size, size + 4);
      context.globalAlpha = 1;
      context.fillStyle = cssColor(this.mark);
      context.fillText(text, size / 2, row);
    }
  }

  /// Frames the boxes of functions that are marked or under the pointer, and joins the places of the latter.
  frameMarked(context, layout, sight) {
    context.strokeStyle = cssColor(this.mark);
    context.lineWidth = 1.5 * Math.max(1, devicePixelRatio);
    let left = MAX_FRAMED;
    for (const of of this.marked ?? []) {
      if (left <= 0) break;
      if (layout.shown.isShown(of)) left -= this.frame(context, layout, sight, of);
    }
    if (this.hovered >= 0) this.frame(context, layout, sight, this.hovered);
  }

  frame(context, layout, sight, of) {
    const places = boxesOf(this.values, of);
    const { boxes } = this.values;
    context.beginPath();
    let before = null;
    for (const box of places.subarray(0, MAX_FRAMED)) {
      const { left, right, upper, lower } = placeOf(layout, boxes, box, sight);
      context.rect(left - 1, upper - 1, right - left + 2, lower - upper + 2);
      if (before !== null && this.values.places.isMoved[box] === 1) {
        context.moveTo(before.right, (before.upper + before.lower) / 2);
        context.lineTo(left, (upper + lower) / 2);
      }
      before = { right, upper, lower };
    }
    context.stroke();
    return places.length;
  }
}

/// What part of the axes a chart shows, and how that becomes pixels.
function sightOf(chart, columns, rows) {
  const { x, y } = chart.scales;
  return { x0: x.min, y1: y.max, byX: columns / (x.max - x.min), byY: rows / (y.max - y.min), columns, rows };
}

/// Where a box lies, in pixels; those at the edges of what can be seen lie just outside.
function placeOf({ low, high }, { from, until }, box, { x0, y1, byX, byY, columns, rows }) {
  const within = (value, end) => Math.min(Math.max(value, -9), end + 9);
  const left = within((from[box] - x0) * byX, columns), upper = within((y1 - high[box]) * byY, rows);
  return {
    left,
    upper,
    right: Math.max(within((until[box] - x0) * byX, columns), left + 2),
    lower: Math.max(within((y1 - low[box]) * byY, rows), upper + 2),
  };
}

/// Returns a color as a pixel of an image, with the bytes red, green, blue, alpha.
function pixel([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
