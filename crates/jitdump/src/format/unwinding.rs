//! UNWINDING_INFO records: the location of the `.eh_frame` section in a record and in memory.

use gimli::constants as dw;

use crate::bytes::{ByteOrder, Reader};
use crate::units::{Address, AddressRange};

/// An `.eh_frame` section as a runtime wrote it, not relocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unwinding<'a> {
    /// Bytes of the section.
    pub eh_frame: &'a [u8],
    /// Address of the section in memory, the base of its pc-relative pointers.
    pub placement: Placement,
}

/// Address of an `.eh_frame` section in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Offset in bytes from the end of the function's code, after that end is rounded up to a multiple of 8.
    /// perf inject puts the section there, and runtimes that write for perf rely on it.
    AfterCode(u64),
    /// Absolute address.
    At(Address),
}

/// The content of an UNWINDING_INFO record has an unknown layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownLayout;

/// The sizes at the start of an UNWINDING_INFO record, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnwindingSizes {
    /// Size of the `.eh_frame` and its header (`unwind_data_size`).
    pub data: u64,
    /// Size of the `.eh_frame_hdr` (`eh_frame_hdr_size`).
    pub header: u64,
    /// Size of the data that is mapped after the code (`mapped_size`). perf extends the function's mapping by
    /// it, even over other mappings.
    pub mapped: u64,
}

impl UnwindingSizes {
    /// Reads the next three sizes; `None` if the input is too short.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            data: reader.u64()?,
            header: reader.u64()?,
            mapped: reader.u64()?,
        })
    }
}

/// The version of every `.eh_frame_hdr`.
const HEADER_VERSION: u8 = 1;

impl<'a> Unwinding<'a> {
    /// Parses the content of an UNWINDING_INFO record; `Ok(None)` if it has no `.eh_frame`.
    ///
    /// Quirk: in the specification, the `.eh_frame_hdr` precedes the `.eh_frame`, and LLVM's ORC writes this
    /// order (capture llvm19-jitlink). perf reads the reverse order, and V8 and CPython write it (captures
    /// node20, cpython313). The content shows which one it is.
    ///
    /// Quirk: for code without unwinding tables, V8 writes only a header (capture node20).
    #[doc(hidden)]
    pub fn parse(content: &'a [u8], endian: ByteOrder) -> Result<Option<Self>, UnknownLayout> {
        let mut reader = Reader::new(content, endian);
        // The mapped size is not needed: the data is used wherever it was mapped.
        let sizes = UnwindingSizes::read(&mut reader).ok_or(UnknownLayout)?;
        let data = reader.bytes(sizes.data).ok_or(UnknownLayout)?;
        let frame_size = sizes.data.checked_sub(sizes.header).ok_or(UnknownLayout)?;
        if frame_size == 0 {
            return Ok(None);
        }
        let mut parts = Reader::new(data, endian);
        // V8's order of the parts: the header follows.
        if starts_with_entry(parts.rest(), endian) {
            return Ok(Some(Self {
                eh_frame: parts.bytes(frame_size).ok_or(UnknownLayout)?,
                placement: Placement::AfterCode(0),
            }));
        }
        let header = parts.bytes(sizes.header).ok_or(UnknownLayout)?;
        if header.first() != Some(&HEADER_VERSION) || !starts_with_entry(parts.rest(), endian) {
            return Err(UnknownLayout);
        }
        Ok(Some(Self {
            eh_frame: parts.rest(),
            placement: match eh_frame_address(header, endian) {
                Some(address) => Placement::At(address),
                None => Placement::AfterCode(sizes.header),
            },
        }))
    }
}

impl Unwinding<'_> {
    /// Returns the address that the section had in memory, after or near the code of its function.
    pub fn address(&self, code: AddressRange) -> Address {
        match self.placement {
            Placement::At(address) => address,
            Placement::AfterCode(distance) => {
                let behind = code.size().next_multiple_of(8).saturating_add(distance);
                Address(code.start.0.wrapping_add(behind))
            }
        }
    }
}

/// Numbers of entries in an `.eh_frame`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EhFrameEntries {
    /// Number of common information entries (CIE).
    pub cies: u64,
    /// Number of frame description entries (FDE), one for each function.
    pub fdes: u64,
}

impl EhFrameEntries {
    /// Counts the entries up to the terminator or the first truncated entry.
    pub fn count(eh_frame: &[u8], endian: ByteOrder) -> Self {
        let mut reader = Reader::new(eh_frame, endian);
        let mut entry = || {
            let length = reader.u32().filter(|&length| length > 0)?;
            Reader::new(reader.bytes(length.into())?, endian).u32()
        };
        let mut found = Self::default();
        while let Some(id) = entry() {
            let count = match id {
                0 => &mut found.cies,
                _ => &mut found.fdes,
            };
            *count = count.saturating_add(1);
        }
        found
    }
}

/// Whether bytes start with a CIE: an entry whose length fits and whose ID is 0.
fn starts_with_entry(bytes: &[u8], endian: ByteOrder) -> bool {
    let mut reader = Reader::new(bytes, endian);
    let length = reader.u32();
    let room = reader.rest().len() as u64;
    length.is_some_and(|length| length >= 4 && u64::from(length) <= room) && reader.u32() == Some(0)
}

/// The address of the `.eh_frame` in its header; `None` unless it is absolute. The encoding is that of the
/// Linux Standard Base's description of `.eh_frame_hdr`.
fn eh_frame_address(header: &[u8], endian: ByteOrder) -> Option<Address> {
    let mut reader = Reader::new(header, endian);
    let _version = reader.u8()?;
    let encoding = gimli::DwEhPe(reader.u8()?);
    let _count_and_table = reader.u16()?;
    if encoding.application() != dw::DW_EH_PE_absptr {
        return None;
    }
    match encoding.format() {
        // No table follows the pointer, so the header's size shows the width of a plain pointer.
        dw::DW_EH_PE_absptr if header.len() == 8 => reader.u32().map(u64::from),
        dw::DW_EH_PE_udata4 | dw::DW_EH_PE_sdata4 => reader.u32().map(u64::from),
        dw::DW_EH_PE_absptr | dw::DW_EH_PE_udata8 | dw::DW_EH_PE_sdata8 => reader.u64(),
        _ => None,
    }
    .map(Address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: ByteOrder = ByteOrder::Little;
    /// A CIE of eight bytes after its length.
    const FRAME: [u8; 12] = [8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];

    fn content(header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [data.len() as u64, header.len() as u64, 0] {
            ORDER.write_u64(&mut out, word);
        }
        out.extend_from_slice(data);
        out.extend_from_slice(&[0; 4]);
        out
    }

    #[test]
    fn either_order_of_header_and_frame_is_understood() {
        let header = [1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 0, 0, 0, 0];
        let frame_first = content(&header, &[&FRAME[..], &header].concat());
        let header_first = content(&header, &[&header[..], &FRAME].concat());
        let parsed = |content| Unwinding::parse(content, ORDER).unwrap().unwrap();
        let unwinding = parsed(&frame_first);
        assert_eq!(unwinding.eh_frame, FRAME);
        assert_eq!(unwinding.placement, Placement::AfterCode(0));
        let unwinding = parsed(&header_first);
        assert_eq!(unwinding.eh_frame, FRAME);
        assert_eq!(unwinding.placement, Placement::AfterCode(12));
    }

    #[test]
    fn an_absolute_address_in_the_header_is_where_the_frame_lies() {
        let header = [1, 0x0c, 0xff, 0xff, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0];
        let content = content(&header, &[&header[..], &FRAME].concat());
        let unwinding = Unwinding::parse(&content, ORDER).unwrap().unwrap();
        assert_eq!(unwinding.eh_frame, FRAME);
        assert_eq!(unwinding.placement, Placement::At(Address(0x1234_5678)));
    }

    #[test]
    fn a_header_alone_says_nothing_and_nonsense_is_not_understood() {
        let header = [1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Unwinding::parse(&content(&header, &header), ORDER), Ok(None));
        assert_eq!(
            Unwinding::parse(&content(&header, &[9; 40]), ORDER),
            Err(UnknownLayout)
        );
        assert_eq!(Unwinding::parse(b"short", ORDER), Err(UnknownLayout));
        let mut misleading = content(&header, &FRAME);
        misleading[0] = 0xff;
        assert_eq!(Unwinding::parse(&misleading, ORDER), Err(UnknownLayout));
    }
}
