//! Adds function names, source lines, inlined calls and unwinding tables to Linux `perf` profiles of
//! JIT-compiled code.
//!
//! Like the program `jitinject`, [`inject()`] reads a profile and the logs of its runtimes, and writes the same profile with its
//! JIT code named, and ELF objects with that code.
//!
//! ```no_run
//! use jitinject::{InjectOptions, inject};
//!
//! let options = InjectOptions::new("perf.data", "perf.jit.data");
//! let summary = inject(&options, &mut ())?;
//! println!("{} of {} samples in JIT code have a name", summary.samples.named, summary.samples.jit);
//! # Ok::<(), jitinject::Diagnostic>(())
//! ```
//!
//! To read jitdumps and perf maps, or to name addresses of a running process, use the crate [`jitdump`].
//!
//! # Features
//!
//! - `cli` (default): the program, with all of these;
//! - `check` with `dump`, `compare`, `export`, `record`, `report` and `timeline`: the commands of these names;
//! - `samples`: all samples by function and stack, for [`InjectOptions::summary`];
//! - `unwind`: unwinding of copied stacks, and unwinding tables for functions without one;
//! - `scripts`: inlined calls of V8's functions, and source maps;
//! - `mono`, `xray`: logs of Mono's profiler, and XRay traces;
//! - `native`: executables and libraries, which `samples`, `unwind` and `xray` read.
//!
//! They add nothing to the interface above. Input and options that need a feature which is left out are reported.
//!
//! # Versions
//!
//! From 1.0 on, the interface changes only in major versions. [`Issue`] may grow in any version, options in minor versions: write
//! `..Default::default()` where you make a struct of options. The minimum supported Rust version is `rust-version` in
//! `Cargo.toml`; raising it takes a minor version.

// Tests read and write files of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods))]
mod code;
mod elf;
mod files;
mod frames;
mod inject;
mod load;
mod perf;
#[cfg(feature = "record")]
mod record;
mod results;
mod runtimes;
mod threads;
mod tools;
mod traces;

// Shared with the crate jitdump.
use jitdump::internals::{bytes, collections, units};

pub use elf::dwarf::Version as DwarfVersion;
pub use frames::source_files::{SourceMapOptions, SourceOptions};
pub use frames::unwind::{KeptStacks, UnwindOptions};
pub use inject::{InjectOptions, Layout, LineOptions, Tiers, inject};
pub use load::{InputKind, LoadOptions, MonoEvent, Progress, SamplingOptions, TraceOptions, XrayEvent};
pub use results::diagnostics::{Diagnostic, Issue, Severity};
pub use results::name_style::NameStyle;
pub use results::summary::{
    CacheSummary, CodeFileSummary, FunctionSummary, PerfMapSummary, SampleSummary, StackSummary, Summary,
    SymbolSummary, TierSummary, TraceSummary, Unnamed, UnwindSummary,
};

/// For the program, tests, fuzz targets and benchmarks. It changes in any version.
#[doc(hidden)]
pub mod internals {
    macro_rules! share {
        ($($module:ident)+) => {
            $(pub mod $module {
                pub use crate::$module::*;
            })+
        };
    }

    share! { code elf files frames inject load perf results runtimes threads traces }

    #[cfg(feature = "record")]
    share! { record }

    // Without their features, it has nothing.
    #[cfg(any(
        feature = "check",
        feature = "compare",
        feature = "export",
        feature = "report",
        feature = "timeline"
    ))]
    share! { tools }
}
