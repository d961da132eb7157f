//! Scripts, and what belongs to them, by their paths.

use crate::collections::hash::HashMap;

/// Values by the path of a script; made by `collect`.
#[derive(Clone, Debug)]
pub struct ByPath<'s, T>(HashMap<&'s [u8], &'s T>);

impl<'s, T> ByPath<'s, T> {
    /// Returns the value of a script.
    pub fn get(&self, path: &[u8]) -> Option<&'s T> {
        self.0.get(path).copied()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the paths and values, in any order.
    #[doc(hidden)]
    pub fn iter(&self) -> impl Iterator<Item = (&'s [u8], &'s T)> {
        self.0.iter().map(|(&path, &value)| (path, value))
    }

    /// Iterates over the paths, in any order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'s [u8]> {
        self.0.keys().copied()
    }
}

impl<T> Default for ByPath<'_, T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<'s, T> FromIterator<(&'s [u8], &'s T)> for ByPath<'s, T> {
    fn from_iter<I: IntoIterator<Item = (&'s [u8], &'s T)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}
