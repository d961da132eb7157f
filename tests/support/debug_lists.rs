//! Writes DEBUG_INFO2 records with six lists, also such as no runtime would write.

use jitdump::ByteOrder;

/// Type of the record.
pub const KIND: u32 = 827_346_259;

/// Content of a record. Numbers are in the order of the format.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    pub files: Vec<&'static [u8]>,
    pub names: Vec<&'static [u8]>,
    /// Name, file, line, column, flags.
    pub functions: Vec<[u32; 5]>,
    /// Depth, number of ranges, function, line, column.
    pub calls: Vec<[u32; 5]>,
    /// Offset and size.
    pub ranges: Vec<[u32; 2]>,
    /// Offset, file, line, column.
    pub lines: Vec<[u32; 4]>,
}

impl Lists {
    /// A function `outer` of `/src/a.c`, and `inner`, declared in line 50 of `/src/b.c`.
    pub fn new() -> Self {
        Self {
            files: vec![b"/src/a.c", b"/src/b.c"],
            names: vec![b"outer", b"inner"],
            functions: vec![[0, 0, 1, 0, 0], [1, 1, 50, 0, 0]],
            lines: vec![[0, 0, 10, 0], [16, 0, 11, 0]],
            ..Self::default()
        }
    }

    pub fn content(&self, endian: ByteOrder) -> Vec<u8> {
        self.with_sizes(endian, |size| size.next_multiple_of(4))
    }

    /// Returns the content with the sizes of the lists of strings that `stated` returns. Their padding is there anyway.
    pub fn with_sizes(&self, endian: ByteOrder, stated: impl Fn(usize) -> usize) -> Vec<u8> {
        let strings = |list: &[&[u8]]| -> Vec<u8> {
            list.iter().flat_map(|name| [name, &b"\0"[..]].concat()).collect()
        };
        let (mut files, mut names) = (strings(&self.files), strings(&self.names));
        let mut out = Vec::new();
        for number in [
            self.files.len(),
            stated(files.len()),
            self.names.len(),
            stated(names.len()),
            self.functions.len(),
            self.calls.len(),
            self.ranges.len(),
            self.lines.len(),
        ] {
            endian.write_u32(&mut out, number as u32);
        }
        for list in [&mut files, &mut names] {
            list.resize(list.len().next_multiple_of(4), 0);
            out.extend_from_slice(list);
        }
        let numbers = [
            self.functions.concat(),
            self.calls.concat(),
            self.ranges.concat(),
            self.lines.concat(),
        ];
        for number in numbers.concat() {
            endian.write_u32(&mut out, number);
        }
        out
    }
}
