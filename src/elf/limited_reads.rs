//! Reading of files that may claim sections of any size.

use std::cell::Cell;
use std::ops::Range;

use object::read::{ReadCache, ReadCacheOps, ReadRef};

/// Reads parts of a file, up to a number of bytes in all.
#[derive(Debug)]
pub struct LimitedReads<'c, R: ReadCacheOps> {
    cache: &'c ReadCache<R>,
    left: Cell<u64>,
}

impl<'c, R: ReadCacheOps> LimitedReads<'c, R> {
    /// Limits the number of bytes read.
    pub fn new(cache: &'c ReadCache<R>, limit: u64) -> Self {
        let left = Cell::new(limit);
        Self { cache, left }
    }

    fn take(&self, size: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        Ok(())
    }
}

impl<'c, R: ReadCacheOps> ReadRef<'c> for &LimitedReads<'c, R> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'c [u8], ()> {
        self.take(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'c [u8], ()> {
        // Names are read one by one, from a table that was counted, or through a buffer.
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn reads_end_at_the_limit() {
        let cache = ReadCache::new(Cursor::new(vec![7; 100]));
        let reads = LimitedReads::new(&cache, 50);
        assert_eq!((&reads).read_bytes_at(60, 40), Ok(&[7; 40][..]));
        assert_eq!((&reads).read_bytes_at(0, 11), Err(()));
        assert_eq!((&reads).read_bytes_at(0, 10), Ok(&[7; 10][..]));
    }
}
