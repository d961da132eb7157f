//! Puts names, lines, inlined calls and unwinding back into Linux `perf` profiles of just-in-time compiled
//! code.
//!
//! A profile goes in, the same profile comes out with its JIT code named. One direction, five steps, one
//! folder each:
//!
//! ```text
//! perf.data ──► perf/      records, raw and in file order ────────────────────┐
//! jit-*.dump ─► runtime/   what each runtime wrote ─► code events             │
//! perf-*.map ─►               │                       and names               │
//!                             ▼                                               │
//!                          code/    functions on a time axis;                 │
//!                                   which of them the samples touch           │
//!                             ▼                                               ▼
//!                          elf/     functions ─► ELF objects ──► perf/ writes the new profile
//! ```
//!
//! [`inject::inject`] is the whole way, on one screen. The folders below it are usable by themselves:
//!
//! - [`perf`]: reading and rewriting perf.data;
//! - [`runtime`]: the files that runtimes write: jitdumps and perf maps;
//! - [`code`]: which function lay at an address of a process at a time;
//! - [`elf`]: small ELF files that perf, its unwinders and debuggers find everything in.
//!
//! Codecs take bytes and values and return bytes and values. What to look for, what to write and what to say
//! is decided in [`inject`] and in the program around it. Bytes from a file are never trusted: no length,
//! count or offset is used before it is checked.

pub mod bytes;
pub mod code;
pub mod debug_info;
pub mod elf;
pub mod files;
pub mod inject;
pub mod machine;
pub mod perf;
pub mod range_map;
pub mod runtime;
pub mod summary;
pub mod tally;
pub mod units;
