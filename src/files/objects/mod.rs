//! Directories of objects and of the source files next to them, and the build-id cache.

pub mod build_id_cache;
pub mod source_lists;
pub mod sparse;
pub mod store;
pub mod stored_source;
