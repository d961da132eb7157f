//! Splits a file into records, damages them, and tracks which ones are unchanged.

use std::ops::Range;

use jitdump::ByteOrder;
use jitinject_fuzz::generator::Random;

/// Format of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Profile,
    Dump,
}

/// A record, or the bytes before or after all records.
#[derive(Clone)]
pub struct Piece {
    /// Index of the original record; `None` for bytes before, after or between records.
    pub record: Option<usize>,
    pub bytes: Vec<u8>,
}

/// A file as pieces.
#[derive(Clone)]
pub struct Pieces {
    format: Format,
    pub endian: ByteOrder,
    pub pieces: Vec<Piece>,
}

/// Position of the size of the records in a profile's header.
pub const RECORDS_SIZE: Range<usize> = 48..56;

/// Kinds of damage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Damage {
    Cut,
    Bits,
    Length,
    Doubled,
    Dropped,
    Swapped,
    Zeroed,
    Inserted,
    Removed,
}

pub const DAMAGES: [Damage; 9] = [
    Damage::Cut,
    Damage::Bits,
    Damage::Length,
    Damage::Doubled,
    Damage::Dropped,
    Damage::Swapped,
    Damage::Zeroed,
    Damage::Inserted,
    Damage::Removed,
];

impl Pieces {
    /// Splits a valid file; `None` if it is invalid.
    pub fn new(file: &[u8], format: Format) -> Option<Self> {
        let (endian, data) = match format {
            Format::Profile => crate::profile::data(file)?,
            Format::Dump => {
                let endian = match file.get(..4)? {
                    b"DTiJ" => ByteOrder::Little,
                    _ => ByteOrder::Big,
                };
                (endian, endian.u32_at(file, 8)? as usize..file.len())
            }
        };
        let mut pieces = vec![Piece {
            record: None,
            bytes: file.get(..data.start)?.to_vec(),
        }];
        let mut at = data.start;
        for record in 0.. {
            let size = match format {
                Format::Profile => endian.u32_at(file, at + 4).map(|word| half(word, endian)),
                Format::Dump => endian.u32_at(file, at + 4),
            };
            let size = size.unwrap_or(0) as usize;
            if at >= data.end || size < 8 || at + size > data.end {
                break;
            }
            pieces.push(Piece {
                record: Some(record),
                bytes: file.get(at..at + size)?.to_vec(),
            });
            at += size;
        }
        pieces.push(Piece {
            record: None,
            bytes: file.get(at..)?.to_vec(),
        });
        Some(Self {
            format,
            endian,
            pieces,
        })
    }

    /// Returns the file.
    pub fn bytes(&self) -> Vec<u8> {
        self.pieces
            .iter()
            .flat_map(|piece| &piece.bytes)
            .copied()
            .collect()
    }

    /// Returns the index of a random record's piece; of any piece if there are no records.
    fn some_record(&self, random: &mut Random) -> usize {
        random.below(self.pieces.len().saturating_sub(2).max(1) as u64) as usize + 1
    }

    /// Damages the file at a random position.
    pub fn damage(&mut self, damage: Damage, random: &mut Random) {
        let at = self.some_record(random).min(self.pieces.len() - 1);
        let size: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let place = random.below(size.max(1) as u64) as usize;
        match damage {
            Damage::Cut => self.edit(place, size, |bytes| bytes.clear()),
            Damage::Bits => {
                for _ in 0..1 + random.below(8) {
                    let place = (place + random.below(64) as usize).min(size.saturating_sub(1));
                    let bit = 1 << random.below(8);
                    self.edit(place, place + 1, |bytes| bytes[0] ^= bit);
                }
            }
            Damage::Length => self.lie(at, random),
            Damage::Doubled => {
                let piece = self.pieces[at].clone();
                self.grow(piece.bytes.len() as u64);
                self.pieces.insert(at, piece);
            }
            Damage::Dropped => {
                let piece = self.pieces.remove(at);
                self.grow((piece.bytes.len() as u64).wrapping_neg());
            }
            Damage::Swapped => {
                let other = self.some_record(random).min(self.pieces.len() - 1);
                self.pieces.swap(at, other);
            }
            Damage::Zeroed => {
                let end = place + 8 + random.below(2000) as usize;
                self.edit(place, end, |bytes| bytes.fill(0));
            }
            Damage::Removed => {
                let end = place + 1 + random.below(300) as usize;
                self.edit(place, end, |bytes| bytes.clear());
            }
            Damage::Inserted => {
                let junk = (0..8 + random.below(250)).map(|_| random.below(256) as u8);
                let (record, bytes) = (None, junk.collect());
                self.pieces.insert(at, Piece { record, bytes });
            }
        }
    }

    /// Increases the size of the records in the header of a profile.
    fn grow(&mut self, bytes: u64) {
        let endian = self.endian;
        let place = self.pieces[0].bytes.get_mut(RECORDS_SIZE);
        if let (Format::Profile, Some(place)) = (self.format, place) {
            let size = endian.u64_at(place, 0).unwrap_or(0).wrapping_add(bytes);
            let mut word = Vec::new();
            endian.write_u64(&mut word, size);
            place.copy_from_slice(&word);
        }
    }

    /// Edits the parts of pieces in a range of the file; parts may get shorter.
    fn edit(&mut self, start: usize, end: usize, mut edit: impl FnMut(&mut Vec<u8>)) {
        let mut offset = 0;
        for piece in &mut self.pieces {
            let size = piece.bytes.len();
            let (from, to) = (start.max(offset), end.min(offset + size));
            if from < to {
                let mut part: Vec<u8> = piece.bytes[from - offset..to - offset].to_vec();
                edit(&mut part);
                piece.bytes.splice(from - offset..to - offset, part);
            }
            offset += size;
        }
    }

    /// Changes a length or a count in a record.
    fn lie(&mut self, at: usize, random: &mut Random) {
        const DUMP_WORDS: [usize; 4] = [16, 24, 32, 40];
        let endian = self.endian;
        let bytes = &mut self.pieces[at].bytes;
        let size = bytes.len() as u64;
        let values = [
            0,
            1,
            15,
            16,
            size - 1.min(size),
            size + 1,
            size * 2,
            0x7fff_ffff,
            u64::MAX,
        ];
        let value = values[random.below(values.len() as u64) as usize];
        let mut new = Vec::new();
        let field = match self.format {
            Format::Profile => {
                endian.write_u16(&mut new, value as u16);
                6
            }
            Format::Dump if random.below(2) == 0 => {
                endian.write_u32(&mut new, value as u32);
                4
            }
            Format::Dump => {
                endian.write_u64(&mut new, value);
                DUMP_WORDS[random.below(4) as usize]
            }
        };
        if let Some(place) = bytes.get_mut(field..field + new.len()) {
            place.copy_from_slice(&new);
        }
    }
}

/// Returns the size in the word after the type of a profile's record.
fn half(word: u32, endian: ByteOrder) -> u32 {
    match endian {
        ByteOrder::Little => word >> 16,
        ByteOrder::Big => word & 0xffff,
    }
}
