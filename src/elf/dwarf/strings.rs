//! String tables that units share (`.debug_str`, `.debug_line_str`).

use std::hash::BuildHasher;

use crate::hash::{HashMap, RandomState};

/// A section of NUL-terminated strings without duplicates.
#[derive(Debug, Default)]
pub struct Strings {
    /// Content of the section.
    pub bytes: Vec<u8>,
    /// Offset of each string. The key is its hash, or the next free integer after it if strings collide.
    places: HashMap<u64, u32>,
    /// Offset and key of each string, by ascending offset.
    keys: Vec<(usize, u64)>,
    hashing: RandomState,
    /// Cached facts about texts, by their address and length in memory.
    texts: HashMap<(usize, usize), Text>,
}

/// A string that may be long.
#[derive(Clone, Copy, Debug)]
struct Text {
    /// Whether it contains no NUL.
    is_string: bool,
    /// Offset in the section, once it has been added.
    place: Option<u32>,
}

impl Strings {
    /// Returns the offset of the string that `put` appends; the string must not contain a NUL.
    pub fn add(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let start = self.bytes.len();
        put(&mut self.bytes);
        self.bytes.push(0);
        let (before, string) = self.bytes.split_at(start);
        let mut key = self.hashing.hash_one(string);
        while let Some(&place) = self.places.get(&key) {
            let there = before.get(place as usize..);
            if there.is_some_and(|there| there.starts_with(string)) {
                self.bytes.truncate(start);
                return place;
            }
            key = key.wrapping_add(1);
        }
        self.places.insert(key, start as u32);
        self.keys.push((start, key));
        start as u32
    }

    /// Removes the last strings, back to an earlier length of the section.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        while let Some((_, key)) = self.keys.pop_if(|&mut (start, _)| start >= length) {
            self.places.remove(&key);
        }
        self.forget_texts();
    }

    /// Returns whether a text contains no NUL. Each text is scanned only once, so it must stay in memory until
    /// [`Strings::forget_texts`].
    pub fn can_add(&mut self, text: &[u8]) -> bool {
        self.text(text).is_string
    }

    /// Returns the offset of a text; appends it the first time.
    pub fn add_text(&mut self, text: &[u8]) -> u32 {
        if let Some(place) = self.text(text).place {
            return place;
        }
        let place = self.add(|out| out.extend_from_slice(text));
        self.text(text).place = Some(place);
        place
    }

    fn text(&mut self, text: &[u8]) -> &mut Text {
        let key = (text.as_ptr() as usize, text.len());
        self.texts.entry(key).or_insert_with(|| Text {
            is_string: memchr::memchr(0, text).is_none(),
            place: None,
        })
    }

    /// Discards the cached facts about texts, since their memory may be reused.
    pub fn forget_texts(&mut self) {
        self.texts.clear();
    }

    /// Removes all strings and frees memory above `kept` bytes.
    pub fn clear(&mut self, kept: usize) {
        const PLACE: usize = size_of::<(u64, u32)>();
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        self.places.clear();
        self.keys.clear();
        self.keys.shrink_to(kept / PLACE);
        self.forget_texts();
        self.places.shrink_to(kept / PLACE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_string_stands_there_once() {
        let mut strings = Strings::default();
        let mut add = |text: &[u8]| strings.add(|out| out.extend_from_slice(text));
        assert_eq!([add(b"one"), add(b""), add(b"two"), add(b"")], [0, 4, 5, 4]);
        assert_eq!([add(b"on"), add(b"one"), add(b"two")], [9, 0, 5]);
        assert_eq!(strings.bytes, b"one\0\0two\0on\0");
    }

    #[test]
    fn strings_that_were_taken_back_are_not_found() {
        let mut strings = Strings::default();
        let add = |strings: &mut Strings, text: &[u8]| strings.add(|out| out.extend_from_slice(text));
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
