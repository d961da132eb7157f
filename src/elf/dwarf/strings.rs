//! String tables that units share (`.debug_str`, `.debug_line_str`).

use std::hash::BuildHasher;

use crate::collections::hash::{HashMap, RandomState};

/// A section of NUL-terminated strings without duplicates.
#[derive(Debug, Default)]
pub struct StringTable {
    /// Content of the section.
    pub bytes: Vec<u8>,
    /// Offset of each string. The key is its hash, or the next free integer after it if strings collide.
    offsets: HashMap<u64, u32>,
    /// Offset and key of each string, by ascending offset.
    keys: Vec<(usize, u64)>,
    hashing: RandomState,
    /// Cached facts about texts, by their address and length in memory.
    texts: HashMap<(usize, usize), CachedText>,
}

/// A string that may be long.
#[derive(Clone, Copy, Debug)]
struct CachedText {
    /// Whether it contains no NUL.
    has_no_nul: bool,
    /// Offset in the section, once it has been added.
    offset: Option<u32>,
}

impl StringTable {
    /// Returns the offset of the string that `write` appends; the string must not contain a NUL.
    pub fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.bytes.push(0);
        let (before, string) = self.bytes.split_at(start);
        let mut key = self.hashing.hash_one(string);
        while let Some(&offset) = self.offsets.get(&key) {
            let stored = before.get(offset as usize..);
            if stored.is_some_and(|stored| stored.starts_with(string)) {
                self.bytes.truncate(start);
                return offset;
            }
            key = key.wrapping_add(1);
        }
        self.offsets.insert(key, start as u32);
        self.keys.push((start, key));
        start as u32
    }

    /// Removes the last strings, back to an earlier length of the section.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        while let Some((_, key)) = self.keys.pop_if(|&mut (start, _)| start >= length) {
            self.offsets.remove(&key);
        }
        self.clear_text_cache();
    }

    /// Returns whether a text contains no NUL. Each text is scanned only once, so it must stay in memory until
    /// [`StringTable::clear_text_cache`].
    pub fn is_nul_free(&mut self, text: &[u8]) -> bool {
        self.text(text).has_no_nul
    }

    /// Returns the offset of a text; appends it the first time.
    pub fn add_text(&mut self, text: &[u8]) -> u32 {
        if let Some(offset) = self.text(text).offset {
            return offset;
        }
        let offset = self.add(|out| out.extend_from_slice(text));
        self.text(text).offset = Some(offset);
        offset
    }

    fn text(&mut self, text: &[u8]) -> &mut CachedText {
        let key = (text.as_ptr() as usize, text.len());
        self.texts.entry(key).or_insert_with(|| CachedText {
            has_no_nul: memchr::memchr(0, text).is_none(),
            offset: None,
        })
    }

    /// Discards the cached facts about texts, since their memory may be reused.
    pub fn clear_text_cache(&mut self) {
        self.texts.clear();
    }

    /// Removes all strings and frees memory above `kept` bytes.
    pub fn clear(&mut self, kept: usize) {
        const ENTRY_SIZE: usize = size_of::<(u64, u32)>();
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        self.offsets.clear();
        self.keys.clear();
        self.keys.shrink_to(kept / ENTRY_SIZE);
        self.clear_text_cache();
        self.offsets.shrink_to(kept / ENTRY_SIZE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_stored_once() {
        let mut strings = StringTable::default();
        let mut add = |text: &[u8]| strings.add(|out| out.extend_from_slice(text));
        assert_eq!([add(b"one"), add(b""), add(b"two"), add(b"")], [0, 4, 5, 4]);
        assert_eq!([add(b"on"), add(b"one"), add(b"two")], [9, 0, 5]);
        assert_eq!(strings.bytes, b"one\0\0two\0on\0");
    }

    #[test]
    fn truncated_strings_are_not_found() {
        let mut strings = StringTable::default();
        let add = |strings: &mut StringTable, text: &[u8]| strings.add(|out| out.extend_from_slice(text));
        add(&mut strings, b"stays");
        add(&mut strings, b"goes");
        add(&mut strings, b"goes too");
        strings.truncate(6);
        assert_eq!(add(&mut strings, b"goes too"), 6);
        assert_eq!(add(&mut strings, b"goes"), 15);
        assert_eq!(add(&mut strings, b"stays"), 0);
        assert_eq!(strings.bytes, b"stays\0goes too\0goes\0");
    }
}
