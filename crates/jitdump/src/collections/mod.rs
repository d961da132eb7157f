//! Data structures for files with millions of entries, whose content may be hostile.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod hash;
pub mod indexed_table;
pub mod interner;
pub mod range_map;
pub mod tally;
