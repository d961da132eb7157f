//! The stream of samples, and the tables that they refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use jitdump::ByteOrder;
use jitinject::internals::frames::stream::{Kind, Sample, StreamOptions, Tables, read, read_then};
use jitinject::{InjectOptions, LoadOptions, inject};
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::{ProfileWriter, field};
use crate::support::recording::PID;
use crate::support::{capture, scratch, tools};

/// Address of the function of a made recording.
const CODE: u64 = 0x4000_0000;

/// Reads a capture with the files beside it.
fn samples_of(name: &str) -> (Vec<Sample>, Tables) {
    let options = StreamOptions {
        load: load(name),
        ..StreamOptions::default()
    };
    let mut samples = Vec::new();
    let tables = read(&options, &mut |sample| samples.push(*sample), &mut ()).unwrap();
    (samples, tables)
}

fn load(name: &str) -> LoadOptions {
    LoadOptions {
        input: capture::profile(name),
        jitdumps: vec![capture::folder(name)],
        ..LoadOptions::default()
    }
}

/// Own and total samples of the symbols of JIT code, as the summary counts them.
fn counts_of_summary(name: &str) -> BTreeMap<String, (u64, u64)> {
    let folder = scratch();
    let mut options = InjectOptions::new(capture::profile(name), folder.path().join("out.data"));
    options.load = load(name);
    options.summary = Some(folder.path().join("summary.json"));
    inject(&options, &mut ()).unwrap();
    let summary: Value = serde_json::from_slice(&fs::read(options.summary.unwrap()).unwrap()).unwrap();
    let mut found = BTreeMap::new();
    for function in summary["profile"]["functions"].as_array().unwrap() {
        let sum = |counts: &Value| {
            let counts = counts.as_array().unwrap().iter();
            counts.map(|count| count.as_u64().unwrap()).sum::<u64>()
        };
        if function["kind"] == "jit" && function["size"].is_u64() {
            let name = function["name"].as_str().unwrap().to_owned();
            let (own, total): &mut (u64, u64) = found.entry(name).or_default();
            *own += sum(&function["self"]);
            *total += sum(&function["total"]);
        }
    }
    found
}

#[test]
fn symbols_have_the_samples_that_the_summary_counts() {
    for name in ["node20", "node22", "php82", "mono-map", "node20-multievent"] {
        let (samples, tables) = samples_of(name);
        let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for sample in &samples {
            let of_jit = tables.frames(sample.stack).map(|frame| {
                let symbol = frame.symbol.filter(|_| frame.module.is_none());
                symbol.map(|symbol| &tables.symbols[symbol].name)
            });
            let names: Vec<Option<&String>> = of_jit.collect();
            if let Some(Some(leaf)) = names.first() {
                found.entry((*leaf).clone()).or_default().0 += 1;
            }
            for name in names.into_iter().flatten().collect::<BTreeSet<_>>() {
                found.entry(name.clone()).or_default().1 += 1;
            }
        }
        let expected = counts_of_summary(name);
        assert!(!expected.is_empty(), "{name}");
        // The summary has the own samples of inlined functions in their rows.
        assert!(found.keys().eq(expected.keys()), "{name}");
        for (function, (own, total)) in expected {
            let (found_own, found_total) = found[&function];
            assert_eq!(found_total, total, "{name} {function}");
            assert!(found_own >= own, "{name} {function}");
        }
        assert_eq!(tables.losses.samples, samples.len() as u64, "{name}");
    }
}

#[test]
fn inlined_calls_are_functions_with_lines() {
    let (samples, tables) = samples_of("node20-inlined");
    let mut inlined = BTreeSet::new();
    for sample in &samples {
        for call in tables.calls(sample.stack) {
            let function = &tables.functions[call.line.function];
            // Libraries of this machine may have some, too.
            if call.inline_depth > 0 && tables.frames[call.frame].kind == Kind::Language {
                inlined.insert((function.name.clone(), function.line, call.line.line > 0));
            }
        }
    }
    assert!(!inlined.is_empty());
    assert!(
        inlined.iter().any(|(_, line, has_line)| *line > 0 && *has_line),
        "{inlined:?}"
    );
}

#[test]
fn samples_have_threads_times_and_stacks() {
    let (samples, tables) = samples_of("node20");
    assert!(
        samples
            .iter()
            .all(|sample| sample.time.is_some() && sample.stack.is_some())
    );
    assert!(
        tables.threads.iter().any(|thread| thread.name() == "node"),
        "{:?}",
        tables.threads
    );
    let events: u64 = tables.events.iter().map(|event| event.samples).sum();
    assert_eq!(events, samples.len() as u64);
    for (index, stack) in tables.stacks.enumerate() {
        assert!(stack.caller.is_none_or(|caller| caller < index));
    }
}

/// Writes a dump with one function, and a profile with what `fill` adds; returns how to read them.
fn made(folder: &Path, code: &[u8], fill: impl FnOnce(&mut ProfileWriter)) -> StreamOptions {
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    dump.load(1000, CODE, 0, b"function", code);
    let path = folder.join(format!("jit-{PID}.dump"));
    fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    fill(&mut profile);
    let input = folder.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    StreamOptions {
        load: LoadOptions {
            input,
            ..LoadOptions::default()
        },
        ..StreamOptions::default()
    }
}

#[test]
fn machine_code_of_a_function_is_its_first_mebibyte() {
    for size in [1 << 20, (1 << 20) + 1] {
        let folder = scratch();
        let sample = |profile: &mut ProfileWriter| profile.sample(PID, 2000, &[CODE], None);
        let options = made(folder.path(), &vec![0x90; size], sample);
        let code = read_then(&options, &mut |_| (), &mut (), |namer| {
            let (symbol, _) = namer.tables.symbols.enumerate().next().unwrap();
            Ok(namer.machine_code(symbol).unwrap().bytes)
        });
        assert_eq!(code.unwrap().len(), 1 << 20, "{size}");
    }
}

#[test]
fn threads_have_all_their_names() {
    let folder = scratch();
    let options = made(folder.path(), &[0x90], |profile| {
        for at in 0..100 {
            profile.comm(PID, &format!("name{}", at / 2), false, 1001 + at);
        }
        profile.comm(PID, &"long".repeat(64), false, 1200);
        profile.sample(PID, 2000, &[CODE], None);
    });
    let tables = read(&options, &mut |_| (), &mut ()).unwrap();
    let thread = &tables.threads.rows()[0];
    let names: Vec<&str> = thread.names.iter().map(|(_, name)| &**name).collect();
    let expected: Vec<String> = (0..50).map(|at| format!("name{at}")).collect();
    assert_eq!(names[..50], expected);
    // The kernel's have 15 bytes.
    assert_eq!(names[50..], [&"long".repeat(64)[..255]]);
    assert_eq!(thread.process_name.len(), 255);
    let cut = tables
        .diagnostics
        .iter()
        .find(|found| found.issue.id() == "JI288");
    assert_eq!(cut.unwrap().count, 1);
}

#[test]
fn stacks_of_127_addresses_are_as_large_as_the_kernel_records_them() {
    for (addresses, cut) in [(126, 0), (127, 1)] {
        let folder = scratch();
        let options = made(folder.path(), &[0x90; 16], |profile| {
            profile.sample(PID, 2000, &vec![CODE + 1; addresses], None);
        });
        let tables = read(&options, &mut |_| (), &mut ()).unwrap();
        assert_eq!(tables.losses.cut, cut, "{addresses}");
    }
}

/// The kernel records the address of an interrupted instruction before the addresses that calls return to. The samples have the
/// outer addresses in common.
#[test]
fn interrupted_code_has_the_address_of_its_instruction() {
    const KERNEL_CODE: u64 = 0xffff_ffff_8100_0000;
    let [in_kernel, in_user] = [-128i64 as u64, -512i64 as u64];
    let folder = scratch();
    let options = made(folder.path(), &[0x90; 16], |profile| {
        for (time, fault) in [(2000, CODE + 4), (2002, CODE)] {
            profile.sample(PID, time, &[CODE + 8, CODE + 4, CODE + 12], None);
            let chain = [in_kernel, KERNEL_CODE, in_user, fault, CODE + 12];
            profile.kernel_sample(PID, time + 1, &chain);
        }
    });
    let mut stacks = Vec::new();
    let tables = read(&options, &mut |sample| stacks.push(sample.stack), &mut ()).unwrap();
    let addresses = |stack| tables.frames(stack).map(|frame| frame.address).collect();
    let found: Vec<Vec<u64>> = stacks.into_iter().map(addresses).collect();
    let running = [CODE + 8, CODE + 3, CODE + 11];
    let fault = |at| [KERNEL_CODE, at, CODE + 11];
    assert_eq!(found, [running, fault(CODE + 4), running, fault(CODE)]);
}

/// A precise event is sampled at the instruction that caused it; its call chain starts where the interrupt came.
#[test]
fn a_call_chain_that_starts_elsewhere_in_the_sampled_function_has_it_once() {
    const UNMAPPED: u64 = 0x9000_0000;
    let folder = scratch();
    let options = made(folder.path(), &[0x90; 16], |profile| {
        for (time, start) in [(2000, CODE + 6), (2001, CODE + 6), (2002, UNMAPPED)] {
            profile.precise_sample(PID, time, CODE + 4, &[start, CODE + 12], None);
        }
    });
    let mut stacks = Vec::new();
    let tables = read(&options, &mut |sample| stacks.push(sample.stack), &mut ()).unwrap();
    let addresses = |stack| tables.frames(stack).map(|frame| frame.address).collect();
    let found: Vec<Vec<u64>> = stacks.into_iter().map(addresses).collect();
    let once = vec![CODE + 4, CODE + 11];
    assert_eq!(found, [once.clone(), once, vec![CODE + 4, UNMAPPED, CODE + 11]]);
    let inject_options = InjectOptions {
        load: options.load.clone(),
        ..InjectOptions::new(options.load.input.clone(), folder.path().join("out.data"))
    };
    let summary = inject(&inject_options, &mut ()).unwrap();
    assert_eq!(summary.samples.in_stacks.frames, 6);
}

/// perf opens `cycles:P` for both types of cores, and lists the slower ones first.
#[test]
fn samples_of_cores_of_both_types_count_for_one_event() {
    const EVENT_DESC: u32 = 12;
    let folder = scratch();
    let mut options = made(folder.path(), &[0x90; 16], |profile| {
        profile.sample_type |= field::IDENTIFIER;
        profile.ids = vec![11, 12];
        let dump = folder.path().join(format!("jit-{PID}.dump"));
        profile.records.clear();
        profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
        let endian = profile.endian;
        let (attr, mut names) = (profile.attr(), Vec::new());
        endian.write_u32(&mut names, 2);
        endian.write_u32(&mut names, attr.len() as u32);
        for name in ["cpu_atom/cycles/P", "cpu_core/cycles/P"] {
            names.extend_from_slice(&attr);
            endian.write_u32(&mut names, 0);
            endian.write_u32(&mut names, 64);
            names.extend_from_slice(name.as_bytes());
            names.resize(names.len() + 64 - name.len(), 0);
        }
        profile.features.push((EVENT_DESC, names));
        profile.sample(PID, 2000, &[CODE], None);
        profile.ids.reverse();
        for time in 2001..2004 {
            profile.sample(PID, time, &[CODE], None);
        }
        profile.ids.reverse();
    });
    let read = |options: &StreamOptions| {
        let mut events = Vec::new();
        let tables = read(options, &mut |sample| events.push(sample.event), &mut ()).unwrap();
        let sampled = tables.events.into_iter().filter(|event| event.samples > 0);
        let sampled: Vec<(String, u64)> = sampled.map(|event| (event.name, event.samples)).collect();
        (events, sampled)
    };
    let both = ("cycles:P".to_owned(), 4);
    assert_eq!(read(&options), (vec![0; 4], vec![both.clone()]));
    options.filter.event = Some(both.0.clone());
    assert_eq!(read(&options), (vec![0; 4], vec![both]));
    let core = "cpu_core/cycles/P".to_owned();
    options.filter.event = Some(core.clone());
    assert_eq!(read(&options), (vec![1; 3], vec![(core, 3)]));
}
