//! What can't be told of.

use std::fmt;

use crate::inject::events::chain::MAX_FRAMES;

/// What a profile does not have of what a log or a trace tells, or has in another way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Loss {
    /// Stacks that were cut.
    Frames,
    /// Functions were left, and nothing had told so.
    LostExit,
    /// Functions were left that the thread was not in.
    UnmatchedExit,
    /// More things without code than there are addresses for.
    Names,
    /// Calls in too many different stacks.
    Stacks,
    /// Waiting, or a collection, whose end or beginning is missing.
    Unpaired,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frames => return write!(f, "stacks of more than {MAX_FRAMES} frames, cut at the outer end"),
            Self::LostExit => "calls whose end is not told of, ended with the call around them",
            Self::UnmatchedExit => "ends of calls whose beginning is not told of, passed over",
            Self::Names => "more than 4 million types and functions without code, the rest of which have the name of the last one",
            Self::Stacks => "calls in more than 4 million different stacks, taken for the calls around them",
            Self::Unpaired => "waits and collections of which one end is not told of, left out",
        })
    }
}
