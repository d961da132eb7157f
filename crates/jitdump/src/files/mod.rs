//! Opens files safely, even in directories that others can write to.

pub mod kernel;
pub mod open_file;
pub mod walk;

pub use open_file::{FileOrigin, OpenFile};
