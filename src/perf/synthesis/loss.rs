//! What can't get into a profile as it is.

use std::fmt;

/// What did not get into the profile as it was. Of records of our own, the place is that in the new records; of
/// recorded ones, that in the recorded ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// Callers of a sample of our own that a record has no place for.
    Callers,
    /// Bytes of a sample of our own that a record has no place for.
    Bytes,
    /// The end of a thread's name.
    Name,
    /// A record of our own came behind one of a later time, and stands behind it.
    Order,
    /// The outermost word of the copy of the stack in a recorded sample.
    StackWord,
    /// A recorded record that has no place for its event's id.
    Record,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Callers => "call chains of more frames than a record has room for, cut at the outer end",
            Self::Bytes => "data of an event that are more than a record has room for, cut at the end",
            Self::Name => "names of threads of more than 255 bytes, cut",
            Self::Order => "events that came later than others that happened after them",
            Self::StackWord => {
                "samples with the largest copy of the stack there is, which lost its outermost word to the id of their event"
            }
            Self::Record => "records that have no room for the id of their event, left out",
        })
    }
}
