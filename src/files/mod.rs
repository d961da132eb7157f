//! Opens files safely, even in directories that others can write to, and writes output atomically.

#[cfg(feature = "inject")]
pub mod cleanup;
#[cfg(feature = "inject")]
pub mod compression_format;
#[cfg(feature = "inject")]
pub mod folder;
#[cfg(feature = "inject")]
pub mod folder_contents;
#[cfg(feature = "inject")]
pub mod input_file;
pub mod kernel;
pub mod open_file;
#[cfg(feature = "inject")]
pub mod out_of_memory;
#[cfg(feature = "inject")]
pub mod paged_file;
pub mod search;
#[cfg(feature = "inject")]
pub mod staged;
#[cfg(feature = "inject")]
pub mod stdio;
#[cfg(feature = "inject")]
pub mod stream;
#[cfg(feature = "inject")]
pub mod streamed_file;
#[cfg(feature = "inject")]
pub mod temp_file;
pub mod walk;

#[cfg(feature = "inject")]
pub use cleanup::CommitGuard;
#[cfg(feature = "inject")]
pub use compression_format::CompressionFormat;
#[cfg(feature = "inject")]
pub use folder::{Folder, Place};
#[cfg(feature = "inject")]
pub use folder_contents::FolderContents;
#[cfg(feature = "inject")]
pub use input_file::InputFile;
pub use open_file::{FileOrigin, OpenFile};
#[cfg(feature = "inject")]
pub use paged_file::PagedFile;
#[cfg(feature = "inject")]
pub use staged::{StagedFile, StagedFolder};
#[cfg(feature = "inject")]
pub use streamed_file::StreamedFile;
#[cfg(feature = "inject")]
pub use temp_file::TempFile;
