//! A file that is still written.

use std::io;
use std::sync::OnceLock;

use crate::bytes::RandomAccess;
use crate::files::OpenFile;

/// A file with its current size. Bytes that were returned stay the same, and are freed with it.
#[derive(Debug)]
pub struct FileNow<'a> {
    file: &'a OpenFile,
    size: u64,
    first: OnceLock<Box<Part>>,
}

/// Bytes that were read, in a list.
#[derive(Debug)]
struct Part {
    offset: u64,
    bytes: Box<[u8]>,
    next: OnceLock<Box<Part>>,
}

impl<'a> FileNow<'a> {
    /// Asks for the size of a file. Fails if it has more holes than any program leaves.
    pub fn new(file: &'a OpenFile) -> io::Result<Self> {
        Ok(Self {
            size: file.current_size()?,
            file,
            first: OnceLock::new(),
        })
    }
}

impl Drop for FileNow<'_> {
    /// Frees the list from its start. By itself, each part would free the next one on the stack.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut part) = next {
            next = part.next.take();
        }
    }
}

impl RandomAccess for FileNow<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        self.file.read_at(offset, into).unwrap_or(0)
    }

    fn get(&self, offset: u64, size: usize) -> Option<&[u8]> {
        if offset.checked_add(size as u64)? > self.size {
            return None;
        }
        let mut place = &self.first;
        // A function has a handful of records. At most some thousand are read, to detect quirks.
        while let Some(part) = place.get() {
            if (part.offset, part.bytes.len()) == (offset, size) {
                return Some(&part.bytes);
            }
            place = &part.next;
        }
        let mut bytes = vec![0; size].into_boxed_slice();
        if self.read(offset, &mut bytes) < size {
            return None;
        }
        let part = place.get_or_init(|| {
            Box::new(Part {
                offset,
                bytes,
                next: OnceLock::new(),
            })
        });
        (part.offset == offset).then_some(&part.bytes)
    }
}
