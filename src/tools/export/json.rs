//! JSON that is written while it is computed.

use std::io;

use serde::{Serialize, Serializer};

/// A list that is computed when it is written.
pub struct LazyList<F>(pub F);

impl<F, I> Serialize for LazyList<F>
where
    F: Fn() -> I,
    I: Iterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Writes a value.
pub fn write(out: impl io::Write, value: &impl Serialize) -> io::Result<()> {
    Ok(serde_json::to_writer(out, value)?)
}
