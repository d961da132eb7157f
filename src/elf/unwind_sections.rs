//! Reads the unwinding tables of executables, libraries and their separate debug files.

use std::io::Read;

use flate2::read::ZlibDecoder;
use object::read::{CompressionFormat, Object, ObjectSection, ReadRef};
use object::{Endianness, elf};

use crate::elf::call_frames::{CallFrames, FrameSection, SectionKind};
use crate::elf::executable::{self, Segment};
use crate::elf::symbols::code_segments;
use crate::units::Address;

/// Unwinding tables of an ELF file.
#[derive(Debug)]
pub struct UnwindSections {
    /// Build ID; empty if the file has none.
    pub build_id: Vec<u8>,
    segments: Vec<Segment>,
    /// Tables by section, `.eh_frame` first.
    pub tables: Vec<CallFrames>,
}

/// Maximum size of a section in bytes, after decompression.
const MAX_SECTION: u64 = 1 << 28;

impl UnwindSections {
    /// Reads a little-endian, 64-bit ELF file for one of `machines`; `None` if it is not one, or if `is_wanted` is false for
    /// its build ID.
    pub fn read_if<'a>(
        file: impl ReadRef<'a>,
        machine: elf::Machine,
        is_wanted: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Option<Self> {
        let object::File::Elf64(file) = object::File::parse(file).ok()? else {
            return None;
        };
        if file.endianness() != object::Endianness::Little
            || file.elf_header().e_machine.get(Endianness::Little) != machine
        {
            return None;
        }
        let build_id = file.build_id().ok()?;
        if !is_wanted(build_id) {
            return None;
        }
        let build_id = build_id.unwrap_or_default().to_vec();
        let text = file.section_by_name(".text").map_or(0, |text| text.address());
        // binutils before 2.26 gave compressed sections another name; GNU ld still can.
        let kinds = [
            (".eh_frame", SectionKind::EhFrame),
            (".debug_frame", SectionKind::DebugFrame),
            (".zdebug_frame", SectionKind::DebugFrame),
        ];
        let sections = kinds.into_iter().filter_map(|(name, kind)| {
            let section = file.section_by_name(name)?;
            let address = match kind {
                SectionKind::EhFrame => section.address(),
                SectionKind::DebugFrame => 0,
            };
            Some(FrameSection {
                kind,
                bytes: content(&section)?,
                address: Address(address),
                text: Address(text),
            })
        });
        Some(Self {
            build_id,
            tables: sections
                .map(CallFrames::read)
                .filter(|table| !table.is_empty())
                .collect(),
            segments: code_segments(&file),
        })
    }

    /// Returns the linked address of a file offset; `None` if no code segment contains it.
    pub fn address(&self, file_offset: u64) -> Option<Address> {
        executable::linked_address(&self.segments, file_offset)
    }
}

/// Returns the content of a section, decompressed. In a separate debug file, `.eh_frame` has none.
fn content<'a>(section: &impl ObjectSection<'a>) -> Option<Vec<u8>> {
    let data = section.compressed_data().ok()?;
    match data.format {
        CompressionFormat::None => Some(data.data.to_vec()),
        CompressionFormat::Zlib => decompressed(ZlibDecoder::new(data.data), data.uncompressed_size),
        CompressionFormat::Zstandard => {
            let decoder = zstd::Decoder::with_buffer(data.data).ok()?;
            decompressed(decoder, data.uncompressed_size)
        }
        _ => None,
    }
}

/// Reads up to `size` decompressed bytes, but no more than [`MAX_SECTION`].
fn decompressed(decoder: impl Read, size: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    decoder.take(size.min(MAX_SECTION)).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
