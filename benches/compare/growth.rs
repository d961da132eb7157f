//! How time grows with the input.

use std::fs;

use crate::cases::{Bench, FUNCTION, IMAGE, SLOW_RUNS, Scale, number, section, touched_little};
use crate::inputs::Input;
use crate::table::{Row, Section};

/// Compares profiles with more and more functions.
pub fn of_functions(bench: &Bench<'_>) -> Vec<Section> {
    let mut rows = Vec::new();
    for functions in [10_000, 100_000, 1_000_000].map(|functions| bench.scaled(functions)) {
        let input = Input {
            functions,
            samples: bench.scaled(100_000),
            debug_info: 1,
            ..Input::default()
        };
        let name = number(functions);
        let case = bench.case_in(&name, &input);
        // Any file system is slow with a million files.
        let is_large = functions > 100_000 && bench.options.scale != Scale::Huge;
        let runs = if functions > 100_000 {
            SLOW_RUNS
        } else {
            bench.runs_of_many_files()
        };
        let mut contestants = vec![bench.jitinject(&case, "image", IMAGE, runs)];
        if !is_large {
            contestants.push(bench.jitinject(&case, "function", FUNCTION, runs));
        }
        let found = bench.run(contestants);
        rows.extend(found.into_iter().map(|row| Row {
            program: format!("{name} functions: {}", row.program),
            ..row
        }));
        bench.folders.discard(&bench.path(&name));
    }
    vec![section("Growth with functions, with lines".into(), rows, [])]
}

/// Compares profiles with more and more samples.
pub fn of_samples(bench: &Bench<'_>) -> Vec<Section> {
    let mut sizes = vec![1_000_000, 10_000_000];
    if bench.options.scale == Scale::Huge {
        sizes.push(50_000_000);
    }
    let mut rows = Vec::new();
    for samples in sizes {
        let input = touched_little(bench, samples);
        let name = number(input.samples);
        let case = bench.case_in(&name, &input);
        bench.prepare(&case, "kept", &[]);
        let found = bench.run(vec![
            bench.jitinject(&case, "selection", &[], SLOW_RUNS),
            bench.copy(&case, "kept", SLOW_RUNS),
        ]);
        let size = fs::metadata(&case.profile).unwrap().len();
        rows.extend(found.into_iter().map(|row| Row {
            program: format!("{name} samples ({} MiB): {}", size >> 20, row.program),
            ..row
        }));
        for name in [&name, "kept", "selection", "copies"] {
            bench.folders.discard(&bench.path(name));
        }
    }
    vec![section("Growth with samples".into(), rows, [])]
}
