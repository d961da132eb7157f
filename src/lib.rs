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
//! [`inject::inject`] is the whole way, on one screen; [`timeline::timeline`] shows the code on its time axis as a page.
//! The folders below them are usable by themselves:
//!
//! - [`perf`]: reading and rewriting perf.data;
//! - [`runtime`]: the files that runtimes write: jitdumps, perf maps, logs of Mono's profiler, traces of XRay;
//! - [`code`]: which function lay at an address of a process at a time;
//! - [`elf`]: small ELF files that perf, its unwinders and debuggers find everything in.
//!
//! [`dump`] tells what is in a runtime's file, piece by piece, for those who write one.
//! [`check`] tells what is wrong with the files that runtimes write.
//!
//! Codecs take bytes and values and return bytes and values. What to look for, what to write and what to say
//! is decided in [`inject`] and in the program around it. Bytes from a file are never trusted: no length,
//! count or offset is used before it is checked.
//!
//! # Names for a profile
//!
//! ```no_run
//! use jitinject::inject::{Options, inject};
//!
//! let options = Options {
//!     input: "perf.data".into(),
//!     output: "perf.jit.data".into(),
//!     ..Options::default()
//! };
//! let summary = inject(&options, &mut ())?;
//! println!("{} of {} samples in JIT code have a name", summary.samples.named, summary.samples.jit);
//! # Ok::<(), jitinject::inject::Error>(())
//! ```
//!
//! # Reading a jitdump
//!
//! ```
//! use jitinject::bytes::ByteOrder;
//! use jitinject::machine::Machine;
//! use jitinject::runtime::jitdump::Dump;
//!
//! # fn word(out: &mut Vec<u8>, value: u32) { ByteOrder::Little.put_u32(out, value) }
//! # fn long(out: &mut Vec<u8>, value: u64) { ByteOrder::Little.put_u64(out, value) }
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
//! // `file` holds the bytes of a jitdump; `files::MappedFile::open` reads one.
//! let dump = Dump::parse(&file, Machine::host())?;
//! for event in dump.events() {
//!     let function = dump.function(event.function).expect("an event is about a function");
//!     assert_eq!(function.name, b"add");
//!     assert_eq!(function.range.start.0, 0x1000);
//!     assert_eq!(event.time.0, 1_000);
//! }
//! assert!(dump.faults().is_empty());
//! # Ok::<(), jitinject::runtime::jitdump::Error>(())
//! ```
//!
//! # More
//!
//! The programs in `examples/` read a jitdump (`read_jitdump`), tell which function and which inlined calls held
//! an address at a time (`who_was_there`), make an ELF object (`make_elf`), and rewrite a profile
//! (`rewrite_profile`).
//!
//! # Versions
//!
//! Until 1.0, minor versions may change the interface; enums of errors and faults may grow in any version. The
//! oldest Rust compiler that is promised is the `rust-version` of `Cargo.toml`; a new one is a minor version.

pub mod bytes;
pub mod check;
pub mod code;
pub mod compare;
pub mod debug_info;
pub mod dump;
pub mod elf;
pub mod files;
pub mod hash;
pub mod inject;
pub mod machine;
pub mod perf;
pub mod range_map;
pub mod runtime;
pub mod sparse;
pub mod summary;
pub mod tally;
pub mod threads;
pub mod timeline;
pub mod units;
