//! Reads the files that JIT runtimes write for profilers: perf maps, and jitdumps also while they grow.
//!
//! | to | use |
//! | --- | --- |
//! | read a jitdump: functions, code, lines, inlined calls, unwinding tables | [`Dump`] |
//! | read a perf map | [`PerfMap::parse`] |
//! | name addresses of a running process by its jitdumps | [`symbolize`] |
//! | take names apart: compiler tiers, source positions | [`names`] |
//! | keep code at addresses over time | [`history`] |
//!
//! Input is never trusted: every length, count and offset is checked before use, damaged records are skipped and counted as
//! a [`Fault`], and nothing panics.
//!
//! # Example
//!
//! ```
//! use jitdump::{ByteOrder, Dump, Machine};
//!
//! # fn word(out: &mut Vec<u8>, value: u32) { out.extend(value.to_le_bytes()) }
//! # fn long(out: &mut Vec<u8>, value: u64) { out.extend(value.to_le_bytes()) }
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
//! // `file` holds the bytes of a jitdump.
//! let dump = Dump::parse(&file, Machine::host())?;
//! for event in dump.events() {
//!     let function = dump.function(event.function).expect("an event is about a function");
//!     assert_eq!(function.name, b"add");
//!     assert_eq!(function.range.start.0, 0x1000);
//!     assert_eq!(event.time.0, 1_000);
//! }
//! assert!(dump.faults().is_empty());
//! # Ok::<(), jitdump::Error>(())
//! ```
//!
//! # Features
//!
//! `v8`: the functions of JavaScript source text, V8's inlined calls, and source maps. Without it, the crate has eight
//! dependencies.
//!
//! # Versions
//!
//! From 1.0 on, the interface changes only in major versions. Enums of errors and faults may grow in any version. The
//! minimum supported Rust version is `rust-version` in `Cargo.toml`; raising it takes a minor version.

// Tests read and write files of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod bytes;
mod collections;
pub mod debug_info;
mod error;
mod event;
mod fault;
mod files;
mod format;
pub mod history;
mod machine;
pub mod names;
mod perf_map;
pub mod symbolize;
mod units;
#[cfg(feature = "v8")]
pub mod v8;

pub use bytes::{ByteOrder, RandomAccess, printable};
pub use collections::tally::{FaultCount, Tally};
pub use error::{Error, ErrorKind};
pub use event::{Change, CodeEvent, RuntimeTime};
pub use fault::Fault;
pub use format::{Dump, Function, FunctionSources, Header, Index, Placement, Unwinding};
pub use machine::Machine;
pub use perf_map::{PerfMap, PerfMapSymbol};
pub use units::{Address, AddressRange, Time};

/// What the program jitinject shares with this crate. It changes in any version.
#[doc(hidden)]
pub mod internals {
    macro_rules! share {
        ($($module:ident)+) => {
            $(pub mod $module {
                pub use crate::$module::*;
            })+
        };
    }

    share! { bytes collections files format machine perf_map units }
}
