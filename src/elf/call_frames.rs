//! Call frame information (`.eh_frame`, `.debug_frame`): how to get from a frame to its caller.
//!
//! [`CallFrames`] is a section with an index of its entries. The rows of an entry are evaluated once, when an address in it is
//! first looked up; [`Rules`] then say where the caller's registers are. Evaluation is gimli's. All limits are here: an
//! entry that exceeds one counts as missing.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gimli::{
    BaseAddresses, CommonInformationEntry, DebugFrame, EhFrame, EhFrameHdr, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Reader, UnwindContext, UnwindExpression, UnwindOffset,
    UnwindSection, Vendor,
};
use jitdump::{Address, AddressRange, ByteOrder};

use crate::collections::hash::HashMap;
use crate::elf::eh_frame::{Fde, TableLayout, UnwindTables};
use crate::elf::limited_reads::{FileMemory, MemoryRoom};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Maximum size of an entry in bytes. The largest of browsers and databases have a few KiB.
const MAX_ENTRY: usize = 64 << 10;

/// Maximum size in bytes of the common part of entries, which is evaluated for each.
const MAX_CIE: usize = 4096;

/// Maximum number of rows and rules of an entry. The interpreter loop of CPython 3.13 has 75,202 on AArch64; the next largest
/// function of Debian's programs has 7,759.
const MAX_RULES: usize = 256 << 10;

/// Maximum size of an expression in bytes.
const MAX_EXPRESSION: usize = 256;

/// Maximum number of bytes of common parts that are parsed, and of entries with these that are evaluated, for each byte of a
/// section. Compilers' entries are disjoint, and their common parts have some 20 bytes; an index in a crafted file can lead to one
/// entry a million times.
const EVALUATED_PER_BYTE: usize = 8;

/// Highest register number that is tracked: AArch64's stack pointer.
pub const MAX_REGISTER: u16 = 32;

/// Number of rows and rules that may still be kept. Real profiles need some thousands; entries of crafted files can have
/// many rules for each byte.
#[derive(Debug)]
pub struct RuleRoom(AtomicU64);

impl Default for RuleRoom {
    fn default() -> Self {
        Self(AtomicU64::new(4 << 20))
    }
}

impl RuleRoom {
    /// Takes room for some; `None` if there is too little.
    pub fn take(&self, count: usize) -> Option<()> {
        let take = |left: u64| left.checked_sub(count as u64);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.ok().map(|_| ())
    }
}

/// Which of the two sections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SectionKind {
    /// `.eh_frame`.
    EhFrame,
    /// `.debug_frame`.
    DebugFrame,
}

/// A section of a little-endian, 64-bit ELF file.
#[derive(Clone, Debug)]
pub struct FrameSection {
    /// Which section it is.
    pub kind: SectionKind,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Its linked address; 0 for `.debug_frame`.
    pub address: Address,
    /// Linked address of `.text`, the base of some pointers.
    pub text: Address,
}

/// A linker's index of `.eh_frame`: `.eh_frame_hdr`.
#[derive(Clone, Debug)]
pub struct FrameHeader {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Its linked address.
    pub address: Address,
}

/// A section with the index of its entries.
#[derive(Debug)]
pub struct CallFrames {
    section: FrameSection,
    /// Entries by address.
    entries: Vec<SectionEntry>,
}

#[derive(Debug)]
struct SectionEntry {
    /// First linked address with rules.
    start: Address,
    offset: usize,
    /// Rows, evaluated on first use; `None` if they are invalid or exceed a limit.
    rows: OnceLock<Option<Box<EntryRows>>>,
}

/// The entries that were found in a section without an index.
#[derive(Default, Debug)]
struct ScannedEntries {
    /// Linked addresses of each, and its offset.
    entries: Vec<(AddressRange, usize)>,
    /// Offset after the last byte that one of them needs.
    end: usize,
}

/// Rows of an entry.
#[derive(Debug)]
pub struct EntryRows {
    range: AddressRange,
    rows: Vec<CallFrameRow>,
    /// Rules of all rows.
    rules: Vec<(u16, RegisterRule)>,
    /// Expressions of all rows.
    expressions: Vec<u8>,
    return_address: u16,
    is_signal: bool,
}

#[derive(Debug)]
struct CallFrameRow {
    start: u64,
    end: u64,
    cfa: CfaRule,
    rules: Range<usize>,
}

/// How to compute the canonical frame address (CFA): the caller's stack pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CfaRule {
    /// A register plus an offset.
    Register(u16, i64),
    /// The result of an expression.
    Expression(Range<usize>),
}

/// Where the caller's value of a register is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterRule {
    /// Nowhere.
    Undefined,
    /// In the register itself.
    SameValue,
    /// On the stack, at this offset from the CFA.
    Offset(i64),
    /// It is the CFA plus this offset.
    ValueOffset(i64),
    /// In another register.
    Register(u16),
    /// In memory, at the address that an expression gives.
    Expression(Range<usize>),
    /// It is the result of an expression.
    ValueExpression(Range<usize>),
}

/// Rules for one address.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'r> {
    /// How to compute the CFA.
    pub cfa: &'r CfaRule,
    /// Rules of registers. Registers without one are unchanged.
    pub registers: &'r [(u16, RegisterRule)],
    /// Register whose rule is that of the return address.
    pub return_address: u16,
    /// Whether the caller is not a caller, but was interrupted by a signal: its address is not a return address.
    pub is_signal: bool,
    expressions: &'r [u8],
}

impl<'r> Rules<'r> {
    /// Whether the CFA is a register plus an offset, for this register.
    pub fn is_by(&self, register: u16) -> bool {
        matches!(self.cfa, CfaRule::Register(base, _) if *base == register)
    }

    /// Returns the bytes of an expression.
    pub fn expression(&self, at: &Range<usize>) -> &'r [u8] {
        self.expressions.get(at.clone()).unwrap_or_default()
    }
}

impl EntryRows {
    /// Returns the rules for an address.
    pub fn at(&self, address: Address) -> Option<Rules<'_>> {
        if !self.range.contains(address) {
            return None;
        }
        let after = self.rows.partition_point(|row| row.start <= address.0);
        let row = self.rows.get(after.checked_sub(1)?)?;
        (address.0 < row.end).then_some(Rules {
            cfa: &row.cfa,
            registers: self.rules.get(row.rules.clone())?,
            return_address: self.return_address,
            is_signal: self.is_signal,
            expressions: &self.expressions,
        })
    }

    /// Evaluates an entry that a runtime wrote for one of its functions, at the addresses of the process, which is a little-endian
    /// one with 64 bits. `None` if it is invalid or exceeds a limit.
    ///
    /// gimli reads sections only, so this makes one of the entry, as for the function's object.
    pub fn of_fde(fde: Fde<'_>, room: &RuleRoom) -> Option<Self> {
        /// Distance in bytes from the function to the section: any that entries can express.
        const DISTANCE: u64 = 1 << 20;
        let start = fde.range.start;
        let layout = TableLayout {
            eh_frame: start.0.wrapping_add(DISTANCE),
            endian: ByteOrder::Little,
            address_size: 8,
        };
        let tables = UnwindTables::build(std::iter::once((fde, start.0)), layout)?;
        let section = FrameSection {
            kind: SectionKind::EhFrame,
            bytes: tables.bytes.get(..tables.eh_frame_size)?.to_vec(),
            address: Address(layout.eh_frame),
            text: Address(0),
        };
        let memory = MemoryRoom::default();
        let frames = CallFrames::read(section, None, &memory.file())?;
        let entry = frames.entries.first()?;
        frames.section.evaluate(entry.offset, room)
    }
}

impl CallFrames {
    /// Indexes a section, by its header if that has an index. Invalid entries are left out; `None` if there is no memory for the
    /// index.
    pub fn read(section: FrameSection, header: Option<FrameHeader>, memory: &FileMemory<'_>) -> Option<Self> {
        let indexed = header.and_then(|header| header.entries(&section, memory));
        if let Some(entries) = indexed {
            return Some(Self::new(section, entries));
        }
        Self::read_all(section, memory)
    }

    /// Indexes a section by its entries.
    fn read_all(mut section: FrameSection, memory: &FileMemory<'_>) -> Option<Self> {
        let ScannedEntries { mut entries, end } = section.scan(memory)?;
        section.bytes.truncate(end);
        section.bytes.shrink_to_fit();
        entries.sort_unstable();
        // Only damaged sections have overlapping entries; the one with the lowest address is kept.
        entries.dedup_by(|(next, _), (kept, _)| next.start < kept.end);
        let entries = entries
            .into_iter()
            .map(|(range, offset)| SectionEntry::new(range.start, offset));
        Some(Self::new(section, entries.collect()))
    }

    /// Leaves out entries after those that may be evaluated.
    fn new(section: FrameSection, mut entries: Vec<SectionEntry>) -> Self {
        let most = section.bytes.len().saturating_mul(EVALUATED_PER_BYTE);
        let mut evaluated = 0usize;
        entries.retain(|entry| {
            evaluated = evaluated.saturating_add(section.evaluated_size(entry.offset));
            evaluated <= most
        });
        Self { section, entries }
    }

    /// Returns the size in memory in bytes, without rows.
    pub fn size(&self) -> u64 {
        let entries = self.entries.len().saturating_mul(size_of::<SectionEntry>());
        self.section.bytes.len().saturating_add(entries) as u64
    }

    /// Returns the rules for a linked address.
    pub fn at(&self, address: Address, room: &RuleRoom) -> Option<Rules<'_>> {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        let evaluate = || self.section.evaluate(entry.offset, room).map(Box::new);
        entry.rows.get_or_init(evaluate).as_ref()?.at(address)
    }

    /// Returns the first addresses of all entries, in order.
    pub fn starts(&self) -> impl Iterator<Item = Address> + '_ {
        self.entries.iter().map(|entry| entry.start)
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl SectionEntry {
    fn new(start: Address, offset: usize) -> Self {
        Self {
            start,
            offset,
            rows: OnceLock::new(),
        }
    }
}

impl FrameHeader {
    /// Returns the entries of a section by address; `None` without an index of it, if that is damaged, and if there is no
    /// memory.
    fn entries(&self, section: &FrameSection, memory: &FileMemory<'_>) -> Option<Vec<SectionEntry>> {
        let bases = section.bases().set_eh_frame_hdr(self.address.0);
        let header = EhFrameHdr::new(&self.bytes, LittleEndian).parse(&bases, 8).ok()?;
        if header.eh_frame_ptr().direct() != Ok(section.address.0) {
            return None;
        }
        let table = header.table()?;
        let mut found = table.iter(&bases);
        let mut entries = Vec::new();
        while let Some((start, entry)) = found.next().ok()? {
            memory.take_one::<SectionEntry>()?;
            let offset = entry.direct().ok()?.checked_sub(section.address.0)?;
            let start = Address(start.direct().ok()?);
            entries.push(SectionEntry::new(start, usize::try_from(offset).ok()?));
        }
        let is_valid = !entries.is_empty() && entries.is_sorted_by_key(|entry| entry.start);
        is_valid.then_some(entries)
    }
}

/// Reads the entries of a section, which gimli knows as `section`, up to its end or the first invalid length. Entries that are invalid, or
/// whose common part is or exceeds a limit, are left out. Each common part is parsed once. `None` if there is no memory for the
/// entries.
fn scan<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    frames: &'a FrameSection,
    memory: &FileMemory<'_>,
) -> Option<ScannedEntries> {
    /// Maximum size in bytes of the length of an entry, which does not include itself.
    const MAX_LENGTH_SIZE: usize = 12;
    type Cie<'a> = CommonInformationEntry<Slice<'a>>;
    let (content, bases) = (frames.slice(), frames.bases());
    let mut cies: HashMap<usize, Option<Cie<'a>>> = HashMap::default();
    // In a crafted file, each may be nearly as large as the section: gimli searches them for the end of a string.
    let mut bytes_of_cies = content.len().saturating_mul(EVALUATED_PER_BYTE);
    let mut found = ScannedEntries::default();
    let mut rest = content;
    loop {
        let offset = rest.offset_from(content);
        let Ok((length, _)) = rest.read_initial_length() else {
            break;
        };
        if length == 0 && frames.kind == SectionKind::EhFrame {
            break;
        }
        if rest.skip(length).is_err() {
            break;
        }
        // Common parts are errors, too, whatever they contain: gimli's iterator would end at one that it does not know.
        let Ok(entry) = section.partial_fde_from_offset(&bases, offset.into()) else {
            continue;
        };
        let known = cies.len();
        let entry = entry.parse(|section, bases, offset| {
            let at: usize = UnwindOffset::into(offset);
            let parse = || {
                let size = size_of_cie(content, at).filter(|&size| size <= MAX_CIE)?;
                bytes_of_cies = bytes_of_cies.checked_sub(size)?;
                section.cie_from_offset(bases, offset).ok()
            };
            let cie = cies.entry(at).or_insert_with(parse);
            cie.clone().ok_or(gimli::Error::NotCieId(at as u64))
        });
        if cies.len() > known {
            memory.take_one::<(usize, Option<Cie<'a>>)>()?;
        }
        let Ok(entry) = entry else { continue };
        let Some(range) = AddressRange::new(Address(entry.initial_address()), entry.len()) else {
            continue;
        };
        memory.take_one::<SectionEntry>()?;
        found.entries.push((range, offset));
        let cie = entry.cie();
        for (offset, size) in [(offset, entry.entry_len()), (cie.offset(), cie.entry_len())] {
            let end = offset.saturating_add(size).saturating_add(MAX_LENGTH_SIZE);
            found.end = found.end.max(end);
        }
    }
    Some(found)
}

impl FrameSection {
    fn slice(&self) -> Slice<'_> {
        EndianSlice::new(&self.bytes, LittleEndian)
    }

    fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::from(self.slice());
        section.set_address_size(8);
        // Its only instruction of its own is one for signed return addresses, which no other machine uses.
        section.set_vendor(Vendor::AArch64);
        section
    }

    fn debug_frame(&self) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::from(self.slice());
        section.set_address_size(8);
        section.set_vendor(Vendor::AArch64);
        section
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default()
            .set_eh_frame(self.address.0)
            .set_text(self.text.0)
    }

    /// Finds the entries by walking from one to the next.
    fn scan(&self, memory: &FileMemory<'_>) -> Option<ScannedEntries> {
        match self.kind {
            SectionKind::EhFrame => scan(&self.eh_frame(), self, memory),
            SectionKind::DebugFrame => scan(&self.debug_frame(), self, memory),
        }
    }

    /// Returns the number of bytes that are read to evaluate the entry at an offset: its size, and that of its common part; 0 if
    /// that exceeds a limit, or there is none.
    fn evaluated_size(&self, offset: usize) -> usize {
        let bases = self.bases();
        let sizes = match self.kind {
            SectionKind::EhFrame => sizes(&self.eh_frame(), self.slice(), &bases, offset.into()),
            SectionKind::DebugFrame => sizes(&self.debug_frame(), self.slice(), &bases, offset.into()),
        };
        let sizes = sizes.filter(|&(entry, cie)| entry <= MAX_ENTRY && cie <= MAX_CIE);
        sizes.map_or(0, |(entry, cie)| entry.saturating_add(cie))
    }

    /// Evaluates the entry at an offset.
    fn evaluate(&self, offset: usize, room: &RuleRoom) -> Option<EntryRows> {
        if self.evaluated_size(offset) == 0 {
            return None;
        }
        let bases = self.bases();
        match self.kind {
            SectionKind::EhFrame => {
                let section = self.eh_frame();
                let fde = section.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset);
                rows(&section, &bases, &fde.ok()?, room)
            }
            SectionKind::DebugFrame => {
                let section = self.debug_frame();
                let fde = section.fde_from_offset(&bases, offset.into(), DebugFrame::cie_from_offset);
                rows(&section, &bases, &fde.ok()?, room)
            }
        }
    }
}

/// Returns the sizes of an entry of a section with this content, and of its common part, neither of which is parsed.
fn sizes<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    content: Slice<'a>,
    bases: &BaseAddresses,
    offset: S::Offset,
) -> Option<(usize, usize)> {
    let entry = section.partial_fde_from_offset(bases, offset).ok()?;
    let cie_size = size_of_cie(content, UnwindOffset::into(entry.cie_offset()))?;
    Some((entry.entry_len(), cie_size))
}

/// Returns the size of the common part at an offset of a section with this content.
fn size_of_cie(content: Slice<'_>, offset: usize) -> Option<usize> {
    let mut cie = content;
    cie.skip(offset).ok()?;
    Some(cie.read_initial_length().ok()?.0)
}

/// Evaluates the rows of an entry. Those of one that fails have taken their room, too.
fn rows<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    fde: &FrameDescriptionEntry<Slice<'a>>,
    room: &RuleRoom,
) -> Option<EntryRows> {
    let mut found = EntryRows {
        range: AddressRange::new(Address(fde.initial_address()), fde.len())?,
        rows: Vec::new(),
        rules: Vec::new(),
        expressions: Vec::new(),
        return_address: fde.cie().return_address_register().0,
        is_signal: fde.is_signal_trampoline(),
    };
    let mut context = UnwindContext::new();
    let mut table = fde.rows(section, bases, &mut context).ok()?;
    while let Some(row) = table.next_row().ok()? {
        let before = found.size();
        let cfa = match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => CfaRule::Register(register.0, *offset),
            gimli::CfaRule::Expression(expression) => {
                CfaRule::Expression(found.add_expression(section, *expression)?)
            }
        };
        let start = found.rules.len();
        for (register, rule) in row.registers() {
            if register.0 <= MAX_REGISTER {
                let rule = found.rule(section, rule)?;
                found.rules.push((register.0, rule));
            }
        }
        found.rows.push(CallFrameRow {
            start: row.start_address(),
            end: row.end_address(),
            cfa,
            rules: start..found.rules.len(),
        });
        room.take(found.size().saturating_sub(before))?;
        if found.size() > MAX_RULES {
            return None;
        }
    }
    // A DW_CFA_set_loc can go backwards in a damaged entry.
    found.rows.is_sorted_by_key(|row| row.start).then_some(found)
}

impl EntryRows {
    /// Number of rows and rules, and of what takes as much memory.
    fn size(&self) -> usize {
        let expressions = self.expressions.len() / 16;
        self.rows
            .len()
            .saturating_add(self.rules.len())
            .saturating_add(expressions)
    }

    fn rule<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        section: &S,
        rule: &gimli::RegisterRule<usize>,
    ) -> Option<RegisterRule> {
        Some(match rule {
            gimli::RegisterRule::SameValue => RegisterRule::SameValue,
            gimli::RegisterRule::Offset(offset) => RegisterRule::Offset(*offset),
            gimli::RegisterRule::ValOffset(offset) => RegisterRule::ValueOffset(*offset),
            gimli::RegisterRule::Register(register) => RegisterRule::Register(register.0),
            gimli::RegisterRule::Expression(expression) => {
                RegisterRule::Expression(self.add_expression(section, *expression)?)
            }
            gimli::RegisterRule::ValExpression(expression) => {
                RegisterRule::ValueExpression(self.add_expression(section, *expression)?)
            }
            _ => RegisterRule::Undefined,
        })
    }

    /// Copies an expression.
    fn add_expression<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        section: &S,
        expression: UnwindExpression<usize>,
    ) -> Option<Range<usize>> {
        let bytes = expression.get(section).ok()?.0.slice();
        if bytes.len() > MAX_EXPRESSION {
            return None;
        }
        let start = self.expressions.len();
        self.expressions.extend_from_slice(bytes);
        Some(start..self.expressions.len())
    }
}

#[cfg(test)]
mod tests;
