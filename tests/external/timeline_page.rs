//! Pages of `jitinject timeline` in a browser: they open without errors and respond to input.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::dump::{self, DumpWriter};
use crate::support::generator::{Plan, Runtimes, generate};
use crate::support::profile::{ProfileWriter, field};
use crate::support::scratch;
use crate::support::timeline::{Values, page_of, page_of_capture};
use crate::support::tools::text;

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const RIGHT: &str = "\u{e014}";
const UP: &str = "\u{e013}";
const HOME: &str = "\u{e011}";
const SHIFT: char = '\u{e008}';
const ALT: char = '\u{e00a}';

/// Opens a page in a browser; the console must have no messages.
pub fn open(page: &Path) -> Browser {
    let browser = Browser::start();
    browser.open(page);
    browser.wait_for("window.jitinject");
    assert_quiet(&browser);
    browser
}

pub fn assert_quiet(browser: &Browser) {
    let console = browser.console();
    assert!(console.is_empty(), "{console:?}");
}

pub fn state(browser: &Browser) -> Value {
    settle(browser);
    browser.run("return window.jitinject.state()")
}

/// Waits for the requested animation frames.
pub fn settle(browser: &Browser) {
    browser.run_async(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20)))",
    );
}

/// Shows all functions, also those that are folded away.
fn unfold(browser: &Browser) {
    browser.run(
        "const { page } = jitinject; page.shown.tiers.fill(true); page.shown.builtIns = true; \
         page.charts.setShown(); page.fillShown()",
    );
}

/// Returns the visible fraction of the time and of the addresses.
fn zoomed(browser: &Browser) -> (f64, f64) {
    let state = state(browser);
    let part = |low: &str, high: &str| {
        let length = |view: &str| state[view][high].as_f64().unwrap() - state[view][low].as_f64().unwrap();
        length("view") / length("whole")
    };
    (part("x0", "x1"), part("y0", "y1"))
}

/// Returns the page coordinates of a point in the chart, given as fractions of its width and height from the upper
/// left.
fn place(browser: &Browser, right: f64, down: f64) -> (i64, i64) {
    point(browser, &format!("[area.width * {right}, area.height * {down}]"))
}

/// Returns the page coordinates of the middle of a box.
fn middle_of(browser: &Browser, at: usize) -> (i64, i64) {
    point(
        browser,
        &format!(
            "[charts.cache.valToPos((boxes.from[{at}] + boxes.until[{at}]) / 2, 'x'), \
              charts.cache.valToPos((charts.layout.low[{at}] + charts.layout.high[{at}]) / 2, 'y')]"
        ),
    )
}

fn point(browser: &Browser, expression: &str) -> (i64, i64) {
    let place = browser.run(&format!(
        "const {{ charts }} = jitinject.page, {{ boxes }} = jitinject.page.values; \
         const area = charts.cache.over.getBoundingClientRect(); \
         const [x, y] = {expression}; return [Math.round(area.left + x), Math.round(area.top + y)];"
    ));
    (place[0].as_i64().unwrap(), place[1].as_i64().unwrap())
}

/// Creates the page of many functions, some of which move, at reused addresses.
fn many_functions(folder: &Path) -> PathBuf {
    let plan = Plan {
        functions: 20_000,
        samples: 20_000,
        places: 4000,
        moves: true,
        ..Plan::default()
    };
    page_of(folder, &generate(folder, &plan).profile, &[]).0
}

#[test]
fn the_page_zooms_by_wheel_keys_and_marks() {
    let folder = scratch();
    let browser = open(&many_functions(folder.path()));
    assert_eq!(zoomed(&browser), (1.0, 1.0));
    browser.wheel(place(&browser, 0.5, 0.5), -400);
    let (by_time, by_address) = zoomed(&browser);
    assert!(by_time < 0.7 && by_address < 0.7, "{by_time}, {by_address}");
    let axes = browser.run(
        "const { cache, share } = jitinject.page.charts; return [cache, share].map(({ scales }) => [scales.x.min, scales.x.max])",
    );
    assert_eq!(axes[0], axes[1], "both charts have the same time");
    browser.press(ESCAPE);
    assert_eq!(zoomed(&browser), (1.0, 1.0));
    browser.drag(place(&browser, 0.25, 0.25), place(&browser, 0.5, 0.75));
    let (by_time, by_address) = zoomed(&browser);
    assert!(
        (by_time - 0.25).abs() < 0.01 && (by_address - 0.5).abs() < 0.01,
        "{by_time}, {by_address}"
    );
    browser.run("document.getElementById('reset').click()");
    browser.run("document.getElementById('cache-chart').focus()");
    browser.press("+++");
    let (by_time, _) = zoomed(&browser);
    assert!((by_time - 1.5f64.powi(-3)).abs() < 1e-9, "{by_time}");
    let before = state(&browser)["view"]["x0"].as_f64().unwrap();
    browser.press(RIGHT);
    assert!(state(&browser)["view"]["x0"].as_f64().unwrap() > before);
    browser.press("---");
    assert_eq!(zoomed(&browser), (1.0, 1.0));
    browser.press("?");
    assert_eq!(
        browser.run("return document.getElementById('keys').open"),
        json!(true)
    );
    browser.press(ESCAPE);
    assert_eq!(
        browser.run("return document.getElementById('keys').open"),
        json!(false)
    );
    assert_quiet(&browser);
}

#[test]
fn keys_zoom_both_charts_and_leave_the_browser_its_own() {
    let folder = scratch();
    let browser = open(&many_functions(folder.path()));
    let focus = |id: &str| browser.run(&format!("document.getElementById('{id}').focus()"));
    let step = 1.0 / 1.5;
    let is = |(by_time, by_address): (f64, f64)| {
        let zoomed = zoomed(&browser);
        let is_close = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(
            is_close(zoomed.0, by_time) && is_close(zoomed.1, by_address),
            "{zoomed:?}"
        );
    };
    focus("share-chart");
    assert_eq!(
        browser.run("return document.activeElement.id"),
        json!("share-chart")
    );
    browser.press("+");
    is((step, 1.0));
    browser.press(UP);
    browser.press(HOME);
    is((1.0, 1.0));
    focus("cache-chart");
    browser.press_with(SHIFT, "+");
    is((step, step));
    browser.press(HOME);
    browser.press("w");
    is((step, 1.0));
    browser.press_with(SHIFT, "W");
    is((step, step));
    browser.press("s");
    browser.press_with(SHIFT, "S");
    is((1.0, 1.0));
    browser.press("++");
    let before = state(&browser);
    browser.press_with(ALT, RIGHT);
    let taken = browser.run(
        "const turned = new WheelEvent('wheel', { deltaY: -100, ctrlKey: true, bubbles: true, cancelable: true }); \
         jitinject.page.charts.cache.over.dispatchEvent(turned); return turned.defaultPrevented",
    );
    assert_eq!((taken, &state(&browser)["view"]), (json!(false), &before["view"]));
    assert_quiet(&browser);
}

#[test]
fn functions_are_found_by_name_and_shown() {
    let folder = scratch();
    let page = many_functions(folder.path());
    let values = Values::of(&page);
    let functions = values.functions();
    let matching = functions.iter().filter(|(_, name, ..)| name.contains("fn_123"));
    let hottest = matching.clone().max_by_key(|(.., samples)| samples).unwrap().3;
    let browser = open(&page);
    browser.press("/FN_123");
    assert_eq!(state(&browser)["matches"], json!(matching.count()));
    browser.press(ENTER);
    let found = state(&browser);
    let name = found["selected"][0].as_str().unwrap();
    let samples = functions
        .iter()
        .find(|(_, function, ..)| function == name)
        .unwrap()
        .3;
    assert_eq!(samples, hottest, "{name}");
    assert!(zoomed(&browser).1 < 0.1);
    browser.press(ENTER);
    assert_ne!(state(&browser)["selected"], found["selected"]);
    let shown = browser.run("return document.getElementById('matches').textContent");
    assert!(shown.as_str().unwrap().starts_with("2 of "), "{shown}");
    browser.press(ESCAPE);
    assert_eq!(state(&browser)["matches"], json!(0));
    assert_quiet(&browser);
}

#[test]
fn the_function_under_the_pointer_is_shown_and_selected() {
    let folder = scratch();
    let browser = open(&page_of_capture(folder.path(), "node20-reuse"));
    unfold(&browser);
    let values = Values::of(&folder.path().join("timeline.html"));
    let boxes = values.boxes();
    // The largest box, which the pointer can hit.
    let area = |at: &usize| {
        let until = boxes[*at].until.unwrap_or(u64::MAX / 2);
        let from = boxes[*at].from.unwrap_or(0);
        u128::from(boxes[*at].end - boxes[*at].start) * u128::from(until.min(from + 100_000_000) - from)
    };
    let at = (0..boxes.len())
        .filter(|&at| boxes[at].until.is_some())
        .max_by_key(area)
        .unwrap();
    browser.point_at(middle_of(&browser, at));
    settle(&browser);
    browser.wait_for("!document.getElementById('tip').hidden");
    assert_eq!(state(&browser)["hovered"], json!(boxes[at].name));
    let tip = browser.run("return document.getElementById('tip').textContent");
    let tip = tip.as_str().unwrap();
    assert!(
        tip.contains(&boxes[at].name) && tip.contains(&format!("{:#x}", boxes[at].start)),
        "{tip}"
    );
    browser.click_at(middle_of(&browser, at));
    assert_eq!(state(&browser)["selected"], json!([boxes[at].name]));
    let rows = "return document.getElementById('selected-places').rows.length";
    assert!(browser.run(rows).as_u64().unwrap() >= 1);
    // From the table, too.
    browser.run("document.querySelector('#hottest button').click()");
    let mut by_name: HashMap<String, u64> = HashMap::new();
    for (_, name, _, samples) in values.functions() {
        *by_name.entry(name).or_default() += samples;
    }
    let (hottest, _) = by_name.into_iter().max_by_key(|(_, samples)| *samples).unwrap();
    assert_eq!(state(&browser)["selected"][0], json!(hottest));
    assert_quiet(&browser);
}

#[test]
fn nothing_of_a_browser_outlives_a_test_that_fails() {
    let mut folder = PathBuf::new();
    let mut before = 0;
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let browser = Browser::start();
        folder = browser.folder().to_owned();
        before = processes_of(&folder);
        browser.run("return nothing");
    }));
    assert!(failed.is_err() && before > 1 && !folder.exists());
    assert_eq!(processes_of(&folder), 0, "of {before}");
}

/// Returns the number of processes that were started with a directory as an argument.
fn processes_of(folder: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(text(folder)))
        .count()
}

#[test]
fn light_and_dark_look_different() {
    let folder = scratch();
    let browser = open(&page_of_capture(folder.path(), "node20-reuse"));
    let shot = |scheme: &str| {
        browser.prefer(scheme);
        settle(&browser);
        browser.screenshot()
    };
    let (light, dark) = (shot("light"), shot("dark"));
    assert!(light.starts_with(b"\x89PNG") && light.len() > 10_000);
    assert!(light != dark);
    browser.run("document.getElementById('theme').click()");
    settle(&browser);
    assert_eq!(
        browser.run("return document.documentElement.dataset.theme"),
        json!("dark")
    );
    assert_quiet(&browser);
}

/// Axes have steps of 1, 2, 2.5 and 5 times a power of ten.
#[test]
fn times_on_axes_are_exact() {
    let folder = scratch();
    let browser = open(&page_of_capture(folder.path(), "node20"));
    for power in -6..=0 {
        for step in [1.0, 2.0, 2.5, 5.0].map(|step: f64| step * 10_f64.powi(power)) {
            let script =
                format!("return [1, 2, 3, 4].map((at) => timeText(at * {step}, {step}, 4 * {step}))");
            let labels: Vec<String> = serde_json::from_value(browser.run(&script)).unwrap();
            for (number, label) in (1..).zip(labels) {
                let (value, unit) = label.split_once(' ').unwrap();
                let units = [("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)];
                let (_, unit) = units.into_iter().find(|(name, _)| *name == unit).unwrap();
                let shown = value.parse::<f64>().unwrap() * unit;
                let meant = step * f64::from(number);
                assert!((shown - meant).abs() < step * 1e-6, "{label} for {meant}");
            }
        }
    }
}

#[test]
fn processes_are_shown_together_and_alone() {
    let folder = scratch();
    let plan = Plan {
        processes: 4,
        runtimes: Runtimes::Many,
        ..Plan::default()
    };
    let page = page_of(folder.path(), &generate(folder.path(), &plan).profile, &[]).0;
    let boxes = Values::of(&page).boxes();
    let browser = open(&page);
    unfold(&browser);
    assert_eq!(state(&browser)["boxes"], json!(boxes.len()));
    browser.run("jitinject.page.charts.hover(0)");
    assert_eq!(state(&browser)["hovered"], json!(boxes[0].name));
    browser.run("const chooser = document.getElementById('process'); chooser.value = '1'; chooser.dispatchEvent(new Event('change'))");
    unfold(&browser);
    let of_second = boxes.iter().filter(|placed| placed.pid == 5001).count();
    let state = state(&browser);
    assert_eq!(
        (&state["boxes"], &state["hovered"]),
        (&json!(of_second), &Value::Null)
    );
    assert_eq!(
        browser.run("return document.getElementById('tip').hidden"),
        json!(true)
    );
    assert_quiet(&browser);
}

#[test]
fn names_are_never_more_than_text() {
    const HOSTILE: &str = "</script><img src=x onerror=\"hacked=1\"><script>hacked=2</script>";
    let folder = scratch();
    let dump_path = folder.path().join("jit-10.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    dump.load(2000, 0x7000_0000, 1, HOSTILE.as_bytes(), &[0x90; 64]);
    dump.load(
        2001,
        0x7000_0100,
        2,
        b"<!--<script>\xff\x1b[2J\xe2\x80\xae{{values}}",
        &[0x90; 64],
    );
    dump.load(2002, 0x7000_0200, 3, b"", &[0x90; 64]);
    std::fs::write(&dump_path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, 0x7000_0000, 0x1000, 0x7000_0000, "//anon", 1000);
    profile.mmap2(10, 0x6000_0000, 0x1000, 0, text(&dump_path), 1001);
    for at in 0..3 {
        profile.sample(10, 3000 + at, &[0x7000_0010 + 0x100 * at], None);
    }
    let input = folder.path().join("<img src=x onerror=hacked=3>&amp;.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let browser = open(&page_of(folder.path(), &input, &[]).0);
    browser.run("const { page } = jitinject; page.search('</script>'); page.nextMatch(1); page.tip(0)");
    settle(&browser);
    assert_eq!(state(&browser)["selected"], json!([HOSTILE]));
    let shown = |id: &str| browser.run(&format!("return document.getElementById('{id}').textContent"));
    assert_eq!(shown("selected-name"), json!(HOSTILE));
    assert_eq!(shown("input"), json!(text(&input)));
    let title = browser.run("return document.title");
    assert!(title.as_str().unwrap().ends_with(text(&input)), "{title}");
    assert_eq!(
        browser.run(
            "return [document.images.length, typeof hacked, performance.getEntriesByType('resource').length]"
        ),
        json!([0, "undefined", 0])
    );
    assert_quiet(&browser);
    // Even if a name became markup, the content security policy would block its scripts.
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"hacked=4\">')");
    browser.run("const made = document.createElement('script'); made.textContent = 'hacked = 5'; document.body.append(made)");
    settle(&browser);
    assert_eq!(browser.run("return typeof hacked"), json!("undefined"));
    assert!(browser.console().len() >= 2, "the policy was not enforced");
}

/// Layout of a name of 64 KiB takes a browser seconds, in which the page does not respond.
#[test]
fn long_names_are_cut_where_they_are_shown() {
    let folder = scratch();
    let dump_path = folder.path().join("jit-10.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, 0x7000_0000, 0x10000, 0x7000_0000, "//anon", 1000);
    profile.mmap2(10, 0x6000_0000, 0x1000, 0, text(&dump_path), 1001);
    for at in 0..30_u64 {
        let name = format!(
            "first{at}{}😀{}last{at}",
            "a".repeat(192 - at as usize % 2),
            "b".repeat(64_000)
        );
        dump.load(
            2000 + at,
            0x7000_0000 + 0x100 * at,
            at,
            name.as_bytes(),
            &[0x90; 64],
        );
        profile.sample(10, 3000 + at, &[0x7000_0010 + 0x100 * at], None);
    }
    std::fs::write(&dump_path, &dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let browser = open(&page_of(folder.path(), &input, &[]).0);
    browser.run("const { page } = jitinject; page.search('last7'); page.nextMatch(1); page.tip(0)");
    settle(&browser);
    let longest = browser.run(
        "const texts = [...document.body.querySelectorAll('*')].filter((it) => !['SCRIPT', 'STYLE'].includes(it.tagName)) \
           .flatMap((it) => [...it.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).concat(it.title ?? '')); \
         return [Math.max(...texts.map((text) => text.length)), texts.every((text) => text.isWellFormed()), \
           texts.filter((text) => text.startsWith('first')).every((text) => /last\\d+$/.test(text))]",
    );
    assert!(longest[0].as_u64().unwrap() < 5000, "{longest}");
    assert_eq!(
        (&longest[1], &longest[2]),
        (&json!(true), &json!(true)),
        "{longest}"
    );
    let state = state(&browser);
    let selected = state["selected"][0].as_str().unwrap();
    assert!(
        selected.len() > 64_000 && selected.ends_with("last7"),
        "the whole name is searched"
    );
    assert_quiet(&browser);
}

#[test]
fn pages_without_code_and_without_times_open() {
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(10, "program", true, 1000);
    profile.sample(10, 2000, &[0x40_0000], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let browser = open(&page_of(folder.path(), &input, &[]).0);
    assert_eq!(
        browser.run("return document.getElementById('message').hidden"),
        json!(false)
    );
    assert_eq!(
        browser.run("return document.getElementById('main').hidden"),
        json!(true)
    );
    // Code that is loaded all the time, since there are no times.
    let dump_path = folder.path().join("jit-10.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    dump.load(2000, 0x7000_0000, 1, b"timeless", &[0x90; 64]);
    std::fs::write(&dump_path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type &= !field::TIME;
    profile.mmap2(10, 0x6000_0000, 0x1000, 0, text(&dump_path), 1);
    profile.sample(10, 2, &[0x7000_0010], None);
    std::fs::write(&input, profile.finish()).unwrap();
    let (page, _) = page_of(folder.path(), &input, &[]);
    browser.open(&page);
    browser.wait_for("window.jitinject");
    assert_eq!(state(&browser)["boxes"], json!(1));
    let function = &Values::of(&page).functions()[0];
    assert_eq!((&*function.1, function.3), ("timeless", 1));
    let table = browser.run(
        "const cells = [...document.querySelectorAll('#hottest td:last-child, #hottest th:last-child')]; \
         return [cells[1].textContent, [...cells, document.getElementById('hottest').parentElement] \
           .every((part) => part.scrollWidth <= part.clientWidth)]",
    );
    assert_eq!(table, json!(["100.0", true]), "all of it can be seen");
    assert_quiet(&browser);
    // Samples in memory of JIT code without any dump.
    std::fs::remove_file(&dump_path).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, 0x7000_0000, 0x1000, 0, "//anon", 1000);
    profile.sample(10, 2000, &[0x7000_0010], None);
    std::fs::write(&input, profile.finish()).unwrap();
    browser.open(&page_of(folder.path(), &input, &[]).0);
    browser.wait_for("window.jitinject");
    assert_eq!(
        browser.run("return document.getElementById('cache').hidden"),
        json!(true)
    );
    assert_quiet(&browser);
}

/// Only guards against delays of seconds, since the speed depends on the machine.
#[test]
fn frames_while_zooming_are_drawn_fast() {
    let folder = scratch();
    let browser = open(&many_functions(folder.path()));
    let frames = browser.run_async(
        "const done = arguments[0], { charts } = jitinject.page; charts.frames.length = 0; let left = 60; \
         const step = () => { if (left-- === 0) return done(charts.frames.slice()); \
           charts.zoom(left > 30 ? 0.9 : 1 / 0.9); requestAnimationFrame(step); }; step();",
    );
    let mut frames: Vec<f64> = frames
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame.as_f64().unwrap())
        .collect();
    assert!(frames.len() >= 30, "{frames:?}");
    frames.sort_by(f64::total_cmp);
    let median = frames[frames.len() / 2];
    assert!(median < 100.0, "{median} ms");
}
