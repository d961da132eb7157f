//! Files: opened so that nothing planted can harm, and written whole or not at all.

pub mod mapped;
pub mod staged;

pub use mapped::MappedFile;
pub use staged::{StagedFile, StagedFolder};
