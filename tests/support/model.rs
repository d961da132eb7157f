//! An independent parser of perf.data, for comparing two files record by record.

use jitdump::ByteOrder;

/// Parts of a profile.
#[derive(PartialEq, Eq)]
pub struct Parts {
    pub endian: ByteOrder,
    /// Attributes without their size field and trailing zeros, which may differ in equal profiles.
    pub attrs: Vec<Vec<u8>>,
    pub ids: Vec<Vec<u8>>,
    pub records: Vec<Vec<u8>>,
    /// File offset of each record.
    pub offsets: Vec<usize>,
    /// Feature ID and content.
    pub features: Vec<(usize, Vec<u8>)>,
}

/// Parses a profile; panics if it is invalid.
pub fn parse(file: &[u8]) -> Parts {
    let endian = match &file[..8] {
        b"PERFILE2" => ByteOrder::Little,
        b"2ELIFREP" => ByteOrder::Big,
        other => panic!("{other:?}"),
    };
    let number = |at: usize| word(file, endian, at) as usize;
    assert_eq!(number(8), 104);
    let (entry, attrs, attrs_size) = (number(16), number(24), number(32));
    let (data, data_size) = (number(40), number(48));
    let mut parts = Parts {
        endian,
        attrs: Vec::new(),
        ids: Vec::new(),
        records: Vec::new(),
        offsets: Vec::new(),
        features: Vec::new(),
    };
    for at in (attrs..attrs + attrs_size).step_by(entry) {
        parts.attrs.push(attr(&file[at..at + entry - 16], endian));
        let (ids, size) = (number(at + entry - 16), number(at + entry - 8));
        parts.ids.push(file[ids..ids + size].to_vec());
    }
    let mut at = data;
    while at < data + data_size {
        let size = record_size(file, endian, at);
        parts.records.push(file[at..at + size].to_vec());
        parts.offsets.push(at);
        at += size;
    }
    assert_eq!(at, data + data_size, "the last record ends where the data do");
    let mut table = at;
    for id in 0..256 {
        if number(72 + id / 64 * 8) >> (id % 64) & 1 != 0 {
            let (offset, size) = (number(table), number(table + 8));
            parts.features.push((id, file[offset..offset + size].to_vec()));
            table += 16;
        }
    }
    parts
}

/// Returns an attribute without its size field, which must match the entry, and without trailing zeros.
fn attr(entry: &[u8], endian: ByteOrder) -> Vec<u8> {
    assert_eq!(kind(&entry[4..], endian) as usize, entry.len());
    let mut attr = entry.to_vec();
    attr[4..8].fill(0);
    let zeros = attr.iter().rev().take_while(|&&byte| byte == 0).count();
    attr.truncate(attr.len() - zeros);
    attr
}

/// Returns the size of the record at `at`, including the data after an AUXTRACE record.
fn record_size(file: &[u8], endian: ByteOrder, at: usize) -> usize {
    let size = half_word(file, endian, at + 6);
    match kind(&file[at..], endian) {
        71 => size + word(file, endian, at + 8) as usize,
        _ => size,
    }
}

/// Returns the type of a record.
pub fn kind(record: &[u8], endian: ByteOrder) -> u32 {
    let bytes: [u8; 4] = record[..4].try_into().unwrap();
    match endian {
        ByteOrder::Little => u32::from_le_bytes(bytes),
        ByteOrder::Big => u32::from_be_bytes(bytes),
    }
}

fn half_word(file: &[u8], endian: ByteOrder, at: usize) -> usize {
    let bytes: [u8; 2] = file[at..at + 2].try_into().unwrap();
    usize::from(match endian {
        ByteOrder::Little => u16::from_le_bytes(bytes),
        ByteOrder::Big => u16::from_be_bytes(bytes),
    })
}

/// Returns the 64-bit integer at `at`.
pub fn word(file: &[u8], endian: ByteOrder, at: usize) -> u64 {
    let bytes: [u8; 8] = file[at..at + 8].try_into().unwrap();
    match endian {
        ByteOrder::Little => u64::from_le_bytes(bytes),
        ByteOrder::Big => u64::from_be_bytes(bytes),
    }
}

/// Returns the file name in an MMAP or MMAP2 record; `None` for other records.
pub fn map_name(record: &[u8], endian: ByteOrder) -> Option<String> {
    let at = match kind(record, endian) {
        1 => 40,
        10 => 72,
        _ => return None,
    };
    let name = record[at..].split(|&byte| byte == 0).next().unwrap();
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Returns the start and end address of an MMAP or MMAP2 record.
pub fn map_range(record: &[u8], endian: ByteOrder) -> (u64, u64) {
    let start = word(record, endian, 16);
    (start, start + word(record, endian, 24))
}
