//! Opens files safely, even in directories that others can write to, and writes output atomically.

pub mod cleanup;
pub mod contents;
pub mod folder;
pub mod links;
pub mod mapped;
pub mod out_of_memory;
pub mod packing;
pub mod search;
pub mod spool;
pub mod staged;
pub mod stdio;
pub mod stream;
pub mod within;

pub use cleanup::CommitGuard;
pub use contents::Contents;
pub use folder::SharedFolder;
pub use mapped::{MappedFile, OpenFile};
pub use packing::Packing;
pub use spool::Spool;
pub use staged::{StagedFile, StagedFolder};
