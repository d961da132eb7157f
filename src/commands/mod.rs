//! The commands: arguments and implementation of each.

pub mod check;
pub mod compare;
pub mod completions;
pub mod dump;
pub mod explain;
pub mod headings;
pub mod inject;
mod input;
pub mod man;
pub mod record;
mod runtime_files;
pub mod timeline;
