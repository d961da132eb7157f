//! Opens files safely, even in directories that others can write to, and writes output atomically.

pub mod cleanup;
pub mod compression_format;
pub mod folder;
pub mod folder_contents;
pub mod input_file;
pub mod links;
pub mod out_of_memory;
pub mod paged_file;
pub mod search;
pub mod staged;
pub mod stdio;
pub mod stream;
pub mod temp_file;
pub mod within;

pub use cleanup::CommitGuard;
pub use compression_format::CompressionFormat;
pub use folder::SharedFolder;
pub use folder_contents::FolderContents;
pub use input_file::{FileOrigin, InputFile, OpenFile};
pub use paged_file::PagedFile;
pub use staged::{StagedFile, StagedFolder};
pub use temp_file::TempFile;
