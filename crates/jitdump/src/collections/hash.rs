//! Hash tables whose keys may come from a file.
//!
//! The hash has a random seed in each run. With a fixed one, a file could contain keys that all collide, and
//! inserting them would take quadratic time. The order of iteration therefore differs from run to run: code
//! that iterates over a table sorts the result, or computes something that does not depend on the order.

pub use foldhash::fast::RandomState;

/// A table of values by key. `HashMap::default()` is empty.
#[expect(clippy::disallowed_types)]
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A set of keys. `HashSet::default()` is empty.
#[expect(clippy::disallowed_types)]
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;
