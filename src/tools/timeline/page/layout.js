"use strict";

/// The least part of the height that a region has, so that it can be seen, and that of a gap between two.
const LEAST_REGION = 0.03;
const GAP = 0.012;

/// Smaller gaps are never cut, and a process has no more regions than this. The program that wrote the values cuts them in the
/// same way for all functions.
const LEAST_GAP = 4096;
const MAX_REGIONS = 64;

/// Lays the regions of a process, or of all if it is -1, over each other, the lowest at the bottom. Heights go with the
/// square roots of sizes: one region may be a hundred times as large as another, and the small one is mostly where things
/// happen.
class Layout {
  constructor(values, process, shown) {
    this.values = values;
    this.shown = shown;
    this.isShown = column(Uint8Array, values.boxes.function, (of) => Number(shown.isShown(of)));
    const regions = values.regions
      .map((region, index) => ({ ...region, index, start: 0 }))
      .filter((region) => process < 0 || region.process === process);
    const parts = shown.isAll() ? regions : this.partsOf(regions);
    this.place(parts);
    this.placeBoxes();
  }

  /// The parts of regions that have functions which are shown.
  partsOf(regions) {
    const { boxes } = this.values;
    const starts = new Map(regions.map(({ index }) => [index, []]));
    const ends = new Map(regions.map(({ index }) => [index, []]));
    for (let box = 0; box < boxes.count; box++) {
      if (this.isShown[box] === 0) continue;
      starts.get(boxes.region[box])?.push(boxes.offset[box]);
      ends.get(boxes.region[box])?.push(boxes.offset[box] + boxes.size[box]);
    }
    const gaps = new Map();
    for (const region of regions) {
      const first = Float64Array.from(starts.get(region.index)).sort();
      const last = Float64Array.from(ends.get(region.index)).sort();
      region.first = first[0] ?? 0;
      region.last = last[last.length - 1] ?? 0;
      region.gaps = [];
      // Where as many have ended as have started, there is none.
      for (let at = 1; at < first.length; at++) {
        const gap = first[at] - last[at - 1];
        if (gap >= LEAST_GAP) region.gaps.push([last[at - 1], first[at]]);
      }
      if (!gaps.has(region.process)) gaps.set(region.process, []);
      gaps.get(region.process).push(...region.gaps.map(([start, end]) => end - start));
    }
    for (const sizes of gaps.values()) sizes.sort((one, other) => other - one);
    return regions.flatMap((region) => {
      if (region.last === 0) return [];
      const least = (gaps.get(region.process)[MAX_REGIONS - 1] ?? 0) + 1;
      const cuts = region.gaps.filter(([start, end]) => end - start >= least);
      const begins = [region.first, ...cuts.map(([, end]) => end)];
      const stops = [...cuts.map(([start]) => start), region.last];
      return begins.map((start, at) => ({
        ...region,
        start,
        size: stops[at] - start,
        base: region.base + BigInt(start),
      }));
    });
  }

  /// Places parts of regions over each other.
  place(shown) {
    const bytes = shown.reduce((sum, region) => sum + region.size, 0) || 1;
    const roots = shown.reduce((sum, region) => sum + Math.sqrt(region.size), 0) || 1;
    const share = Math.min(1, 10 / shown.length);
    const gap = bytes * GAP * share;
    /// One for each region that is shown: where it starts and ends, and what a byte of it is high.
    this.lanes = [];
    let top = 0;
    for (const region of shown) {
      const height = bytes * Math.max(Math.sqrt(region.size) / roots, LEAST_REGION * share);
      this.lanes.push({ ...region, low: top, high: top + height, scale: height / region.size });
      top += height + gap;
    }
    this.height = Math.max(top - gap, 1);
    /// What a byte is high at least.
    this.leastScale = this.lanes.reduce((least, { scale }) => Math.min(least, scale), 1);
  }

  /// Where each box lies; those that are not shown lie nowhere. `order` has those that are, the brightest last.
  placeBoxes() {
    const { boxes, functions, places, regions, levels } = this.values;
    // The first lane of each region; the others of it follow.
    const laneOf = new Int32Array(regions.length).fill(-1);
    for (let at = this.lanes.length - 1; at >= 0; at--) laneOf[this.lanes[at].index] = at;
    this.low = new Float64Array(boxes.count);
    this.high = new Float64Array(boxes.count);
    const next = new Uint32Array(LEVELS + 1);
    for (let box = 0; box < boxes.count; box++) {
      let at = laneOf[boxes.region[box]];
      if (at < 0 || this.isShown[box] === 0) continue;
      const offset = boxes.offset[box];
      while (offset >= this.lanes[at].start + this.lanes[at].size) at++;
      const lane = this.lanes[at];
      this.low[box] = lane.low + (offset - lane.start) * lane.scale;
      this.high[box] = this.low[box] + boxes.size[box] * lane.scale;
      next[levels[box] + 1]++;
    }
    for (let level = 0; level < LEVELS; level++) next[level + 1] += next[level];
    this.order = new Uint32Array(next[LEVELS]);
    for (let box = 0; box < boxes.count; box++) {
      if (laneOf[boxes.region[box]] >= 0 && this.isShown[box] === 1) this.order[next[levels[box]]++] = box;
    }
    /// Once more what is looked at for each frame, in this order: processors read memory best from front to back.
    this.drawn = {
      from: column(Float64Array, this.order, (box) => boxes.from[box]),
      until: column(Float64Array, this.order, (box) => boxes.until[box]),
      low: column(Float64Array, this.order, (box) => this.low[box]),
      high: column(Float64Array, this.order, (box) => this.high[box]),
      function: column(Uint32Array, this.order, (box) => boxes.function[box]),
      tier: column(Uint8Array, this.order, (box) => functions.tier[boxes.function[box]]),
      level: column(Uint8Array, this.order, (box) => levels[box]),
      isMoved: column(Uint8Array, this.order, (box) => places.isMoved[box]),
    };
  }

  /// The lane at a height, or the nearest one.
  laneAt(height) {
    const lane = this.lanes.find((lane) => height < lane.high);
    return lane ?? this.lanes[this.lanes.length - 1];
  }

  /// The address at a height, as text.
  addressAt(height) {
    const lane = this.laneAt(height);
    const offset = Math.floor((height - lane.low) / lane.scale);
    return addressText(lane, Math.min(Math.max(offset, 0), lane.size));
  }

  /// Heights for the ticks of an axis that shows `low` to `high`, at least `room` apart: where regions start, and round
  /// addresses in them.
  ticks(low, high, room) {
    const ticks = [];
    let last = -Infinity;
    for (const lane of this.lanes) {
      if (lane.high < low || lane.low > high) continue;
      const least = room / lane.scale;
      const step = 2 ** Math.max(4, Math.ceil(Math.log2(least)));
      const first = Math.max(0, (low - lane.low) / lane.scale);
      const place = (offset) => {
        const height = lane.low + offset * lane.scale;
        if (height < low || height > high || height - last < room) return;
        ticks.push(height);
        last = height;
      };
      if (first === 0) place(0);
      const remainder = Number(BigInt.asUintN(64, lane.base + BigInt(Math.floor(first))) % BigInt(step));
      for (let offset = Math.floor(first) - remainder + step; offset <= lane.size; offset += step) {
        const height = lane.low + offset * lane.scale;
        if (height > high) break;
        place(offset);
      }
    }
    return ticks;
  }
}
