//! Events in the life of a function.

use crate::units::Address;

/// A timestamp on the clock of a runtime's file, in nanoseconds, or in cycles if the
/// flags of its header specify it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RuntimeTime(pub u64);

/// A load or move of a function's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeEvent {
    /// Time of the event.
    pub time: RuntimeTime,
    /// PID as the runtime sees it. In a container, it differs from the PID in the profile.
    pub pid: u32,
    /// Index of the function in the file.
    pub function: u32,
    /// Kind of event.
    pub change: Change,
}

/// The kind of a [`CodeEvent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The code was loaded at the address that the file gives for its function.
    Load,
    /// The code was moved.
    Move {
        /// Start address before the move.
        from: Address,
        /// Start address after the move.
        to: Address,
    },
}
