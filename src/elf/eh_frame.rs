//! Reads `.eh_frame` sections of runtimes and rebuilds them for the objects.
//!
//! Runtimes write unwinding tables for one address in memory; in the objects, the code has other addresses. So the
//! entries of a function (FDE) are read relative to the original address and written relative to the new one,
//! together with their common parts (CIE) and the sorted index in `.eh_frame_hdr`, which perf's unwinders search.
//! The unwinding instructions are copied unchanged.
//!
//! The format is defined in the Linux Standard Base 5.0, "Exception Frames", and in DWARF 5, section 6.4.

use gimli::constants as dw;
use jitdump::{Address, AddressRange, ByteOrder};

use crate::bytes::Reader;
use crate::collections::hash::HashMap;

/// An `.eh_frame` section and the address that it had in memory.
#[derive(Clone, Copy, Debug)]
pub struct EhFrame<'a> {
    /// Content of the section.
    pub section: &'a [u8],
    /// Address of its first byte.
    pub address: Address,
    /// Endianness of its integers.
    pub endian: ByteOrder,
    /// Size of an address in bytes.
    pub address_size: u64,
}

/// Unwinding entry of a function (FDE) with its common part (CIE).
#[derive(Clone, Copy, Debug)]
pub struct Fde<'a> {
    /// Addresses that the entry applies to.
    pub range: AddressRange,
    /// Unwinding instructions.
    instructions: &'a [u8],
    cie: Cie<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cie<'a> {
    version: u8,
    augmentation: &'a [u8],
    /// Encoded alignment factors and return address register.
    factors: &'a [u8],
    instructions: &'a [u8],
    /// Encoding of the addresses in the entries.
    pointers: gimli::DwEhPe,
    /// Whether the entries have augmentation data.
    has_augmentation_data: bool,
}

/// The entries of an `.eh_frame` section, searchable by address.
#[derive(Clone, Debug, Default)]
pub struct FdeIndex<'a> {
    /// Entries by ascending address; they don't overlap.
    sorted: Vec<Fde<'a>>,
    /// For each entry, the maximum size of all entries before it in bytes; then the size of all.
    sizes: Vec<u64>,
}

impl<'a> FdeIndex<'a> {
    /// Reads all valid entries of a section.
    pub fn read(frame: EhFrame<'a>) -> Self {
        let mut sorted = Vec::new();
        let mut offset = 0;
        let mut cies = HashMap::default();
        while let Some((content, next)) = frame.content(offset) {
            sorted.extend(frame.entry(offset, content, &mut cies));
            offset = next;
        }
        sorted.sort_by_key(|entry: &Fde<'_>| entry.range);
        // Unwinders find one entry for an address. Entries overlap only in damaged sections; the one with the
        // lowest address is kept.
        sorted.dedup_by(|next, kept| next.range.start < kept.range.end);
        let mut size = 0u64;
        let mut sizes = vec![0];
        sizes.extend(sorted.iter().map(|entry| {
            size = size.saturating_add(entry.max_size());
            size
        }));
        Self { sorted, sizes }
    }

    /// Returns an upper bound of the size of the tables for addresses in `code`, in bytes. The cost does not
    /// depend on the number of entries in the range.
    pub fn max_size_of(&self, code: AddressRange) -> u64 {
        let first = self.sorted.partition_point(|entry| entry.range.end <= code.start);
        let end = self.sorted.partition_point(|entry| entry.range.start < code.end);
        let size = |at: usize| self.sizes.get(at).copied().unwrap_or_default();
        size(end).saturating_sub(size(first))
    }

    /// Returns the entry for an address, and its position among the entries.
    pub fn at(&self, address: Address) -> Option<(usize, Fde<'a>)> {
        let after = self.sorted.partition_point(|entry| entry.range.start <= address);
        let position = after.checked_sub(1)?;
        let entry = self.sorted.get(position)?;
        entry.range.contains(address).then_some((position, *entry))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the entries for addresses in `code`, by descending address.
    pub fn overlapping(&self, code: AddressRange) -> impl Iterator<Item = Fde<'a>> {
        let end = self.sorted.partition_point(|entry| entry.range.start < code.end);
        let before = self.sorted.get(..end).unwrap_or_default();
        let overlapping = before.iter().rev();
        overlapping
            .take_while(move |entry| entry.range.overlaps(code))
            .copied()
    }
}

/// CIEs are a few dozen bytes long. Longer ones are considered invalid, because they would be written repeatedly.
const MAX_CIE_SIZE: usize = 512;

impl Fde<'_> {
    /// Returns the maximum size of the entry with its CIE, its index entry and padding, in bytes.
    fn max_size(&self) -> u64 {
        const FIELDS: u64 = 64;
        let cie = self
            .cie
            .instructions
            .len()
            .saturating_add(self.cie.augmentation.len());
        FIELDS.saturating_add(cie.saturating_add(self.instructions.len()) as u64)
    }

    /// Returns the entry, shortened to addresses below `end`.
    pub fn truncated_at(mut self, end: Address) -> Self {
        self.range.end = self.range.end.min(end);
        self
    }
}

impl<'a> EhFrame<'a> {
    /// Returns the content of the entry at `offset`, after its length, and the offset of the next entry; `None` at
    /// the end.
    fn content(self, offset: usize) -> Option<(&'a [u8], usize)> {
        let mut reader = Reader::new(self.section.get(offset..)?, self.endian);
        let length = reader.u32()?;
        // A length of 0 ends the section. Sections of more than 4 GiB don't occur.
        if length == 0 || length == u32::MAX {
            return None;
        }
        let content = reader.bytes(length.into())?;
        let next = offset.checked_add(4)?.checked_add(content.len())?;
        Some((content, next))
    }

    /// Returns the entry at an address of the section in memory.
    #[cfg(feature = "check")]
    pub fn entry_at(self, address: Address) -> Option<Fde<'a>> {
        let offset = usize::try_from(address.0.wrapping_sub(self.address.0)).ok()?;
        let (content, _) = self.content(offset)?;
        self.entry(offset, content, &mut HashMap::default())
    }

    /// Parses the entry at `offset`; `None` if it is a CIE or invalid. `cies` caches the CIEs read, by offset.
    fn entry(
        self,
        offset: usize,
        content: &'a [u8],
        cies: &mut HashMap<usize, Option<Cie<'a>>>,
    ) -> Option<Fde<'a>> {
        let mut reader = Reader::new(content, self.endian);
        let back_to_cie = usize::try_from(reader.u32()?).ok()?;
        if back_to_cie == 0 {
            return None;
        }
        let cie_offset = offset.checked_add(4)?.checked_sub(back_to_cie)?;
        let cie = *cies
            .entry(cie_offset)
            .or_insert_with(|| self.cie(self.content(cie_offset)?.0));
        let cie = cie?;
        let read = content.len().checked_sub(reader.rest().len())?;
        let position = self.position(offset, read)?;
        let start = self.pointer(&mut reader, cie.pointers, position)?;
        let size = self.pointer(&mut reader, cie.pointers.format(), Address(0))?;
        if cie.has_augmentation_data {
            let size = uleb128(&mut reader)?;
            reader.skip(size)?;
        }
        let instructions = reader.rest();
        check_relocatable(instructions, self)?;
        Some(Fde {
            range: AddressRange::new(start, size.0)?,
            instructions,
            cie,
        })
    }

    /// Returns the address of byte `read` in the content of the entry at `offset`.
    fn position(self, offset: usize, read: usize) -> Option<Address> {
        let position = u64::try_from(offset.checked_add(4)?.checked_add(read)?).ok()?;
        Some(Address(self.address.0.wrapping_add(position)))
    }

    /// Parses a CIE with this content; `None` if it is invalid, or not valid at another address.
    fn cie(self, content: &'a [u8]) -> Option<Cie<'a>> {
        let mut reader = Reader::new(content, self.endian);
        if reader.u32()? != 0 || content.len() > MAX_CIE_SIZE {
            return None;
        }
        let version = reader.u8()?;
        if !matches!(version, 1 | 3) {
            return None;
        }
        let augmentation = reader.c_string()?;
        let from_factors = reader.rest();
        let _code_alignment = uleb128(&mut reader)?;
        let _data_alignment = uleb128(&mut reader)?;
        // The register of the return address.
        match version {
            1 => reader.skip(1)?,
            _ => uleb128(&mut reader).map(|_| ())?,
        }
        let size = from_factors.len().checked_sub(reader.rest().len())?;
        let factors = from_factors.get(..size)?;
        let mut pointers = dw::DW_EH_PE_absptr;
        let has_augmentation_data = augmentation.first() == Some(&b'z');
        if has_augmentation_data {
            let size = uleb128(&mut reader)?;
            let mut data = Reader::new(reader.bytes(size)?, self.endian);
            pointers = self.pointer_encoding(augmentation, &mut data)?;
        } else if !augmentation.is_empty() {
            return None;
        }
        let instructions = reader.rest();
        check_relocatable(instructions, self)?;
        Some(Cie {
            version,
            augmentation,
            factors,
            instructions,
            pointers,
            has_augmentation_data,
        })
    }

    /// Returns the address encoding that the augmentation specifies.
    fn pointer_encoding(self, augmentation: &[u8], data: &mut Reader<'a>) -> Option<gimli::DwEhPe> {
        let mut pointers = dw::DW_EH_PE_absptr;
        for letter in augmentation.iter().skip(1) {
            match letter {
                b'R' => pointers = gimli::DwEhPe(data.u8()?),
                b'L' => data.skip(1)?,
                b'P' => {
                    let encoding = gimli::DwEhPe(data.u8()?);
                    self.pointer(data, encoding.format(), Address(0))?;
                }
                b'S' | b'B' | b'G' => {}
                _ => return None,
            }
        }
        Some(pointers)
    }

    /// Reads a pointer that is located at the address `position`; `None` if it is cut, or relative to anything but itself.
    fn pointer(self, reader: &mut Reader<'_>, encoding: gimli::DwEhPe, position: Address) -> Option<Address> {
        let value = match encoding.format() {
            dw::DW_EH_PE_absptr if self.address_size == 4 => reader.u32()?.into(),
            dw::DW_EH_PE_absptr | dw::DW_EH_PE_udata8 | dw::DW_EH_PE_sdata8 => reader.u64()?,
            dw::DW_EH_PE_udata2 => reader.u16()?.into(),
            dw::DW_EH_PE_sdata2 => i64::from(reader.u16()? as i16) as u64,
            dw::DW_EH_PE_udata4 => reader.u32()?.into(),
            dw::DW_EH_PE_sdata4 => i64::from(reader.u32()? as i32) as u64,
            dw::DW_EH_PE_uleb128 => uleb128(reader)?,
            _ => return None,
        };
        let base = match encoding.application() {
            _ if encoding.is_indirect() => return None,
            dw::DW_EH_PE_absptr => 0,
            dw::DW_EH_PE_pcrel => position.0,
            _ => return None,
        };
        let address = base.wrapping_add(value);
        Some(Address(match self.address_size {
            4 => address & u64::from(u32::MAX),
            _ => address,
        }))
    }
}

/// Returns `Some` if the instructions are valid at any address, as all except `DW_CFA_set_loc` are. Returns `None`
/// for unsupported instructions as well.
fn check_relocatable(instructions: &[u8], frame: EhFrame<'_>) -> Option<()> {
    let mut reader = Reader::new(instructions, frame.endian);
    while let Some(byte) = reader.u8() {
        // The two highest bits are an opcode of their own, with an operand in the others.
        let primary = gimli::DwCfa(byte & 0xc0);
        match primary {
            dw::DW_CFA_advance_loc | dw::DW_CFA_restore => continue,
            dw::DW_CFA_offset => {
                uleb128(&mut reader)?;
                continue;
            }
            _ => {}
        }
        match gimli::DwCfa(byte) {
            dw::DW_CFA_set_loc => return None,
            dw::DW_CFA_advance_loc1 => reader.skip(1)?,
            dw::DW_CFA_advance_loc2 => reader.skip(2)?,
            dw::DW_CFA_advance_loc4 => reader.skip(4)?,
            dw::DW_CFA_offset_extended
            | dw::DW_CFA_register
            | dw::DW_CFA_def_cfa
            | dw::DW_CFA_offset_extended_sf
            | dw::DW_CFA_def_cfa_sf
            | dw::DW_CFA_val_offset
            | dw::DW_CFA_val_offset_sf => {
                uleb128(&mut reader)?;
                uleb128(&mut reader)?;
            }
            dw::DW_CFA_restore_extended
            | dw::DW_CFA_undefined
            | dw::DW_CFA_same_value
            | dw::DW_CFA_def_cfa_register
            | dw::DW_CFA_def_cfa_offset
            | dw::DW_CFA_def_cfa_offset_sf
            | dw::DW_CFA_GNU_args_size => {
                uleb128(&mut reader)?;
            }
            dw::DW_CFA_def_cfa_expression => {
                let size = uleb128(&mut reader)?;
                reader.skip(size)?;
            }
            dw::DW_CFA_expression | dw::DW_CFA_val_expression => {
                uleb128(&mut reader)?;
                let size = uleb128(&mut reader)?;
                reader.skip(size)?;
            }
            dw::DW_CFA_nop
            | dw::DW_CFA_remember_state
            | dw::DW_CFA_restore_state
            | dw::DW_CFA_AARCH64_negate_ra_state => {}
            _ => return None,
        }
    }
    Some(())
}

/// Reads an unsigned LEB128 integer, or skips a signed one.
fn uleb128(reader: &mut Reader<'_>) -> Option<u64> {
    let mut value = 0u64;
    let mut shift = 0u32;
    loop {
        let byte = reader.u8()?;
        if shift < 64 {
            value |= u64::from(byte & 0x7f) << shift;
        }
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift = shift.saturating_add(7);
    }
}

/// Unwinding tables of an object: `.eh_frame`, immediately followed by `.eh_frame_hdr`.
#[derive(Clone, Debug, Default)]
pub struct UnwindTables {
    /// Content of both sections.
    pub bytes: Vec<u8>,
    /// Size of `.eh_frame` in bytes.
    pub eh_frame_size: usize,
    /// Number of entries.
    pub entries: usize,
}

/// Target layout of the unwinding tables.
#[derive(Clone, Copy, Debug)]
pub struct TableLayout {
    /// Address of `.eh_frame` in the object.
    pub eh_frame: u64,
    /// Endianness.
    pub endian: ByteOrder,
    /// Size of an address in bytes, to which entries are padded.
    pub address_size: u64,
}

impl UnwindTables {
    /// Builds tables of `entries`, each with its new start address in the object. Returns `None` if the code is
    /// more than 2 GiB away from the tables, because their distances have 32 bits, or an entry is too large.
    ///
    /// Tables without entries are useful, too: libunwind gives up on a function without an `.eh_frame_hdr`, but
    /// follows the frame pointer if the header has no entry for it.
    pub fn build<'a>(entries: impl Iterator<Item = (Fde<'a>, u64)>, layout: TableLayout) -> Option<Self> {
        let mut writer = Writer {
            out: Vec::new(),
            layout,
        };
        let mut cies: Vec<(Cie<'a>, usize)> = Vec::new();
        let mut index = Vec::new();
        for (entry, start) in entries {
            let mut recent = cies.iter().rev().take(RECENT_CIES);
            let cie_offset = match recent.find(|(cie, _)| *cie == entry.cie) {
                Some(&(_, offset)) => offset,
                None => {
                    let offset = writer.cie(&entry.cie);
                    cies.push((entry.cie, offset));
                    offset
                }
            };
            let offset = writer.fde(&entry, cie_offset, start)?;
            index.push((start, offset));
        }
        let count = index.len();
        writer.end_of_entries();
        let eh_frame_size = writer.out.len();
        writer.header(index)?;
        Some(Self {
            bytes: writer.out,
            eh_frame_size,
            entries: count,
        })
    }

    /// Moves the tables, but not the code, to an address that is `distance` bytes higher. `endian` is that of their
    /// layout. Returns `None` if they are then more than 2 GiB away from the code.
    pub fn moved(mut self, distance: i64, endian: ByteOrder) -> Option<Self> {
        let header = self.eh_frame_size;
        let first_row = header.checked_add(INDEX_OFFSET)?;
        for row in (first_row..).step_by(INDEX_ROW_SIZE).take(self.entries) {
            // The code is at two distances: in the row, from the header, and in the entry, from itself. All others are
            // between two positions in the tables, so they stay.
            let to_entry = self.distance_at(row.checked_add(INDEX_ENTRY_OFFSET)?, endian)?;
            let entry = header.checked_add_signed(isize::try_from(to_entry).ok()?)?;
            for at in [row, entry.checked_add(FDE_ADDRESS_OFFSET)?] {
                let to_code = self.distance_at(at, endian)?.checked_sub(distance)?;
                endian.set_u32(&mut self.bytes, at, i32::try_from(to_code).ok()? as u32);
            }
        }
        Some(self)
    }

    /// Reads the signed distance at an offset.
    fn distance_at(&self, at: usize, endian: ByteOrder) -> Option<i64> {
        let distance = Reader::new(self.bytes.get(at..)?, endian).u32()?;
        Some((distance as i32).into())
    }
}

/// Offset of the address in an entry, after its length and the distance of its CIE, in bytes.
const FDE_ADDRESS_OFFSET: usize = 8;

/// Offset of the index in `.eh_frame_hdr`, in bytes.
const INDEX_OFFSET: usize = 12;

/// Size of a row of the index, in bytes: the distances of a function and of its entry.
const INDEX_ROW_SIZE: usize = 8;

/// Offset of the distance of the entry in a row of the index, in bytes.
const INDEX_ENTRY_OFFSET: usize = 4;

/// Number of recent CIEs that are searched for an equal one. Runtimes use one or two; hostile files may have one
/// per entry.
const RECENT_CIES: usize = 8;

/// Encoding of all pointers in the tables: signed 32-bit distances from the pointer's own address.
const POINTERS: u8 = dw::DW_EH_PE_pcrel.0 | dw::DW_EH_PE_sdata4.0;

struct Writer {
    out: Vec<u8>,
    layout: TableLayout,
}

impl Writer {
    fn u32(&mut self, value: u32) {
        self.layout.endian.write_u32(&mut self.out, value);
    }

    /// Appends the distance from the current position to an address in the object.
    fn distance_to(&mut self, address: u64) -> Option<()> {
        let position = self.layout.eh_frame.wrapping_add(self.out.len() as u64);
        self.u32(signed_distance(position, address)?);
        Some(())
    }

    /// Appends a padded entry with its length; returns its offset.
    fn entry(&mut self, write: impl FnOnce(&mut Self) -> Option<()>) -> Option<usize> {
        let offset = self.out.len();
        self.u32(0);
        write(self)?;
        let align = usize::try_from(self.layout.address_size).ok()?;
        // DW_CFA_nop is 0.
        self.out.resize(self.out.len().next_multiple_of(align), 0);
        let length = u32::try_from(self.out.len().checked_sub(offset)?.checked_sub(4)?).ok()?;
        self.layout.endian.set_u32(&mut self.out, offset, length);
        Some(offset)
    }

    /// Appends a CIE. Returns its offset.
    fn cie(&mut self, cie: &Cie<'_>) -> usize {
        let entry = self.entry(|writer| {
            writer.u32(0);
            writer.out.push(cie.version);
            // Personality routines and their data are needed for exceptions, not for unwinding.
            writer.out.extend_from_slice(b"zR");
            let flags = cie.augmentation.iter().copied();
            writer.out.extend(flags.filter(|flag| b"SBG".contains(flag)));
            writer.out.push(0);
            writer.out.extend_from_slice(cie.factors);
            writer.out.extend_from_slice(&[1, POINTERS]);
            writer.out.extend_from_slice(cie.instructions);
            Some(())
        });
        entry.unwrap_or_default()
    }

    /// Appends the entry of a function that is at `start` in the object, with the CIE at an offset. Returns its own
    /// offset; `None` if a distance is too large.
    fn fde(&mut self, entry: &Fde<'_>, cie_offset: usize, start: u64) -> Option<usize> {
        // Sizes are encoded like pointers, so they are signed.
        let size = i32::try_from(entry.range.size()).ok()?;
        self.entry(|writer| {
            let back = writer.out.len().checked_sub(cie_offset)?;
            writer.u32(u32::try_from(back).ok()?);
            writer.distance_to(start)?;
            writer.u32(size as u32);
            // no augmentation data
            writer.out.push(0);
            writer.out.extend_from_slice(entry.instructions);
            Some(())
        })
    }

    fn end_of_entries(&mut self) {
        self.u32(0);
        self.out.resize(self.out.len().next_multiple_of(8), 0);
    }

    /// Appends `.eh_frame_hdr`: a sorted table with the address of each function and of its entry, as distances
    /// from the start of the header.
    fn header(&mut self, mut index: Vec<(u64, usize)>) -> Option<()> {
        let table_encoding = dw::DW_EH_PE_datarel.0 | dw::DW_EH_PE_sdata4.0;
        let start = self.layout.eh_frame.wrapping_add(self.out.len() as u64);
        self.out
            .extend_from_slice(&[1, POINTERS, dw::DW_EH_PE_udata4.0, table_encoding]);
        self.distance_to(self.layout.eh_frame)?;
        self.u32(u32::try_from(index.len()).ok()?);
        // Sorted by distance: an entry below the object's first address comes before all others.
        index.sort_unstable_by_key(|&(function, _)| function.wrapping_sub(start) as i64);
        for (function, entry) in index {
            let entry = self.layout.eh_frame.wrapping_add(entry as u64);
            self.u32(signed_distance(start, function)?);
            self.u32(signed_distance(start, entry)?);
        }
        Some(())
    }
}

/// Returns the distance between two addresses, if it fits into a signed 32-bit integer.
fn signed_distance(from: u64, to: u64) -> Option<u32> {
    i32::try_from(to.wrapping_sub(from) as i64)
        .ok()
        .map(|distance| distance as u32)
}
