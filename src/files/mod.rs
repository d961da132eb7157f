//! Opens files safely, even in directories that others can write to, and writes output atomically.

pub mod cleanup;
pub mod compression_format;
pub mod folder;
pub mod folder_contents;
pub mod input_file;
pub mod objects;
pub mod paged_file;
mod reach;
pub mod search;
pub mod staged;
pub mod stdio;
pub mod stream;
pub mod streamed_file;
pub mod temp_file;

pub use cleanup::CommitGuard;
pub use compression_format::CompressionFormat;
pub use folder::{Folder, NameInFolder};
pub use folder_contents::FolderContents;
pub use input_file::InputFile;
pub use jitdump::internals::files::{FileOrigin, OpenFile, kernel, open_file, walk};
pub use paged_file::PagedFile;
pub use reach::Reach;
pub use staged::{StagedFile, StagedFolder};
pub use streamed_file::StreamedFile;
pub use temp_file::TempFile;
