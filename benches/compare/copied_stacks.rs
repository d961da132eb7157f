//! Compares the unwinding of copied stacks, once, with that of perf: `perf script`, and `perf inject
//! --convert-callchain` of a newer perf.

use crate::cases::{Bench, number, ratio, section};
use crate::contest::Contestant;
use crate::inputs::Input;
use crate::programs;
use crate::table::Section;

const JITINJECT: &str = "jitinject --unwind";
const SCRIPT: &str = "perf script";
const CONVERT: &str = "newer perf inject --convert-callchain";

/// perf gets the profile with the objects of the functions, without which it cannot unwind.
pub fn copied_stacks(bench: &Bench<'_>) -> Vec<Section> {
    let input = Input {
        functions: 1000,
        samples: bench.scaled(100_000),
        stacks: true,
        ..Input::default()
    };
    let title = format!("Copied stacks of {} samples", number(input.samples));
    let case = bench.case(&input);
    bench.prepare(&case, "kept", &[]);
    let (copied, cache) = (bench.output("kept"), bench.path("no-cache"));
    let newer = programs::newer_perf();
    let converted = bench.path("converted");
    let mut contestants = vec![
        bench.jitinject(&case, "unwound", &["--unwind"], bench.runs()),
        Contestant::new(SCRIPT, 1, &[], || programs::perf_script(&copied, &cache)),
    ];
    contestants.extend(newer.as_deref().map(|newer| {
        Contestant::new(CONVERT, 1, &[], || {
            programs::convert_stacks(newer, &copied, &converted, &cache)
        })
    }));
    let rows = bench.run(contestants);
    let ratios = [SCRIPT, CONVERT].map(|slow| ratio(&rows, slow, JITINJECT, true));
    vec![section(title, rows, ratios)]
}
