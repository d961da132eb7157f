//! What runtimes write about the code that they make, in one vocabulary.
//!
//! Each kind of file has a folder of its own that turns its records into [`CodeEvent`]s; what comes after
//! them asks a [`CodeFile`] and need not know who wrote it. Perf maps know of no events: they have names for
//! addresses, without any time.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod code_file;
mod file_kind;
pub mod jitdump;
pub mod mono;
pub mod named_code;
pub mod names;
pub mod perf_map;
pub mod xray;

pub use code_file::{CodeFile, FunctionView};
pub use file_kind::FileKind;

use crate::units::Address;

/// A moment on the clock of a runtime's file: nanoseconds, or cycles where the file says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RuntimeTime(pub u64);

/// Something that happened to a function's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeEvent {
    /// When.
    pub time: RuntimeTime,
    /// In which process, by the number that the runtime knows it under; in a container that is not the
    /// profile's.
    pub pid: u32,
    /// To which function, as an index into the file's functions.
    pub function: u32,
    /// What.
    pub change: Change,
}

/// What happened to the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It was put where its function says.
    Load,
    /// It was moved.
    Move {
        /// Where it was.
        from: Address,
        /// Where it is from now on.
        to: Address,
    },
    /// It is gone.
    Unload,
}
