//! Adds function names, source lines, inlined calls and unwinding tables to Linux `perf` profiles of
//! JIT-compiled code.
//!
//! jitinject reads a profile and writes the same profile with its JIT code named. Data flows in one
//! direction:
//!
//! ```text
//! perf.data ──► perf/      records, raw and in file order ────────────────────┐
//! jit-*.dump ─► runtime/   what each runtime wrote ─► code events             │
//! perf-*.map ─►               │                       and names               │
//!                             ▼                                               │
//!                          code/    functions on a time axis;                 │
//!                                   which of them have samples                │
//!                             ▼                                               ▼
//!                          elf/     functions ─► ELF objects ──► perf/ writes the new profile
//! ```
//!
//! [`inject::inject`] runs all steps. [`record`] runs perf and a program first. [`timeline::timeline`] renders the code over time as a page.
//! These modules can be used on their own:
//!
//! - [`perf`]: reads and rewrites perf.data;
//! - [`runtime`]: reads the files that runtimes write: jitdumps, perf maps, Mono profiler logs, XRay traces;
//! - [`code`]: finds the function at an address of a process at a given time;
//! - [`elf`]: writes small ELF files for perf, its unwinders and debuggers;
//! - [`symbolize`]: names addresses of a running process, while its jitdump grows.
//!
//! [`dump`] prints the contents of a runtime's file, for authors of runtimes.
//! [`check`] validates the files that runtimes write.
//!
//! Codecs take and return bytes and values. [`inject`] and the program around it decide which files to read,
//! what to write and what to print. Input is never trusted: every length, count and offset is checked before
//! use.
//!
//! # Names for a profile
//!
//! ```no_run
//! use jitinject::inject::{InjectOptions, inject};
//!
//! let options = InjectOptions::new("perf.data", "perf.jit.data");
//! let summary = inject(&options, &mut ())?;
//! println!("{} of {} samples in JIT code have a name", summary.samples.named, summary.samples.jit);
//! # Ok::<(), jitinject::diagnostics::Diagnostic>(())
//! ```
//!
//! # Reading a jitdump
//!
//! ```
//! use jitinject::bytes::ByteOrder;
//! use jitinject::machine::Machine;
//! use jitinject::runtime::jitdump::Dump;
//!
//! # fn word(out: &mut Vec<u8>, value: u32) { ByteOrder::Little.write_u32(out, value) }
//! # fn long(out: &mut Vec<u8>, value: u64) { ByteOrder::Little.write_u64(out, value) }
//! # let mut file = Vec::new();
//! # for value in [0x4a69_5444, 1, 40, 62, 0, 77] { word(&mut file, value) } // magic .. process
//! # for value in [0, 0] { long(&mut file, value) } // time, flags
//! # let (name, code) = (b"add\0", [0x8d, 0x04, 0x37, 0xc3]);
//! # for value in [0, 56 + 8] { word(&mut file, value) } // JIT_CODE_LOAD, size
//! # long(&mut file, 1_000); // time
//! # for value in [77, 77] { word(&mut file, value) } // process, thread
//! # for value in [0x1000, 0x1000, code.len() as u64, 0] { long(&mut file, value) } // vma, address, size, index
//! # file.extend_from_slice(name);
//! # file.extend_from_slice(&code);
//! // `file` holds the bytes of a jitdump; `files::InputFile::open` reads one.
//! let dump = Dump::parse(&file, Machine::host())?;
//! for event in dump.events() {
//!     let function = dump.function(event.function).expect("an event is about a function");
//!     assert_eq!(function.name, b"add");
//!     assert_eq!(function.range.start.0, 0x1000);
//!     assert_eq!(event.time.0, 1_000);
//! }
//! assert!(dump.faults().is_empty());
//! # Ok::<(), jitinject::diagnostics::Diagnostic>(())
//! ```
//!
//! # More
//!
//! The programs in `examples/` read a jitdump (`read_jitdump`), print the function and inlined calls at an address at a
//! given time (`who_was_there`) or the hottest functions of a running process (`live_symbolizer`), make an ELF object
//! (`make_elf`), and rewrite a profile (`rewrite_profile`).
//!
//! # Features
//!
//! - none: [`symbolize`], [`runtime::jitdump`] and [`runtime::perf_map`], with 8 crates;
//! - `mono`, `xray`: [`runtime::mono`], [`runtime::xray`];
//! - `inject`: profiles, and all other modules except:
//! - `timeline`: [`timeline`];
//! - `cli` (default): the program.
//!
//! # Versions
//!
//! From 1.0 on, [`symbolize`] changes only in major versions. Enums of errors and faults may grow in any version. The
//! minimum supported Rust version is `rust-version` in `Cargo.toml`; raising it takes a minor version.

// Tests read and write files of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods))]
// Parts of `load` are for `timeline` alone.
#![cfg_attr(not(feature = "timeline"), allow(dead_code, unused_imports))]

mod attribution;
pub mod check;
pub mod code;
pub mod compare;
pub mod diagnostics;
pub mod dump;
pub mod elf;
pub mod files;
pub mod inject;
mod json;
pub mod load;
pub mod name_style;
mod native;
pub mod perf;
pub mod record;
pub mod runtime;
pub mod runtimes;
pub mod source_files;
pub mod summary;
pub mod threads;
#[cfg(feature = "timeline")]
pub mod timeline;
mod trace;
mod unwind;

pub use jitdump::internals::{bytes, collections, machine, script, units};
pub use jitdump::{debug_info, symbolize};
