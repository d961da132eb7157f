//! What pages of `jitinject timeline` show of functions: which ones, their names, and their source lines.

use jitdump::ByteOrder;
use serde_json::json;

use crate::support::dump::{self, DumpWriter};
use crate::support::profile::ProfileWriter;
use crate::support::scratch;
use crate::support::timeline::{Values, page_of, page_of_capture};
use crate::support::tools::text;
use crate::timeline_page::{assert_quiet, open, settle, state};

#[test]
fn what_no_sample_touches_is_folded_away() {
    let folder = scratch();
    let page = page_of_capture(folder.path(), "node20");
    let boxes = Values::of(&page).boxes();
    let browser = open(&page);
    let shown = || state(&browser)["boxes"].as_u64().unwrap();
    let at_first = shown();
    assert!(
        at_first < 40 && boxes.len() > 2000,
        "{at_first} of {}",
        boxes.len()
    );
    // The three hottest functions have more than 2 % of the height now.
    let share = browser.run(
        "const { values, charts } = jitinject.page, { boxes } = values, { layout } = charts; \
         const hot = [...boxes.samples.keys()].sort((one, other) => boxes.samples[other] - boxes.samples[one]).slice(0, 3); \
         return hot.reduce((sum, box) => sum + layout.high[box] - layout.low[box], 0) / layout.height",
    );
    assert!(share.as_f64().unwrap() > 0.15, "{share}");
    // Compilers are shown and hidden by the keyboard, and the focus stays.
    let focus = |label: &str| {
        browser.run(&format!(
            "[...document.querySelectorAll('#shown label')].find((it) => it.textContent.startsWith('{label}')).firstChild.focus()"
        ));
    };
    focus("Sparkplug");
    browser.press(" ");
    let sparkplug = boxes
        .iter()
        .filter(|placed| placed.name.starts_with("JS:^"))
        .count() as u64;
    assert_eq!(shown(), at_first + sparkplug);
    browser.press(" ");
    assert_eq!(shown(), at_first);
    focus("TurboFan");
    browser.press(" ");
    assert!(shown() < at_first);
    browser.press(" ");
    focus("built-ins");
    browser.press(" ");
    assert_eq!(shown(), boxes.len() as u64 - sparkplug);
    browser.press(" ");
    // A search shows what it finds.
    browser.press("/ArrayMap\u{e007}");
    assert!(shown() > at_first);
    let selected = &state(&browser)["selected"][0];
    assert!(selected.as_str().unwrap().contains("ArrayMap"), "{selected}");
    assert_quiet(&browser);
}

#[test]
fn a_page_with_nothing_to_show_says_so_without_errors() {
    let folder = scratch();
    let browser = open(&page_of_capture(folder.path(), "node20"));
    // Each change makes new boxes.
    for _ in 0..3 {
        browser
            .run("for (const box of document.querySelectorAll('#shown input')) if (box.checked) box.click()");
    }
    settle(&browser);
    assert_eq!(state(&browser)["boxes"], json!(0));
    browser.run("jitinject.page.charts.zoom(0.5)");
    settle(&browser);
    assert_quiet(&browser);
}

#[test]
fn the_list_shows_functions_with_the_names_of_their_files() {
    let folder = scratch();
    let browser = open(&page_of_capture(folder.path(), "node20"));
    let first = browser.run(
        "const button = document.querySelector('#hottest button'); \
         return [button.title, ...[...button.children].map((part) => part.textContent)]",
    );
    assert_eq!(
        first,
        json!([
            "JS:*eat /tmp/cap-node20/work.js:23:6",
            "eat  work.js:23",
            "/tmp/cap-node20/work.js"
        ])
    );
    // A compiler has the same colour on all pages.
    let color = || {
        browser
            .run("const { values } = jitinject.page; return values.colors[values.tiers.indexOf('TurboFan')]")
    };
    let here = color();
    browser.open(&page_of_capture(folder.path(), "node20-reuse"));
    browser.wait_for("window.jitinject");
    assert_eq!(here, color());
    assert_quiet(&browser);
}

#[test]
fn lines_of_the_selected_function_are_beside_its_source() {
    const HOSTILE: &str = "</script><img src=x onerror=\"hacked=1\"><script>hacked=2</script>";
    let folder = scratch();
    let source = folder.path().join("<img src=x onerror=hacked=3>.js");
    std::fs::write(
        &source,
        format!("// {HOSTILE}\nfunction run() {{\n  return 1;\n}}\n"),
    )
    .unwrap();
    let dump_path = folder.path().join("jit-10.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    dump.lines(
        1999,
        0x7000_0000,
        text(&source).as_bytes(),
        &[(0x7000_0000, 2), (0x7000_0010, 3)],
    );
    dump.load(2000, 0x7000_0000, 1, b"run", &[0x90; 64]);
    dump.load(2001, 0x7000_0100, 2, b"without lines", &[0x90; 64]);
    std::fs::write(&dump_path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, 0x7000_0000, 0x1000, 0x7000_0000, "//anon", 1000);
    profile.mmap2(10, 0x6000_0000, 0x1000, 0, text(&dump_path), 1001);
    for (at, address) in [0x7000_0011, 0x7000_0012, 0x7000_0001, 0x7000_0100]
        .into_iter()
        .enumerate()
    {
        profile.sample(10, 3000 + at as u64, &[address], None);
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let rows = "return [...document.querySelectorAll('#source tr')].map((row) => [...row.cells].map((cell) => cell.textContent))";
    let click = "document.querySelector('#hottest button').click()";

    let browser = open(&page_of(folder.path(), &input, &[]).0);
    browser.run(click);
    assert_eq!(browser.run(rows), json!([["1", "line 2"], ["2", "line 3"]]));
    browser.open(&page_of(folder.path(), &input, &["--sources"]).0);
    browser.wait_for("window.jitinject");
    browser.run(click);
    let hostile = format!("// {HOSTILE}");
    let expected = json!([
        ["", "1", hostile],
        ["1", "2", "function run() {"],
        ["2", "3", "  return 1;"],
        ["", "4", "}"],
        ["", "5", ""],
    ]);
    assert_eq!(browser.run(rows), expected);
    let found = browser.run("return [document.images.length, typeof hacked]");
    assert_eq!(found, json!([0, "undefined"]));
    browser.run("jitinject.page.select([1])");
    assert_eq!(
        browser.run("return document.getElementById('source').hidden"),
        json!(true)
    );
    assert_quiet(&browser);
}

#[test]
fn inlined_functions_are_listed_found_and_lead_to_those_that_contain_them() {
    let folder = scratch();
    let browser = open(&page_of_capture(folder.path(), "node20-typescript"));
    let rows = "[...document.querySelectorAll('#inlined tr')].map((row) => \
        [...row.cells].map((cell) => cell.firstChild.firstChild?.textContent ?? cell.textContent))";
    let listed = browser.run(&format!("return {rows}"));
    assert_eq!(
        listed,
        json!([
            ["Inlined also counted above", "490", "89.9"],
            ["s  app.js:1", "351", "64.4"],
            ["u  app.js:1", "98", "18.0"],
            ["perimeter  app.js:1", "41", "7.5"],
        ])
    );
    let selected = || browser.run("return jitinject.state().selected");
    browser.run("document.querySelector('#inlined button').click()");
    let containing = json!(vec!["JS:*a /tmp/typescript/bundle/app.js:1:284"; 2]);
    assert_eq!(selected(), containing);
    let beside = "return [...document.querySelectorAll('#selected-inlined tbody tr')].map((row) => \
        [row.cells[0].firstChild.textContent, row.cells[1].textContent])";
    assert_eq!(
        browser.run(beside),
        json!([
            ["s  app.js:1", "351"],
            ["u  app.js:1", "98"],
            ["perimeter  app.js:1", "41"]
        ])
    );
    let found = "const { page } = jitinject; page.search('perimeter'); \
        return page.matches.map((of) => page.values.names[page.values.functions.name[of]])";
    assert_eq!(
        browser.run(found),
        json!([
            "JS:*a /tmp/typescript/bundle/app.js:1:284",
            "JS:^perimeter /tmp/typescript/bundle/app.js:1:56",
            "JS:*perimeter /tmp/typescript/bundle/app.js:1:56",
        ])
    );
    browser.run("jitinject.page.select([])");
    assert_eq!(
        browser.run("return document.getElementById('selected').hidden"),
        json!(true)
    );
    assert_quiet(&browser);
}

/// WCAG 2.2, 1.4.3: a contrast of 4.5 for text.
#[test]
fn text_has_contrast_and_fits_the_width() {
    let folder = scratch();
    let browser = open(&page_of_capture(folder.path(), "node20"));
    browser.run("document.querySelector('#hottest button').click()");
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        settle(&browser);
        let low = browser.run(
            "const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true }); \
             const channels = (color, under) => { canvas.fillStyle = `rgb(${under})`; canvas.fillRect(0, 0, 1, 1); \
               canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); }; \
             const back = (it) => it ? channels(getComputedStyle(it).backgroundColor, back(it.parentElement)) : [255, 255, 255]; \
             const light = (color) => { const [r, g, b] = color.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); \
               return 0.2126 * r + 0.7152 * g + 0.0722 * b; }; \
             const texts = [...document.body.querySelectorAll('*')].filter((it) => !['SCRIPT', 'STYLE', 'OPTION'].includes(it.tagName) \
               && it.offsetParent && [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== '')); \
             return texts.map((it) => { const under = back(it), text = channels(getComputedStyle(it).color, under); \
               const [high, low] = [light(under), light(text)].sort((one, other) => other - one); \
               return [(high + 0.05) / (low + 0.05), it.tagName, it.textContent.slice(0, 30)]; }).filter(([ratio]) => ratio < 4.5)",
        );
        assert_eq!(low, json!([]), "{scheme}");
    }
    for width in [800, 1400] {
        browser.set_width(width);
        settle(&browser);
        let page = browser.run("return document.documentElement.scrollWidth");
        // A scroll bar takes some of it.
        assert!(
            page.as_u64().is_some_and(|page| page <= u64::from(width)),
            "{page}"
        );
    }
    assert_quiet(&browser);
}
