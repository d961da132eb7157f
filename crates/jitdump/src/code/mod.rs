//! Code over time.

pub mod history;
