//! Unwinding of copied stacks (`perf record --call-graph dwarf`): the samples get call chains instead.
//!
//! ```text
//!                 registers and stack of a sample
//!                               ▼
//! [native]: tables of files ─► [stack]: frame by frame ─► [rewrite]: samples with call chains
//! [jit]: tables of runtimes ─►   ├─ [known_address]: rules for addresses of frames
//! [code_without_tables] ─────►   ├─ [frameless]: functions without rules, where they have no frame
//!                                │    └─ [x86_64_code]: their instructions
//!                                └─ [step]: one frame, by its rules or by the frame pointer
//! ```
//!
//! `interpreters` finds the frames that `--fold-interpreter` omits. `made_tables` writes the findings of `frameless` as unwind
//! tables for readers.
//!
//! Readers unwind each stack again, one by one, and most ignore the tables of runtimes. This module unwinds
//! all stacks once, in parallel, after code is loaded and before samples are selected: selection, objects and
//! summary then see ordinary call chains. New samples go to a temporary file, with all other records between
//! them, and the result is indexed again. Its address spaces have the same numbers, so the timeline stays
//! valid. In profiles without times, offsets of records serve as times. They would change, so these profiles
//! are not unwound.
//!
//! The timeline finds the function of a frame, at its address and the time of the sample, or
//! [`crate::frames::native`] finds its file. A caller must be further up the stack and in mapped memory.
//! Memory that the profile marks as not executable has no frames. All threads share everything except the
//! current stack.

mod code_without_tables;
mod frameless;
mod interpreters;
mod jit;
mod known_address;
pub mod made_tables;
mod native;
mod registers;
mod rewrite;
mod stack;
mod step;
mod vdso;
mod x86_64_code;

use std::cmp::Reverse;

use jitdump::internals::format::marker;

use crate::bytes::base_name;
use crate::code::profile_index::IndexedProfile;
use crate::elf::call_frames::RuleRoom;
use crate::files::temp_file::temp_file_error;
use crate::frames::native::files::{NativeFiles, VDSO};
use crate::frames::native::modules::Modules;
use crate::frames::native::symbols::NativeSymbols;
use crate::frames::unwind::code_without_tables::CodeWithoutTables;
use crate::frames::unwind::interpreters::Interpreters;
use crate::frames::unwind::jit::JitTables;
use crate::frames::unwind::native::NativeTables;
use crate::frames::unwind::registers::Target;
use crate::frames::unwind::stack::{Unwinder, UnwoundCounts};
use crate::load::{LoadOptions, Progress, Recording, keep};
use crate::perf::callchain::unwound::UnwoundHeader;
use crate::perf::record::data::ProfileBytes;
use crate::results::diagnostics::issues::{LARGEST_COPIES, RECORD_LARGEST_COPIES, UNWIND_THERE};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::UnwindSummary;

pub use crate::frames::unwind_options::{KeptStacks, UnwindOptions, Unwound};

/// Replaces the copied stacks of a recording by call chains. A recording without copied stacks stays as it is.
pub fn unwind<'a>(
    options: &LoadOptions,
    UnwindOptions {
        kept,
        fold_interpreter,
        is_optional,
    }: UnwindOptions,
    mut recording: Recording<'a>,
    progress: &mut dyn Progress,
) -> Result<(Recording<'a>, Unwound), Diagnostic> {
    let target = match target_of(&recording, is_optional) {
        Ok(target) => target,
        Err(why) => return Ok((recording, Unwound::nothing(why))),
    };
    let (profile, index) = (&recording.profile.profile, &recording.profile.index);
    progress.start("unwinding stacks", index.data_end);
    let (room, files) = (RuleRoom::default(), NativeFiles::new(options));
    let modules = Modules::new(&recording.profile, &[], |_| true);
    let unwinder = Unwinder {
        target,
        timeline: &recording.timeline,
        jit: JitTables::new(&recording.runtime_files.used, &recording.timeline, target, &room),
        modules: &modules,
        native: NativeTables::new(&modules, &files, target, &room),
        without_tables: CodeWithoutTables::new(&modules, &files, target, &room),
        interpreters: fold_interpreter.then(|| Interpreters {
            files: &recording.runtime_files.used,
            symbols: NativeSymbols::new(&modules, &files),
        }),
    };
    let advance = |bytes| progress.advance(bytes);
    let rewritten = rewrite::rewrite(&recording.profile, &unwinder, kept, advance);
    let (records, counts) = rewritten.map_err(temp_file_error)?;
    // Code was placed in the address spaces of the records as they were read before.
    recording.data.check_input()?;
    let lacking = Lacking::of(&counts, &modules);
    if is_optional && !lacking.is_tolerable(counts.frames) {
        let left = lacking.report(Issue::StacksLeftToReaders);
        drop(unwinder);
        return Ok((recording, Unwound::nothing(left)));
    }
    let unwound = Unwound {
        summary: Some(UnwindSummary {
            stacks: counts.stacks,
            frames: counts.frames,
            to_start: counts.to_start,
            cut: counts.cut,
        }),
        diagnostics: report_missing(&counts, &unwinder, lacking, profile.attrs.largest_stack_copy()),
    };
    drop(unwinder);
    let header = UnwoundHeader::of(profile, kept);
    let records = keep(&recording.data.unwound, records);
    recording.profile = IndexedProfile::new(
        header.profile(profile.clone(), ProfileBytes::of_file(records)),
        marker::dump_path,
    );
    Ok((recording, unwound))
}

/// Returns the machine whose stacks are to be unwound. If they cannot be, fails with what to report, if anything.
fn target_of(recording: &Recording<'_>, is_optional: bool) -> Result<Target, Option<Diagnostic>> {
    let attrs = &recording.profile.profile.attrs;
    if !attrs.all().iter().any(|attr| attr.copies_stacks()) {
        return Err((!is_optional).then(|| Diagnostic::new(Issue::NoStacksToUnwind)));
    }
    let Some(target) = Target::of(recording.machine()) else {
        return Err(Some(Diagnostic::new(Issue::MachineNotUnwound)));
    };
    if attrs.has_times() {
        Ok(target)
    } else {
        Err(Some(Diagnostic::new(Issue::StacksWithoutTimes)))
    }
}

/// Size of stack copies that is enough for most programs, in bytes.
const LARGE_COPY: u32 = 32_768;

/// Largest possible size of stack copies, in bytes.
const LARGEST_COPY: u32 = 65_528;

/// Share of stacks that may be cut off without a warning, as the reciprocal.
const RARELY_CUT: u64 = 20;

/// Share of the frames that may be in files that this machine lacks, as the reciprocal, so that stacks are still unwound if that
/// is optional.
const TOLERATED: u64 = 100;

/// Modules that this machine lacks.
struct Lacking {
    /// Their paths, with the number of frames in each.
    modules: Vec<(String, u64)>,
    /// Number of frames in those that are files. The code that the kernel maps into processes is in none.
    in_files: u64,
}

impl Lacking {
    /// Lists the modules without a file, those with most frames first.
    fn of(counts: &UnwoundCounts, modules: &Modules) -> Self {
        let lacking = counts.without_file.iter();
        let mut lacking: Vec<(String, u64)> = lacking
            .map(|(&module, &frames)| (modules.path(module), frames))
            .collect();
        lacking.sort_by(|one, other| (Reverse(one.1), &one.0).cmp(&(Reverse(other.1), &other.0)));
        let in_files = lacking.iter().filter(|(path, _)| path.as_bytes() != VDSO);
        Self {
            in_files: in_files.map(|(_, frames)| frames).sum(),
            modules: lacking,
        }
    }

    /// Whether stacks with so many frames are unwound without them if that is optional.
    fn is_tolerable(&self, frames: u64) -> bool {
        self.in_files <= frames / TOLERATED
    }

    /// Reports them, those with most frames first; `None` if there are none.
    fn report(&self, issue: Issue) -> Option<Diagnostic> {
        /// Number of modules that are listed.
        const LISTED: usize = 5;
        let listed = self.modules.iter().take(LISTED).map(|(path, frames)| {
            let name = String::from_utf8_lossy(base_name(path.as_bytes()));
            format!("{name} ({frames})")
        });
        let mut list = listed.collect::<Vec<_>>().join(", ");
        if self.modules.len() > LISTED {
            list.push_str(", and others");
        }
        let frames = self.modules.iter().map(|(_, frames)| frames).sum();
        let mut lacking = Diagnostic::new(issue).times(frames).with("modules", list);
        if self.in_files == 0 {
            lacking = lacking.with_remedy(UNWIND_THERE);
        }
        (!self.modules.is_empty()).then_some(lacking)
    }
}

/// Reports the stacks that end where their copies do; `None` if there are none. `copy_size` is the size of the copies in bytes.
fn report_cut(counts: &UnwoundCounts, copy_size: u32) -> Option<Diagnostic> {
    if counts.cut == 0 {
        return None;
    }
    let cut = Diagnostic::new(Issue::StacksCut).times(counts.cut);
    let cut = cut.with("stacks", counts.stacks);
    let cut = match copy_size {
        ..LARGE_COPY => cut,
        LARGE_COPY..LARGEST_COPY => cut.with_remedy(RECORD_LARGEST_COPIES),
        LARGEST_COPY.. => cut.with_remedy(LARGEST_COPIES),
    };
    let is_large_part = counts.cut > counts.stacks / RARELY_CUT;
    Some(if is_large_part && copy_size < LARGEST_COPY {
        cut.as_warning()
    } else {
        cut
    })
}

/// Reports what is missing. `copy_size` is the size of stack copies in bytes.
fn report_missing(
    counts: &UnwoundCounts,
    unwinder: &Unwinder<'_>,
    lacking: Lacking,
    copy_size: u32,
) -> Vec<Diagnostic> {
    let mut all: Vec<Diagnostic> = unwinder.native.refused().into_iter().collect();
    let interpreters = unwinder.interpreters.as_ref();
    let of_interpreters = interpreters.and_then(|interpreters| interpreters.symbols.refused());
    all.extend(larger(of_interpreters, unwinder.without_tables.refused()));
    all.extend(lacking.report(Issue::ModulesNotFound));
    all.extend(report_cut(counts, copy_size));
    if counts.narrow > 0 {
        all.push(Diagnostic::new(Issue::NarrowStacks).times(counts.narrow));
    }
    all
}

/// Returns the report with the higher count: both may be of the same files.
fn larger(one: Option<Diagnostic>, other: Option<Diagnostic>) -> Option<Diagnostic> {
    let both = [one, other].into_iter().flatten();
    both.max_by_key(|refused| refused.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::diagnostics::Severity;

    fn cut(cut: u64, stacks: u64, copy_size: u32) -> Diagnostic {
        let counts = UnwoundCounts {
            cut,
            stacks,
            ..UnwoundCounts::default()
        };
        report_cut(&counts, copy_size).unwrap()
    }

    #[test]
    fn larger_copies_are_recommended_as_far_as_there_are_any() {
        for (copy_size, remedy, severity) in [
            (32_767, "dwarf,32768", Severity::Warning),
            (32_768, "dwarf,65528", Severity::Warning),
            (65_527, "dwarf,65528", Severity::Warning),
            (65_528, "largest possible", Severity::Note),
        ] {
            let cut = cut(10, 10, copy_size);
            assert!(cut.help().contains(remedy), "{copy_size}: {}", cut.help());
            assert_eq!(cut.severity, severity, "{copy_size}");
        }
    }

    #[test]
    fn a_twentieth_of_the_stacks_may_be_cut_without_a_warning() {
        assert_eq!(cut(5, 100, 8192).severity, Severity::Note);
        assert_eq!(cut(6, 100, 8192).severity, Severity::Warning);
        assert!(report_cut(&UnwoundCounts::default(), 8192).is_none());
    }

    #[test]
    fn of_two_reports_that_of_more_files_is_printed() {
        let refused = |count| Some(Diagnostic::new(Issue::ModulesTooLarge).times(count));
        for (one, other, count) in [
            (None, refused(2), 2),
            (refused(1), refused(5), 5),
            (refused(5), refused(1), 5),
            (refused(3), None, 3),
        ] {
            assert_eq!(larger(one, other).unwrap().count, count);
        }
        assert!(larger(None, None).is_none());
    }

    fn lacking(modules: u64, in_files: u64) -> Lacking {
        let module = |frames| (format!("/lib/lib{frames}.so"), frames);
        Lacking {
            modules: (1..=modules).map(module).collect(),
            in_files,
        }
    }

    #[test]
    fn a_hundredth_of_the_frames_may_be_in_files_that_are_not_here() {
        assert!(lacking(0, 2).is_tolerable(200));
        assert!(!lacking(0, 2).is_tolerable(199));
        assert!(!lacking(0, 3).is_tolerable(200));
    }

    #[test]
    fn five_lacking_modules_are_listed() {
        let list = |modules| {
            let report = lacking(modules, 0).report(Issue::ModulesNotFound).unwrap();
            report.field("modules").unwrap().to_owned()
        };
        let five = "lib1.so (1), lib2.so (2), lib3.so (3), lib4.so (4), lib5.so (5)";
        assert_eq!(list(5), five);
        assert_eq!(list(6), format!("{five}, and others"));
        assert!(lacking(0, 0).report(Issue::ModulesNotFound).is_none());
        // No option names the kernel's code.
        for (in_files, has_option) in [(0, false), (1, true)] {
            let report = lacking(1, in_files).report(Issue::ModulesNotFound).unwrap();
            assert_eq!(report.help().contains("--symfs"), has_option);
        }
    }
}
