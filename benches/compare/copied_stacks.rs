//! Compares the unwinding of copied stacks, once, with that of perf.

use crate::cases::{Bench, number, ratio, section};
use crate::contest::Contestant;
use crate::inputs::Input;
use crate::programs;
use crate::table::Section;

const JITINJECT: &str = "jitinject --unwind";
const SCRIPT: &str = "perf script";

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
    let contestants = vec![
        bench.jitinject(&case, "unwound", &["--unwind"], bench.runs()),
        Contestant::new(SCRIPT, 1, &[], || programs::perf_script(&copied, &cache)),
    ];
    let rows = bench.run(contestants);
    let ratios = [ratio(&rows, SCRIPT, JITINJECT, true)];
    vec![section(title, rows, ratios)]
}
