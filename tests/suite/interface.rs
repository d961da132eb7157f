//! The libraries as programs of others see them: what they return and take can be named, and made.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use jitdump::v8::Script;
use jitdump::v8::source_map::SourceMap;
use jitdump::v8::v8_inlining::Scripts;
use jitdump::{Dump, Machine, Placement, Unwinding};
use jitinject::{
    DwarfVersion, InjectOptions, LineOptions, LoadOptions, SamplingOptions, SourceMapOptions, SourceOptions,
    StackSummary, TraceOptions, Unnamed, UnwindOptions, inject,
};
use object::{Object, ObjectSection};

use crate::support::{capture, objects_of, scratch};

fn is_behind_code(unwinding: Unwinding<'_>) -> bool {
    !unwinding.eh_frame.is_empty() && unwinding.placement == Placement::AfterCode(0)
}

#[test]
fn unwinding_tables_of_a_jitdump_can_be_passed_on() {
    let file = fs::read(capture::folder("cpython313-fork").join("jit-23220.dump")).unwrap();
    let dump = Dump::parse(&file, Machine::host()).unwrap();
    let function = dump.events().next().unwrap().function;
    let unwinding = dump.unwinding(function).unwrap();
    assert!(is_behind_code(unwinding));
    let code = dump.range(function).unwrap();
    assert!(unwinding.address(code) >= code.end);
}

#[test]
fn a_source_map_that_cannot_be_read_is_an_error_like_others() {
    let read = || -> Result<SourceMap, Box<dyn Error>> { Ok(SourceMap::parse("{")?) };
    assert_eq!(read().unwrap_err().to_string(), "not a source map in JSON");
}

#[test]
fn dwarf_5_can_be_asked_for_and_counts_can_be_passed_on() {
    fn of_stacks(_: StackSummary, unnamed: Unnamed) -> u64 {
        unnamed.doubtful + unnamed.before_load + unnamed.not_in_dump + unnamed.dump_unusable + unnamed.no_dump
    }
    let folder = scratch();
    let mut options = InjectOptions::new(capture::profile("node20"), folder.path().join("out.data"));
    options.lines.version = DwarfVersion::Five;
    options.unwind = Some(UnwindOptions {
        is_optional: true,
        ..UnwindOptions::default()
    });
    let samples = inject(&options, &mut ()).unwrap().samples;
    assert!(samples.named > 0);
    let unnamed = of_stacks(samples.in_stacks, samples.unnamed);
    assert_eq!(samples.jit, samples.named + unnamed);
    let is_dwarf_5 = |path: &PathBuf| {
        let object = fs::read(path).unwrap();
        let object = object::File::parse(&*object).unwrap();
        let units = object.section_by_name(".debug_info");
        // The version follows the size of the first unit.
        units.is_some_and(|units| units.data().unwrap()[4..6] == [5, 0])
    };
    assert!(objects_of(&options.output).iter().any(is_dwarf_5));
}

/// Of `object` and of `foldhash`, of which others may have another version.
#[test]
fn no_types_of_other_crates_are_needed() {
    assert_eq!(Machine::X86_64.id(), 62);
    let script = Script::scan(&b"function f() {}"[..]).unwrap();
    let scripts: Scripts<'_> = [(&b"a.js"[..], &script)].into_iter().collect();
    assert!(!scripts.is_empty() && scripts.get(b"a.js").is_some() && scripts.get(b"b.js").is_none());
}

/// Whoever makes them with `..Default::default()` need not know which options a later version has.
#[test]
fn all_options_have_defaults() {
    fn has_default<T: Default>() {}
    has_default::<(InjectOptions, LineOptions, UnwindOptions)>();
    has_default::<(LoadOptions, TraceOptions, SamplingOptions)>();
    has_default::<(SourceOptions, SourceMapOptions)>();
}
