//! Reading of files that may claim contents of any size.

use std::cell::{Cell, RefCell};
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::ZlibDecoder;
use object::read::{CompressionFormat, ObjectSection, ReadCache, ReadCacheOps, ReadRef};

use crate::collections::hash::HashMap;

/// Bytes that are read at once for strings.
const BLOCK: u64 = 64 << 10;

/// Maximum size of a string in bytes, with its delimiter. Names in jitdumps have up to 64 KiB.
const MAX_STRING: u64 = 128 << 10;

/// Maximum memory in bytes for one file, while it is read. The largest browsers with symbols take 0.6 GB.
const MAX_FILE: u64 = 1 << 30;

/// Maximum size of a compressed section in bytes, after decompression.
const MAX_SECTION: u64 = 1 << 28;

/// Maximum number of bytes that one compressed byte stands for. Real tables have 2 to 5.
const MAX_RATIO: u64 = 64;

/// Memory that the contents of all files may take together.
#[derive(Debug)]
pub struct MemoryRoom {
    left: AtomicU64,
}

impl Default for MemoryRoom {
    fn default() -> Self {
        Self::new(MAX_FILE)
    }
}

impl MemoryRoom {
    /// Limits the memory to a number of bytes.
    pub fn new(bytes: u64) -> Self {
        let left = AtomicU64::new(bytes);
        Self { left }
    }

    /// Starts counting the memory of a file.
    pub fn file(&self) -> FileMemory<'_> {
        FileMemory {
            room: self,
            taken: Cell::new(0),
            is_exceeded: Cell::new(false),
        }
    }
}

/// Memory that is taken for one file; given back when this is dropped.
#[derive(Debug)]
pub struct FileMemory<'r> {
    room: &'r MemoryRoom,
    taken: Cell<u64>,
    is_exceeded: Cell<bool>,
}

impl FileMemory<'_> {
    /// Takes a number of bytes; `None` if that exceeds the limit of the file or of all files.
    pub fn take(&self, bytes: u64) -> Option<()> {
        let taken = self.taken.get().checked_add(bytes);
        let taken = taken.filter(|&taken| taken <= MAX_FILE && !self.is_exceeded.get());
        let subtract = |left: u64| left.checked_sub(bytes);
        let is_free = |&_: &u64| {
            let left = &self.room.left;
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract)
                .is_ok()
        };
        match taken.filter(is_free) {
            Some(taken) => {
                self.taken.set(taken);
                Some(())
            }
            None => {
                self.is_exceeded.set(true);
                None
            }
        }
    }

    /// Takes the memory of one value of a type.
    pub fn take_one<T>(&self) -> Option<()> {
        self.take(size_of::<T>() as u64)
    }

    /// Refuses the file, as if it needed too much memory.
    pub fn refuse(&self) {
        self.is_exceeded.set(true);
    }

    /// Whether the file needs more memory than there is. What was read of it is then incomplete.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// Gives all back, except for `bytes` that are needed as long as the room.
    pub fn keep(self, bytes: u64) {
        self.taken.set(self.taken.get().saturating_sub(bytes));
    }
}

impl Drop for FileMemory<'_> {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.taken.get(), Ordering::Relaxed);
    }
}

/// Reads parts of a file, as far as there is memory.
#[derive(Debug)]
pub struct LimitedReads<'c, R: ReadCacheOps> {
    cache: &'c ReadCache<R>,
    memory: &'c FileMemory<'c>,
    /// Blocks with strings, by their number in the file.
    blocks: RefCell<HashMap<u64, &'c [u8]>>,
}

impl<'c, R: ReadCacheOps> LimitedReads<'c, R> {
    /// Counts all reads as memory, because the cache keeps them.
    pub fn new(cache: &'c ReadCache<R>, memory: &'c FileMemory<'c>) -> Self {
        Self {
            cache,
            memory,
            blocks: RefCell::default(),
        }
    }

    /// Returns the rest of the block with an offset.
    fn rest_of_block(&self, offset: u64) -> Result<&'c [u8], ()> {
        let number = offset / BLOCK;
        let known = self.blocks.borrow().get(&number).copied();
        let block = match known {
            Some(block) => block,
            None => {
                let start = number.saturating_mul(BLOCK);
                let size = self.len()?.checked_sub(start).ok_or(())?.min(BLOCK);
                let block = self.read_bytes_at(start, size)?;
                self.blocks.borrow_mut().insert(number, block);
                block
            }
        };
        block.get((offset % BLOCK) as usize..).ok_or(())
    }
}

impl<'c, R: ReadCacheOps> ReadRef<'c> for &LimitedReads<'c, R> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'c [u8], ()> {
        // A claim that the file cannot fulfil needs no memory.
        let len = self.len()?;
        if offset.checked_add(size).is_none_or(|end| end > len) {
            return Err(());
        }
        self.memory.take(size).ok_or(())?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'c [u8], ()> {
        // The cache reads each string with two system calls, and none of more than 4 KiB. Node.js has 100,000 symbols.
        let most = range.end.saturating_sub(range.start).min(MAX_STRING);
        let mut size = 0u64;
        while size < most {
            let rest = self.rest_of_block(range.start.saturating_add(size))?;
            let end = memchr::memchr(delimiter, rest);
            let before = end.unwrap_or(rest.len());
            let is_in_first = size == 0;
            size = size.saturating_add(before as u64);
            match end {
                Some(_) if size >= most => break,
                Some(_) if is_in_first => return rest.get(..before).ok_or(()),
                Some(_) => return self.read_bytes_at(range.start, size),
                None if rest.is_empty() => break,
                None => {}
            }
        }
        Err(())
    }
}

/// Returns the content of a section, decompressed; `None` if it is invalid or there is no memory for it. In a separate debug file,
/// `.eh_frame` has none.
pub fn section_content<'a>(section: &impl ObjectSection<'a>, memory: &FileMemory<'_>) -> Option<Vec<u8>> {
    let data = section.compressed_data().ok()?;
    if data.format == CompressionFormat::None {
        memory.take(data.data.len() as u64)?;
        return Some(data.data.to_vec());
    }
    let size = data.uncompressed_size;
    let most = (data.data.len() as u64).saturating_mul(MAX_RATIO);
    if size > most.min(MAX_SECTION) {
        memory.refuse();
        return None;
    }
    memory.take(size)?;
    match data.format {
        CompressionFormat::Zlib => decompressed(ZlibDecoder::new(data.data), size),
        CompressionFormat::Zstandard => decompressed(zstd::Decoder::with_buffer(data.data).ok()?, size),
        _ => None,
    }
}

/// Reads up to `size` decompressed bytes.
fn decompressed(decoder: impl Read, size: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    decoder.take(size).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use object::read::Object;
    use object::{Architecture, BinaryFormat, Endianness, SectionFlags, SectionKind, elf, write};

    use super::*;

    #[test]
    fn reads_end_at_the_limit() {
        let cache = ReadCache::new(Cursor::new(vec![7; 100]));
        let room = MemoryRoom::new(50);
        let memory = room.file();
        let reads = LimitedReads::new(&cache, &memory);
        assert_eq!((&reads).read_bytes_at(60, 40), Ok(&[7; 40][..]));
        assert_eq!((&reads).read_bytes_at(60, 41), Err(()));
        assert!(!memory.is_exceeded(), "the file has no such part");
        assert_eq!((&reads).read_bytes_at(0, 10), Ok(&[7; 10][..]));
        assert_eq!((&reads).read_bytes_at(0, 11), Err(()));
        assert!(memory.is_exceeded());
    }

    #[test]
    fn strings_are_read_in_blocks() {
        let mut file = b"first\0second\0".to_vec();
        file.resize(BLOCK as usize - 2, b'x');
        file.extend_from_slice(b"third\0end");
        let len = file.len() as u64;
        let cache = ReadCache::new(Cursor::new(file));
        let room = MemoryRoom::new(2 * BLOCK);
        let memory = room.file();
        let reads = LimitedReads::new(&cache, &memory);
        let string = |start: u64, end: u64| (&reads).read_bytes_at_until(start..end, 0);
        assert_eq!(string(0, len), Ok(&b"first"[..]));
        assert_eq!(string(6, len), Ok(&b"second"[..]));
        assert_eq!(memory.taken.get(), BLOCK, "the block counts once");
        assert_eq!(string(0, 5), Err(()), "the table ends before the string");
        assert_eq!(string(BLOCK - 2, len), Ok(&b"third"[..]), "in two blocks");
        assert_eq!(string(BLOCK + 4, len), Err(()), "not terminated");
        assert_eq!(string(len, len), Err(()));
        assert_eq!(string(2 * BLOCK, 3 * BLOCK), Err(()));
        assert!(!memory.is_exceeded());
        assert_eq!((&reads).read_bytes_at(0, BLOCK), Err(()));
        assert!(memory.is_exceeded());
    }

    #[test]
    fn strings_may_be_longer_than_a_block() {
        let sizes = [BLOCK + 5000, MAX_STRING - 1, MAX_STRING];
        let strings = sizes.map(|size| vec![b'n'; size as usize]);
        let before = vec![b'x'; BLOCK as usize - 100];
        let file = [&before[..], &strings.join(&0u8), b"\0end\0"].concat();
        let len = file.len() as u64;
        let cache = ReadCache::new(Cursor::new(file));
        let room = MemoryRoom::default();
        let memory = room.file();
        let reads = LimitedReads::new(&cache, &memory);
        let string = |start: u64, end: u64| (&reads).read_bytes_at_until(start..end, 0);
        let first = BLOCK - 100;
        assert_eq!(string(first, len), Ok(&strings[0][..]));
        assert_eq!(memory.taken.get(), 3 * BLOCK + sizes[0]);
        assert_eq!(string(first, first + sizes[0]), Err(()));
        let second = first + sizes[0] + 1;
        assert_eq!(string(second, len), Ok(&strings[1][..]));
        let third = second + sizes[1] + 1;
        assert_eq!(string(third, len), Err(()), "too long");
        assert_eq!(string(third + 1, len), Ok(&strings[2][1..]));
        assert_eq!(string(len - 4, len), Ok(&b"end"[..]));
        assert!(!memory.is_exceeded());
    }

    #[test]
    fn all_files_share_the_room_and_give_back_what_they_do_not_keep() {
        let room = MemoryRoom::new(100);
        let (first, second) = (room.file(), room.file());
        assert!(first.take(60).is_some() && second.take(40).is_some());
        assert!(second.take(1).is_none() && second.take(0).is_none());
        first.keep(20);
        drop(second);
        assert!(room.file().take(80).is_some());
        let third = room.file();
        assert!(third.take(81).is_none() && third.is_exceeded());
        assert!(MemoryRoom::new(u64::MAX).file().take(1 << 30).is_some());
        assert!(MemoryRoom::new(u64::MAX).file().take((1 << 30) + 1).is_none());
    }

    /// Returns whether a file is refused for a compressed section of this size that claims to have another one, decompressed.
    fn is_refused(size: usize, claimed: u64) -> bool {
        let mut file = write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let id = file.add_section(Vec::new(), b".debug_info".to_vec(), SectionKind::Debug);
        // The header for zlib, before bytes that it cannot decompress.
        let header = [1, claimed, 8].map(u64::to_le_bytes).concat();
        file.append_section_data(id, &[header, vec![0xff; size]].concat(), 8);
        file.section_mut(id).flags = SectionFlags::Elf {
            sh_type: elf::SHT_PROGBITS,
            sh_flags: elf::SHF_COMPRESSED,
        };
        let file = file.write().unwrap();
        let file = object::File::parse(&file[..]).unwrap();
        let section = file.section_by_name(".debug_info").unwrap();
        let room = MemoryRoom::new(u64::MAX);
        let memory = room.file();
        assert_eq!(section_content(&section, &memory), None);
        memory.is_exceeded()
    }

    #[test]
    fn a_compressed_byte_stands_for_up_to_64() {
        assert!(!is_refused(100, 6400));
        assert!(is_refused(100, 6401));
    }

    #[test]
    fn compressed_sections_have_up_to_256_mebibytes() {
        assert!(!is_refused(5 << 20, 256 << 20));
        assert!(is_refused(5 << 20, (256 << 20) + 1));
    }
}
