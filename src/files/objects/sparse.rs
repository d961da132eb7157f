//! File contents with holes: runs of zeros that take neither memory nor disk blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Smallest run of zeros that becomes a hole, in bytes. File systems store whole pages.
const MIN_HOLE: u64 = 0x1000;

/// The bytes of a file, without its holes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SparseBytes {
    stored: Vec<u8>,
    holes: Vec<Hole>,
}

/// A run of zeros that is not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hole {
    /// Number of stored bytes before the hole.
    position: usize,
    /// Total size of the holes up to and including this one, in bytes.
    skipped: u64,
}

impl SparseBytes {
    /// Removes all bytes and holes.
    pub fn clear(&mut self) {
        self.stored.clear();
        self.holes.clear();
    }

    /// Returns the size of the file, in bytes.
    pub fn size(&self) -> u64 {
        self.skipped().saturating_add(self.stored.len() as u64)
    }

    /// Returns the number of stored bytes.
    pub fn stored_size(&self) -> u64 {
        self.stored.len() as u64
    }

    fn skipped(&self) -> u64 {
        self.holes.last().map_or(0, |hole| hole.skipped)
    }

    /// Returns the stored bytes for appending; appended bytes go to the end of the file.
    pub fn stored_mut(&mut self) -> &mut Vec<u8> {
        &mut self.stored
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.stored.extend_from_slice(bytes);
    }

    /// Appends zeros up to an offset in the file, as a hole if there are at least as many as a page has.
    pub fn pad_to(&mut self, offset: u64) {
        let zeros = offset.saturating_sub(self.size());
        if zeros >= MIN_HOLE {
            self.holes.push(Hole {
                position: self.stored.len(),
                skipped: self.skipped().saturating_add(zeros),
            });
        } else {
            let size = self.stored.len().saturating_add(zeros as usize);
            self.stored.resize(size, 0);
        }
    }

    /// Overwrites stored bytes from `position` on, which does not count holes. Does nothing if there are too
    /// few stored bytes.
    pub fn overwrite(&mut self, position: usize, bytes: &[u8]) {
        let rest = self.stored.get_mut(position..);
        if let Some(old) = rest.and_then(|rest| rest.get_mut(..bytes.len())) {
            old.copy_from_slice(bytes);
        }
    }

    /// Iterates over the stored bytes between holes, each part with its offset in the file.
    pub fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let first = Hole {
            position: 0,
            skipped: 0,
        };
        let starts = std::iter::once(first).chain(self.holes.iter().copied());
        let ends = self.holes.iter().map(|hole| hole.position);
        let ends = ends.chain(std::iter::once(self.stored.len()));
        starts.zip(ends).filter_map(|(start, end)| {
            let offset = start.skipped.saturating_add(start.position as u64);
            Some((offset, self.stored.get(start.position..end)?))
        })
    }

    /// Writes the content to an empty file.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        for (offset, part) in self.parts() {
            file.write_all_at(part, offset)?;
        }
        let ends_with_hole = self
            .holes
            .last()
            .is_some_and(|hole| hole.position == self.stored.len());
        if ends_with_hole {
            file.set_len(self.size())?;
        }
        Ok(())
    }

    /// Returns the content with the zeros of its holes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (offset, part) in self.parts() {
            bytes.resize(offset as usize, 0);
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

impl From<Vec<u8>> for SparseBytes {
    fn from(stored: Vec<u8>) -> Self {
        Self {
            stored,
            holes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn sample() -> (SparseBytes, Vec<u8>) {
        let mut sparse = SparseBytes::default();
        sparse.extend_from_slice(b"head");
        sparse.pad_to(16);
        sparse.extend_from_slice(b"near");
        sparse.pad_to(0x100_0000);
        sparse.extend_from_slice(b"far");
        sparse.pad_to(0x100_8000);
        let mut dense = vec![0; 0x100_8000];
        dense[..4].copy_from_slice(b"head");
        dense[16..20].copy_from_slice(b"near");
        dense[0x100_0000..0x100_0003].copy_from_slice(b"far");
        (sparse, dense)
    }

    #[test]
    fn long_runs_of_zeros_take_neither_memory_nor_blocks() {
        let (sparse, dense) = sample();
        assert_eq!(sparse.size(), dense.len() as u64);
        assert_eq!(sparse.stored_size(), 23);
        assert!(sparse.to_vec() == dense);
        let file = tempfile::NamedTempFile::new().unwrap();
        sparse.write_to(file.as_file()).unwrap();
        assert!(std::fs::read(file.path()).unwrap() == dense);
        let blocks = file.as_file().metadata().unwrap().blocks();
        assert!(blocks * 512 <= 0x1_0000, "{blocks} blocks");
    }

    #[test]
    fn zeros_of_a_page_are_a_hole_and_fewer_are_stored() {
        for (zeros, stored) in [(4095, 4096), (4096, 1)] {
            let mut sparse = SparseBytes::from(vec![7]);
            sparse.pad_to(1 + zeros);
            assert_eq!([sparse.size(), sparse.stored_size()], [1 + zeros, stored]);
        }
    }
}
