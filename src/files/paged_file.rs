//! Files that are read page by page, on demand.
//!
//! A page is read once and never changes afterwards. A limited number of files stay open; more of them, and
//! small ones, are read as a whole.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use jitdump::RandomAccess;
use rustix::process::{Resource, getrlimit};

use crate::files::input_file::MAX_SMALL_FILE;
use crate::files::open_file::read_at;
use crate::files::{FileOrigin, InputFile, OpenFile};

/// Bytes in a page: few enough that functions spread over a file take little memory, and enough that a file that
/// is needed as a whole takes little longer to read.
const PAGE_SIZE: usize = 8 << 10;

/// Bytes in a page of the first files of medium size, which take little memory even as a whole.
const LARGE_PAGE_SIZE: usize = 64 << 10;

/// Maximum size in bytes of a file with large pages.
const MAX_MEDIUM_FILE: u64 = 4 << 20;

/// Maximum number of open files while a new one gets large pages.
const MAX_MEDIUM_FILES: u64 = 16;

/// Maximum number of files that are kept open.
const MAX_OPEN: u64 = 256;

/// Number of files that the process may have open for everything else.
const OTHER_FILES: u64 = 64;

/// Number of files that are kept open.
static OPEN_FILES: AtomicU64 = AtomicU64::new(0);

/// A regular file that others may have written, in memory as a whole if it is small, and else page by page.
///
/// As with [`InputFile`], bytes that were returned never change. Pages read at different times may be of different
/// states of the file.
#[derive(Debug)]
pub struct PagedFile {
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Whole(Arc<InputFile>),
    Pages(Box<Pages>),
}

/// A file that stays open.
#[derive(Debug)]
struct Pages {
    file: OpenFile,
    page_size: usize,
    /// Boxed, because most pages are never read.
    pages: Box<[OnceLock<Box<Page>>]>,
    has_shrunk: AtomicBool,
    _slot: OpenSlot,
}

/// Bytes of a page that were read.
#[derive(Debug, Default)]
struct Page {
    bytes: OnceLock<Box<[u8]>>,
    /// Bytes that begin in this page and end in another one.
    crossing: OnceLock<Crossing>,
}

/// Returns the number of files that may be kept open.
fn max_open() -> u64 {
    static MAX: OnceLock<u64> = OnceLock::new();
    *MAX.get_or_init(|| max_open_within(getrlimit(Resource::Nofile).current))
}

/// Returns the number of files that may be kept open: less than [`MAX_OPEN`] if `limit` does not let the process open many.
fn max_open_within(limit: Option<u64>) -> u64 {
    let limit = limit.unwrap_or(u64::MAX);
    MAX_OPEN.min(limit.saturating_sub(OTHER_FILES))
}

/// A file that is kept open, counted in [`OPEN_FILES`].
#[derive(Debug)]
struct OpenSlot;

impl OpenSlot {
    /// Counts a file as open; `None` if there are too many.
    fn take() -> Option<Self> {
        let slot = Self;
        (OPEN_FILES.fetch_add(1, Ordering::Relaxed) < max_open()).then_some(slot)
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Crossing {
    offset: u64,
    bytes: Box<[u8]>,
}

impl PagedFile {
    /// Reads a small file, and keeps a larger one open. If many are open already, reads larger ones too.
    pub fn of(file: OpenFile) -> io::Result<Self> {
        let is_small = file.size() <= MAX_SMALL_FILE;
        let bytes = match OpenSlot::take().filter(|_| !is_small) {
            Some(slot) => Bytes::Pages(Box::new(Pages::new(file, slot)?)),
            None => Bytes::Whole(Arc::new(InputFile::read(&file)?)),
        };
        Ok(Self { bytes })
    }

    /// Returns what identifies the file.
    pub fn origin(&self) -> &FileOrigin {
        match &self.bytes {
            Bytes::Whole(file) => file.origin(),
            Bytes::Pages(pages) => pages.file.origin(),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.origin().path
    }

    /// Returns device and inode, which are equal if two paths lead to the same file.
    pub fn file_id(&self) -> (u64, u64) {
        self.origin().file_id
    }

    /// Whether the file has become shorter since it was opened, or could not be read, so that bytes are missing.
    pub fn has_shrunk(&self) -> bool {
        match &self.bytes {
            Bytes::Whole(file) => file.has_shrunk(),
            Bytes::Pages(pages) => pages.has_shrunk.load(Ordering::Relaxed),
        }
    }
}

impl From<Arc<InputFile>> for PagedFile {
    fn from(file: Arc<InputFile>) -> Self {
        Self {
            bytes: Bytes::Whole(file),
        }
    }
}

impl RandomAccess for PagedFile {
    fn size(&self) -> u64 {
        match &self.bytes {
            Bytes::Whole(file) => file.len() as u64,
            Bytes::Pages(pages) => pages.file.size(),
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        match &self.bytes {
            Bytes::Whole(file) => {
                let start = usize::try_from(offset).ok();
                let rest = start.and_then(|start| file.get(start..)).unwrap_or_default();
                into.iter_mut().zip(rest).map(|(to, &from)| *to = from).count()
            }
            Bytes::Pages(pages) => pages.read(offset, into),
        }
    }

    fn get(&self, offset: u64, size: usize) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::Whole(file) => file.get(usize::try_from(offset).ok()?..)?.get(..size),
            Bytes::Pages(pages) => pages.get(offset, size),
        }
    }
}

impl Pages {
    fn new(file: OpenFile, slot: OpenSlot) -> io::Result<Self> {
        file.refuse_sparse()?;
        let is_medium =
            file.size() <= MAX_MEDIUM_FILE && OPEN_FILES.load(Ordering::Relaxed) <= MAX_MEDIUM_FILES;
        let page_size = if is_medium { LARGE_PAGE_SIZE } else { PAGE_SIZE };
        let count = usize::try_from(file.size().div_ceil(page_size as u64)).map_err(io::Error::other)?;
        Ok(Self {
            file,
            page_size,
            pages: std::iter::repeat_with(OnceLock::new).take(count).collect(),
            has_shrunk: AtomicBool::new(false),
            _slot: slot,
        })
    }

    /// Reads up to the end that the file had when it was opened.
    fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let left = usize::try_from(self.file.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(into.len());
        let into = into.get_mut(..wanted).unwrap_or_default();
        let read = read_at(self.file.file(), into, offset).unwrap_or(0);
        if read < wanted {
            self.has_shrunk.store(true, Ordering::Relaxed);
        }
        read
    }

    /// Returns bytes, whose page is read if it was not. `None` beyond the end of the file, and for other bytes across the
    /// end of a page than those before.
    fn get(&self, offset: u64, size: usize) -> Option<&[u8]> {
        let end = offset.checked_add(size as u64)?;
        if end > self.file.size() {
            return None;
        }
        if size == 0 {
            return Some(&[]);
        }
        let page_size = self.page_size as u64;
        let index = usize::try_from(offset / page_size).ok()?;
        let page = self.pages.get(index)?.get_or_init(Box::default);
        let page_start = offset - offset % page_size;
        let start = (offset - page_start) as usize;
        if start + size <= self.page_size {
            let bytes = page
                .bytes
                .get_or_init(|| self.read_new(page_start, self.page_size));
            return bytes.get(start..start + size);
        }
        // Of disjoint ranges, only one crosses the end of a page.
        let crossing = page.crossing.get_or_init(|| Crossing {
            offset,
            bytes: self.read_new(offset, size),
        });
        (crossing.offset == offset).then(|| crossing.bytes.get(..size))?
    }

    /// Reads `size` bytes, or fewer at the end of the file.
    fn read_new(&self, offset: u64, size: usize) -> Box<[u8]> {
        let left = usize::try_from(self.file.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; size.min(left)];
        let read = self.read(offset, &mut bytes);
        bytes.truncate(read);
        bytes.into_boxed_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// Sizes of files with large pages and with small ones.
    const SIZES: [usize; 2] = [
        MAX_SMALL_FILE as usize + 100_000,
        MAX_MEDIUM_FILE as usize + 100_000,
    ];

    fn byte(at: usize) -> u8 {
        (at * 7 + at / 251) as u8
    }

    fn file_of(size: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..size).map(byte).collect();
        file.write_all(&bytes).unwrap();
        file
    }

    fn open(file: &tempfile::NamedTempFile) -> PagedFile {
        PagedFile::of(OpenFile::open(file.path()).unwrap()).unwrap()
    }

    #[test]
    fn every_range_is_that_of_the_file() {
        for file_size in SIZES {
            let file = file_of(file_size);
            let paged = open(&file);
            assert!(matches!(paged.bytes, Bytes::Pages(_)));
            let mut at = 0;
            // Records of many sizes, one after the other.
            for size in [1, 100, 8192, 3, 20_000, 8191, 0, 700].into_iter().cycle() {
                let Some(bytes) = paged.get(at as u64, size) else {
                    break;
                };
                assert!(
                    bytes.iter().enumerate().all(|(i, &it)| it == byte(at + i)),
                    "{at}, {size}"
                );
                at += size;
            }
            assert!(file_size - at < 20_000, "{at}");
            assert_eq!(paged.get(file_size as u64, 0), Some(&[][..]));
            assert_eq!(paged.get(file_size as u64 - 1, 2), None);
            assert_eq!(paged.get(u64::MAX, 2), None);
            assert!(!paged.has_shrunk());
        }
    }

    #[test]
    fn bytes_stay_and_missing_ones_are_told() {
        for file_size in SIZES {
            let file = file_of(file_size);
            let paged = open(&file);
            let before = paged.get(5, 10).unwrap();
            file.as_file().write_all_at(&[0; 100], 0).unwrap();
            assert_eq!(paged.get(5, 10).unwrap(), before);
            assert_eq!(before[0], byte(5));
            file.as_file().set_len(100_000).unwrap();
            assert!(!paged.has_shrunk());
            assert_eq!(paged.get(200_000, 10), None);
            assert!(paged.has_shrunk());
            // The failure stays too.
            file.as_file().set_len(file_size as u64).unwrap();
            assert_eq!(paged.get(200_000, 10), None);
        }
    }

    #[test]
    fn small_files_are_not_kept_open() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"small").unwrap();
        let paged = open(&file);
        assert!(matches!(paged.bytes, Bytes::Whole(_)));
        assert_eq!(paged.get(1, 3), Some(&b"mal"[..]));
        let mut read = [0; 8];
        assert_eq!(paged.read(2, &mut read), 3);
        assert_eq!(&read[..3], b"all");
    }

    #[test]
    fn as_many_files_are_kept_open_as_the_process_may_open_besides_others() {
        for (limit, expected) in [
            (None, 256),
            (Some(1024), 256),
            (Some(320), 256),
            (Some(319), 255),
            (Some(65), 1),
            (Some(64), 0),
            (Some(3), 0),
        ] {
            assert_eq!(max_open_within(limit), expected, "{limit:?}");
        }
    }
}
