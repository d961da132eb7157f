//! Tests of runtime files.

use super::*;

use crate::code::process::ProcessEvent;
use crate::code::profile_index::ProfileIndex;
use crate::code::symbol_only_code::SymbolOnlyFunction;
use crate::load::shared_memory::SharedMemory;
use crate::results::FileKind;
use jitdump::{Address, RuntimeTime};

#[test]
fn ten_missing_dumps_are_listed_and_the_others_counted() {
    let missing: Vec<(Pid, Diagnostic)> = (1..=13)
        .map(|pid| (Pid(pid), Diagnostic::new(Issue::DumpNotFound)))
        .collect();
    for (count, rest) in [(10, None), (11, Some(1)), (13, Some(3))] {
        let mut sources = RuntimeFiles::default();
        sources.add_missing(&missing[..count]);
        let mut expected = vec![(Issue::DumpNotFound, 1); 10];
        expected.extend(rest.map(|rest| (Issue::MoreDumpsMissing, rest)));
        let found = sources.diagnostics.iter().map(|found| (found.issue, found.count));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(sources.unusable.len(), count);
    }
}

#[test]
fn loads_are_copied_to_other_processes_2_097_152_times_and_the_others_counted() {
    let mut index = ProfileIndex::default();
    let start = |pid| ProcessEvent::Exec(Pid(pid), Time(0));
    index.processes = Processes::new((1..=4).map(start).collect());
    let mut code = SymbolOnlyCode::new(1, Machine::X86_64, FileKind::MonoLog);
    for at in 0..1026 {
        let function = SymbolOnlyFunction {
            name: b"function".into(),
            range: AddressRange::new(Address(0x1000 + 16 * at), 16).unwrap(),
            code: None,
        };
        code.load(function, RuntimeTime(0)).unwrap();
    }
    let file = Arc::new(InputFile::open(tempfile::NamedTempFile::new().unwrap().path()).unwrap());
    let mut used = UsedFile::of_process(&file, Pid(1), code);
    // The profile has four of these processes: making all copies would take seconds.
    used.found.pids_before = (1..=2048).map(Pid).collect();
    let mut sources = RuntimeFiles::default();
    let file = sources.used.push(used);
    let (mut own, mut copies) = (0, 0);
    sources.place_events(&index, &SharedMemory::default(), |event| {
        match index.processes.space(event.space).pid {
            Pid(1) => own += 1,
            _ => copies += 1,
        }
    });
    assert_eq!(own, 1026);
    assert_eq!(copies, 1024 * 3);
    assert_eq!(sources.used[file].counts.uncopied, 2);
}
