//! Damage in profiles and jitdumps costs what is damaged, and nothing else.

use jitinject::InjectOptions;
use jitinject::internals::perf::Profile;

use crate::support::damage::damage;
use crate::support::generator::{Plan, Random, generate};
use crate::support::reports::reports;
use crate::support::{capture, inject, scratch, shown, tools};

/// Every run on a damaged profile or dump ends, with an output or with an error.
#[test]
fn damage_of_any_kind_neither_panics_nor_hangs() {
    let mut random = Random::new(1);
    let plan = Plan {
        functions: 40,
        samples: 60,
        places: 20,
        moves: true,
        processes: 2,
        ..Plan::default()
    };
    let unwound = Plan {
        stacks: crate::support::generator::Stacks::Unwound,
        ..plan.clone()
    };
    let mut outcomes = [0, 0];
    for plan in [plan, unwound] {
        let folder = scratch();
        let generated = generate(folder.path(), &plan);
        let dump = folder.path().join("jit-5000.dump");
        let originals = [&generated.profile, &dump].map(|path| (path.clone(), std::fs::read(path).unwrap()));
        for round in 0..300 {
            for (path, original) in &originals {
                std::fs::write(path, original).unwrap();
            }
            let (path, original) = &originals[round % 2];
            let mut damaged = original.clone();
            damage(&mut damaged, &mut random);
            std::fs::write(path, damaged).unwrap();
            let options = InjectOptions {
                all: round % 3 == 0,
                ..InjectOptions::new(&generated.profile, folder.path().join("out.data"))
            };
            outcomes[usize::from(jitinject::inject(&options, &mut ()).is_ok())] += 1;
        }
    }
    assert!(
        outcomes[1] > 300,
        "with most damage there is an output: {outcomes:?}"
    );
}

/// Damage in the middle of a recording costs only the damaged records.
#[test]
fn samples_outside_damage_in_a_profile_keep_their_names() {
    type Damage = fn(&mut [u8]);
    let damages: [(&str, Damage); 3] = [
        ("a header of zeros", |bytes| bytes[..8].fill(0)),
        ("a size doubled", |bytes| {
            let size = u16::from_le_bytes([bytes[6], bytes[7]]) * 2;
            bytes[6..8].copy_from_slice(&size.to_le_bytes());
        }),
        ("noise", |bytes| {
            let mut random = Random::new(7);
            bytes[..4096].fill_with(|| random.below(256) as u8);
        }),
    ];
    for name in ["node22", "java17", "llvm19-jitlink"] {
        let folder = scratch();
        for entry in std::fs::read_dir(capture::folder(name)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
            }
        }
        let input = folder.path().join("perf.data");
        let output = folder.path().join("out.data");
        let sound = std::fs::read(&input).unwrap();
        inject(&input, &output, &[]);
        let expected = shown::stacks(&output);
        let (start, end) = middle(&sound);
        for (what, damage) in damages {
            let mut damaged = sound.clone();
            damage(&mut damaged[start..end]);
            std::fs::write(&input, &damaged).unwrap();
            let said = inject(&input, &output, &[]);
            assert!(
                reports(&said, "JI159", tools::text(&input)),
                "{name}, {what}: {said}"
            );
            let shown = shown::stacks(&output);
            let profile = Profile::parse(&sound).unwrap();
            let base = profile.data_offset as usize;
            // One or many samples are damaged.
            let last = damaged
                .iter()
                .zip(&sound)
                .rposition(|(one, other)| one != other)
                .unwrap();
            let touched = profile.records_in_memory().unwrap().filter(|record| {
                let (from, to) = (base + record.offset as usize, base + record.end() as usize);
                record.kind == 9 && start < to && from <= last
            });
            let touched = touched.count();
            assert_eq!(shown.len(), expected.len() - touched, "{name}, {what}");
            let mut left = expected.iter();
            // The others are the same, in the same order.
            assert!(
                shown.iter().all(|sample| left.any(|other| other == sample)),
                "{name}, {what}"
            );
        }
    }
}

/// Returns where in a file the sample in the middle of its records starts, and where the records end.
fn middle(file: &[u8]) -> (usize, usize) {
    let profile = Profile::parse(file).unwrap();
    let base = profile.data_offset as usize;
    let half = profile.data.len() / 2;
    let mut samples = profile
        .records_in_memory()
        .unwrap()
        .filter(|record| record.kind == 9);
    let sample = samples.find(|record| record.offset >= half).unwrap();
    (base + sample.offset as usize, base + profile.data.len() as usize)
}
