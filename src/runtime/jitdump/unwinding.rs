//! UNWINDING_INFO records: where in them the `.eh_frame` is, and to which address it belongs.

use gimli::constants as dw;

use crate::bytes::{ByteOrder, Reader};
use crate::units::Address;

/// An `.eh_frame` as a runtime wrote it, not relocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unwinding<'a> {
    /// The section.
    pub eh_frame: &'a [u8],
    /// Where it lies, which its pc-relative pointers count from.
    pub placement: Placement,
}

/// Where an `.eh_frame` lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// So many bytes behind the end of the code of its function, once that end is rounded up to a multiple of
    /// 8: perf inject puts it there, and runtimes that know perf count on it.
    BehindCode(u64),
    /// At this address.
    At(Address),
}

/// The record's content is none of the forms that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotUnderstood;

/// What an UNWINDING_INFO record starts with: sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Of the `.eh_frame` and its header (`unwind_data_size`).
    pub data: u64,
    /// Of the `.eh_frame_hdr` (`eh_frame_hdr_size`).
    pub header: u64,
    /// Of what lies behind the code in memory (`mapped_size`): perf makes the function's map longer by it, over
    /// whatever is there.
    pub mapped: u64,
}

impl Sizes {
    /// The next ones; `None` where there is less.
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
    /// Reads the content of an UNWINDING_INFO record; `None` where it says that there is nothing.
    ///
    /// Quirk: the specification has the `.eh_frame_hdr` first and the `.eh_frame` behind it, and LLVM's ORC
    /// writes that (capture llvm19-jitlink); perf reads it the other way round, and V8 and CPython write that
    /// (captures node20, cpython313). The content tells.
    ///
    /// Quirk: V8 writes a header alone for all code that it has no tables for, which is to say nothing
    /// (capture node20).
    pub fn parse(content: &'a [u8], order: ByteOrder) -> Result<Option<Self>, NotUnderstood> {
        let mut reader = Reader::new(content, order);
        // What the tables are for, not where they were, is all that matters here, and so not what is mapped.
        let sizes = Sizes::read(&mut reader).ok_or(NotUnderstood)?;
        let data = reader.bytes(sizes.data).ok_or(NotUnderstood)?;
        let frame_size = sizes.data.checked_sub(sizes.header).ok_or(NotUnderstood)?;
        if frame_size == 0 {
            return Ok(None);
        }
        let mut data = Reader::new(data, order);
        if starts_with_entry(data.rest(), order) {
            return Ok(Some(Self {
                eh_frame: data.bytes(frame_size).ok_or(NotUnderstood)?,
                placement: Placement::BehindCode(0),
            }));
        }
        let header = data.bytes(sizes.header).ok_or(NotUnderstood)?;
        if header.first() != Some(&HEADER_VERSION) || !starts_with_entry(data.rest(), order) {
            return Err(NotUnderstood);
        }
        Ok(Some(Self {
            eh_frame: data.rest(),
            placement: match eh_frame_address(header, order) {
                Some(address) => Placement::At(address),
                None => Placement::BehindCode(sizes.header),
            },
        }))
    }
}

/// What there is in an `.eh_frame`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entries {
    /// Entries that others refer to (CIE).
    pub common: u64,
    /// Entries of functions (FDE).
    pub functions: u64,
}

impl Entries {
    /// Counts the entries up to the mark of the end, or as far as they are whole.
    pub fn count(eh_frame: &[u8], order: ByteOrder) -> Self {
        let mut reader = Reader::new(eh_frame, order);
        let mut entry = || {
            let length = reader.u32().filter(|&length| length > 0)?;
            Reader::new(reader.bytes(length.into())?, order).u32()
        };
        let mut found = Self::default();
        while let Some(id) = entry() {
            let count = match id {
                0 => &mut found.common,
                _ => &mut found.functions,
            };
            *count = count.saturating_add(1);
        }
        found
    }
}

/// Whether bytes start with a CIE: an entry whose length fits and whose id is 0.
fn starts_with_entry(bytes: &[u8], order: ByteOrder) -> bool {
    let mut reader = Reader::new(bytes, order);
    let length = reader.u32();
    let room = reader.rest().len() as u64;
    length.is_some_and(|length| length >= 4 && u64::from(length) <= room) && reader.u32() == Some(0)
}

/// The address of the `.eh_frame` in its header, where that is absolute; from the Linux Standard Base's
/// description of `.eh_frame_hdr`.
fn eh_frame_address(header: &[u8], order: ByteOrder) -> Option<Address> {
    let mut reader = Reader::new(header, order);
    let _version = reader.u8()?;
    let encoding = gimli::DwEhPe(reader.u8()?);
    let _count_and_table = reader.u16()?;
    if encoding.application() != dw::DW_EH_PE_absptr {
        return None;
    }
    match encoding.format() {
        // How wide a plain pointer is, the header itself shows: a table of nothing follows it.
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
    /// A CIE of eight bytes.
    const FRAME: [u8; 12] = [8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];

    fn content(header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [data.len() as u64, header.len() as u64, 0] {
            ORDER.put_u64(&mut out, word);
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
        assert_eq!(unwinding.placement, Placement::BehindCode(0));
        let unwinding = parsed(&header_first);
        assert_eq!(unwinding.eh_frame, FRAME);
        assert_eq!(unwinding.placement, Placement::BehindCode(12));
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
            Err(NotUnderstood)
        );
        assert_eq!(Unwinding::parse(b"short", ORDER), Err(NotUnderstood));
        let mut lies = content(&header, &FRAME);
        lies[0] = 0xff;
        assert_eq!(Unwinding::parse(&lies, ORDER), Err(NotUnderstood));
    }
}
