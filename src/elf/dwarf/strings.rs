//! Strings that units share (`.debug_str`, `.debug_line_str`).

use std::hash::BuildHasher;

use crate::hash::{HashMap, RandomState};

/// Strings, each behind the other and followed by a NUL, the same ones once.
#[derive(Debug, Default)]
pub struct Strings {
    /// The section.
    pub bytes: Vec<u8>,
    /// Where each string starts. The key is its hash, or the next free number after it if strings collide.
    places: HashMap<u64, u32>,
    /// The start and key of each string, in order.
    keys: Vec<(usize, u64)>,
    hashing: RandomState,
    /// What is known of texts, by where they lie in memory here.
    texts: HashMap<(usize, usize), Text>,
}

/// A string that may be long.
#[derive(Clone, Copy, Debug)]
struct Text {
    /// Whether it has no NUL.
    is_string: bool,
    /// Where it starts, once it was added.
    place: Option<u32>,
}

impl Strings {
    /// The offset of the string that `put` appends, which must have no NUL.
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

    /// Whether a text has no NUL. Each text is looked at once, however often it is asked for: it must stay in memory
    /// until all is forgotten.
    pub fn can_add(&mut self, text: &[u8]) -> bool {
        self.text(text).is_string
    }

    /// The offset of a text, which is appended the first time.
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

    /// Forgets where texts start, since some may be gone.
    pub fn forget_texts(&mut self) {
        self.texts.clear();
    }

    /// Forgets all strings, and gives back memory above `kept` bytes.
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
