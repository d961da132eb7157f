//! Linkage stubs of executables and libraries: code that jumps to a function through a slot of the global offset table.
//!
//! Stubs have no symbols. The slot is in a stub's instructions, and a relocation of the slot has the function. Only x86-64 and
//! AArch64 are supported.

use std::iter;

use jitdump::{Address, AddressRange};
use memchr::memmem;
use object::elf;
use object::read::elf::{ElfFile64, Rela, SectionHeader};
use object::read::{ReadRef, SymbolIndex};
use object::{Endianness, File};

use crate::collections::hash::HashMap;
use crate::elf::limited_reads::FileMemory;

/// Sections with stubs.
const SECTIONS: [&[u8]; 3] = [b".plt", b".plt.got", b".plt.sec"];

/// A stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stub<'a> {
    /// Linked addresses.
    pub range: AddressRange,
    /// The function that it jumps to.
    pub target: Target<'a>,
}

/// The function that a stub jumps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// A function with a dynamic symbol.
    Symbol(&'a [u8]),
    /// A function of the same file, or the one that selects it (`STT_GNU_IFUNC`).
    Address(Address),
}

/// Code that looks like a stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Candidate {
    /// Linked addresses.
    start: u64,
    end: u64,
    /// Linked address of the slot.
    slot: u64,
}

/// What a relocation of a slot refers to.
#[derive(Clone, Copy, Debug)]
enum Reference {
    /// A dynamic symbol.
    Symbol(SymbolIndex),
    /// An address of the file.
    Address(Address),
}

/// Returns the stubs of an ELF file, whose names are read one after the other; `None` if there is no memory for them.
pub fn stubs<'a, R: ReadRef<'a>>(
    file: &File<'a, R>,
    memory: &FileMemory<'_>,
) -> Option<impl Iterator<Item = Stub<'a>>> {
    let stubs = match file {
        File::Elf64(file) => Some(stubs_of_elf(file, memory)?),
        _ => None,
    };
    Some(stubs.into_iter().flatten())
}

/// Returns the stubs of a 64-bit file; `None` if there is no memory for them.
fn stubs_of_elf<'a, R: ReadRef<'a>>(
    file: &ElfFile64<'a, Endianness, R>,
    memory: &FileMemory<'_>,
) -> Option<impl Iterator<Item = Stub<'a>>> {
    let candidates = candidates(file, memory)?;
    let references = references(file, &candidates, memory)?;
    let (endian, symbols) = (file.endian(), file.elf_dynamic_symbol_table());
    Some(
        candidates
            .into_iter()
            .filter_map(move |Candidate { start, end, slot }| {
                let target = match references.get(&slot).copied().flatten()? {
                    Reference::Symbol(index) => {
                        let symbol = symbols.symbol(index).ok()?;
                        let name = symbols.symbol_name(endian, symbol).ok()?;
                        Target::Symbol(Some(name).filter(|name| !name.is_empty())?)
                    }
                    Reference::Address(address) => Target::Address(address),
                };
                Some(Stub {
                    range: AddressRange::new(Address(start), end.checked_sub(start)?)?,
                    target,
                })
            }),
    )
}

/// Returns what the slots of candidates refer to; `None` if there is no memory for the relocations.
fn references<'a, R: ReadRef<'a>>(
    file: &ElfFile64<'a, Endianness, R>,
    candidates: &[Candidate],
    memory: &FileMemory<'_>,
) -> Option<HashMap<u64, Option<Reference>>> {
    let mut references: HashMap<u64, Option<Reference>> = HashMap::default();
    references.extend(candidates.iter().map(|candidate| (candidate.slot, None)));
    if references.is_empty() {
        return Some(references);
    }
    let endian = file.endian();
    let symbols = file.elf_dynamic_symbol_table().section();
    for section in file.elf_section_table().iter() {
        let is_loaded = section.sh_flags(endian).contains(elf::SHF_ALLOC);
        let relocations = is_loaded.then(|| section.rela(endian, file.data()));
        let Some(Ok(Some((relocations, link)))) = relocations else {
            continue;
        };
        memory.take(size_of_val(relocations) as u64)?;
        for relocation in relocations {
            let Some(reference) = references.get_mut(&relocation.r_offset(endian)) else {
                continue;
            };
            *reference = match relocation.r_sym(endian, false) {
                0 => Some(Reference::Address(Address(relocation.r_addend(endian) as u64))),
                symbol => (link == symbols).then_some(Reference::Symbol(SymbolIndex(symbol as usize))),
            };
        }
    }
    Some(references)
}

/// Returns what looks like stubs in a file; `None` if there is no memory for it.
fn candidates<'a, R: ReadRef<'a>>(
    file: &ElfFile64<'a, Endianness, R>,
    memory: &FileMemory<'_>,
) -> Option<Vec<Candidate>> {
    let endian = file.endian();
    let mut found = Vec::new();
    let sections = file.elf_section_table();
    for name in SECTIONS {
        let section = sections.section_by_name(endian, name);
        let Some((address, Ok(code))) =
            section.map(|(_, section)| (section.sh_addr(endian), section.data(endian, file.data())))
        else {
            continue;
        };
        let of_machine: &mut dyn Iterator<Item = Candidate> = match file.elf_header().e_machine.get(endian) {
            elf::EM_X86_64 => &mut x86_64(code, address),
            elf::EM_AARCH64 => &mut aarch64(code, address),
            _ => &mut iter::empty(),
        };
        for candidate in of_machine {
            memory.take_one::<(Candidate, Stub<'_>)>()?;
            found.push(candidate);
        }
    }
    Some(found)
}

/// Returns the stubs in code at an address. Those of GNU's linkers and LLVM's are `jmp *slot(%rip)`, `endbr64` and `bnd` may be
/// before it; they have up to 16 bytes.
fn x86_64(code: &[u8], address: u64) -> impl Iterator<Item = Candidate> {
    const JMP: &[u8] = b"\xff\x25";
    const BND: &[u8] = b"\xf2";
    const ENDBR64: &[u8] = b"\xf3\x0f\x1e\xfa";
    const SIZE: usize = 16;
    let jumps = memmem::find_iter(code, JMP).filter_map(move |at| {
        let (before, jump) = code.split_at_checked(at)?;
        let (jump, _) = jump.split_first_chunk::<6>()?;
        let [_, _, distance @ ..] = *jump;
        let next = address.wrapping_add(at as u64).wrapping_add(jump.len() as u64);
        let slot = next.wrapping_add_signed(i32::from_le_bytes(distance).into());
        let before = before.strip_suffix(BND).unwrap_or(before);
        let start = match before {
            // mold puts `mov $index,%r11d` between the two instructions.
            [start @ .., 0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, _, _, _, _] => start,
            _ => before.strip_suffix(ENDBR64).unwrap_or(before),
        };
        Some((start.len(), slot))
    });
    let mut jumps = jumps.peekable();
    iter::from_fn(move || {
        let (start, slot) = jumps.next()?;
        let next = jumps.peek().map_or(code.len(), |&(next, _)| next);
        let end = start.saturating_add(SIZE).min(next);
        Some(Candidate {
            start: address.wrapping_add(start as u64),
            end: address.wrapping_add(end as u64),
            slot,
        })
    })
}

/// Returns the stubs in code at an address: `adrp x16, slot`, `ldr x17, [x16, slot]`, up to `br x17`; `bti c` may be before them.
fn aarch64(code: &[u8], address: u64) -> impl Iterator<Item = Candidate> {
    const BTI_C: u32 = 0xd503_245f;
    const BR_X17: u32 = 0xd61f_0220;
    const PAGE: u64 = 0x1000;
    /// Most instructions from the second one to the jump.
    const MAX: usize = 4;
    let word = |at: usize| Some(u32::from_le_bytes(*code.get(at..)?.first_chunk()?));
    let is_adrp = |word: u32| word & 0x9f00_001f == 0x9000_0010;
    let is_ldr = |word: u32| word & 0xffc0_03ff == 0xf940_0211;
    (0..code.len()).step_by(4).filter_map(move |at| {
        let load_at = at.checked_add(4)?;
        let page = word(at).filter(|&word| is_adrp(word))?;
        let load = word(load_at).filter(|&word| is_ldr(word))?;
        let mut rest = (load_at..code.len()).step_by(4).take(MAX);
        let end = rest.find(|&at| word(at) == Some(BR_X17))?.checked_add(4)?;
        // The number of pages, with its sign, is in bits 5 to 23 and, the lower part, 29 and 30.
        let high = ((page << 8) as i32 >> 13) << 2;
        let pages = i64::from(high | (page >> 29 & 3) as i32);
        let here = address.wrapping_add(at as u64) & !(PAGE - 1);
        let slot = here.wrapping_add_signed(pages.wrapping_mul(PAGE as i64));
        let offset = u64::from(load >> 10 & 0xfff).wrapping_mul(8);
        let bti = at.checked_sub(4).filter(|&before| word(before) == Some(BTI_C));
        Some(Candidate {
            start: address.wrapping_add(bti.unwrap_or(at) as u64),
            end: address.wrapping_add(end as u64),
            slot: slot.wrapping_add(offset),
        })
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::elf::limited_reads::MemoryRoom;

    /// Address of the stubs in made files.
    pub const PLT: u64 = 0x1000;

    /// Index of the section with dynamic symbols.
    pub const DYNSYM: u32 = 1;

    /// `jmp *slot(%rip)`, which has 6 bytes, from an address.
    pub fn jump(address: u64, slot: u64) -> Vec<u8> {
        let distance = slot.wrapping_sub(address + 6) as u32;
        [&b"\xff\x25"[..], &distance.to_le_bytes()].concat()
    }

    /// A relocation: slot, symbol and addend.
    pub type Relocation = (u64, u32, u64);

    /// Little-endian numbers of these sizes in bytes.
    fn numbers(values: &[(u64, usize)]) -> Vec<u8> {
        let bytes = values
            .iter()
            .flat_map(|&(value, size)| value.to_le_bytes().into_iter().take(size));
        bytes.collect()
    }

    /// Returns an ELF file for x86-64 with stubs at [`PLT`] and a section of relocations that refers to the section `link`.
    /// Symbol 1 is a function of 16 bytes at 0x2000, `chosen`; 2 an import, `_Z4workv`; 3 a function without a size at 0x20f0,
    /// `start`, in a section that ends at 0x2100.
    pub fn file(code: &[u8], relocations: &[Relocation], link: u32) -> Vec<u8> {
        let names = b"\0.dynsym\0.dynstr\0.plt\0.rela.plt\0.text\0";
        let strings = b"\0chosen\0_Z4workv\0start\0";
        let symbol = |name, section, value, size| {
            const GLOBAL_FUNCTION: u64 = 0x12;
            let fields = [
                (name, 4),
                (GLOBAL_FUNCTION, 2),
                (section, 2),
                (value, 8),
                (size, 8),
            ];
            numbers(&fields)
        };
        let symbols = [
            vec![0; 24],
            symbol(1, 5, 0x2000, 16),
            symbol(8, 0, 0, 0),
            symbol(17, 5, 0x20f0, 0),
        ];
        let relocations = relocations.iter().flat_map(|&(slot, symbol, addend)| {
            const JUMP_SLOT: u64 = 7;
            numbers(&[(slot, 8), (JUMP_SLOT, 4), (symbol.into(), 4), (addend, 8)])
        });
        let (symbols, relocations) = (symbols.concat(), relocations.collect::<Vec<u8>>());
        // Position of the name, type, flags, address, link, size of an entry.
        let sections: [([u64; 6], &[u8]); 6] = [
            ([1, 11, 2, 0, 2, 24], &symbols),
            ([9, 3, 2, 0, 0, 0], strings),
            ([17, 1, 6, PLT, 0, 0], code),
            ([22, 4, 2, 0, link.into(), 24], &relocations),
            ([32, 1, 6, 0x2000, 0, 0], &[0xc3; 0x100]),
            ([1, 3, 0, 0, 0, 0], names),
        ];
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        // The section headers are after this one.
        file.extend(numbers(&[(0, 8), (0, 8), (64, 8), (0, 4)]));
        file.extend(numbers(&[64, 56, 0, 64, 7, 6].map(|half| (half, 2))));
        file.resize(128, 0);
        let mut contents = Vec::new();
        for ([name, kind, flags, address, link, entry], content) in sections {
            let (offset, size) = (64 * 8 + contents.len() as u64, content.len() as u64);
            file.extend(numbers(&[
                (name, 4),
                (kind, 4),
                (flags, 8),
                (address, 8),
                (offset, 8),
            ]));
            file.extend(numbers(&[(size, 8), (link, 4), (0, 4), (8, 8), (entry, 8)]));
            contents.extend_from_slice(content);
            contents.resize(contents.len().next_multiple_of(8), 0);
        }
        [file, contents].concat()
    }

    fn found(code: &[u8], relocations: &[Relocation], link: u32) -> Vec<(u64, u64, Target<'static>)> {
        let file = file(code, relocations, link).leak();
        let file = File::parse(&file[..]).unwrap();
        let room = MemoryRoom::default();
        let memory = room.file();
        let stubs = stubs(&file, &memory).unwrap();
        stubs
            .map(|stub| (stub.range.start.0, stub.range.size(), stub.target))
            .collect()
    }

    #[test]
    fn stubs_have_the_functions_that_relocations_give_their_slots() {
        let code = [jump(PLT, 0x3000), jump(PLT + 6, 0x3008), jump(PLT + 12, 0x3010)].concat();
        let relocations = [(0x3000, 2, 0), (0x3010, 0, 0x2000), (0x3018, 1, 0)];
        let imported = (PLT, 6, Target::Symbol(b"_Z4workv"));
        let own = (PLT + 12, 6, Target::Address(Address(0x2000)));
        assert_eq!(found(&code, &relocations, DYNSYM), [imported, own]);
        // Symbols of another table, and one that does not exist.
        assert_eq!(found(&code, &relocations, 0), [own]);
        assert_eq!(found(&code, &[(0x3000, 77, 0)], DYNSYM), []);
    }

    #[test]
    fn many_relocations_of_many_stubs_with_one_slot_are_read_once() {
        let code: Vec<u8> = (0..10_000).flat_map(|at| jump(PLT + 6 * at, 0x9_0000)).collect();
        let found = found(&code, &vec![(0x9_0000, 2, 0); 10_000], DYNSYM);
        assert_eq!(found.len(), 10_000);
    }

    #[test]
    fn stubs_without_memory_are_not_read() {
        let code = jump(PLT, 0x3000);
        let file = file(&code, &[(0x3000, 2, 0); 10], DYNSYM);
        let file = File::parse(&file[..]).unwrap();
        // A stub, and ten relocations.
        let enough = (size_of::<(Candidate, Stub<'_>)>() + 10 * 24) as u64;
        for (bytes, is_read) in [(enough, true), (enough - 1, false), (0, false)] {
            let room = MemoryRoom::new(bytes);
            assert_eq!(stubs(&file, &room.file()).is_some(), is_read, "{bytes}");
        }
    }

    #[test]
    fn stubs_of_all_linkers_are_recognized_on_x86_64() {
        let stub = |before: &[u8], after: &[u8]| {
            let jump = jump(PLT + before.len() as u64, 0x3000);
            [before, &jump, after].concat()
        };
        let endbr64 = b"\xf3\x0f\x1e\xfa";
        for (code, size) in [
            // GNU ld, gold and lld: lazy binding; none; in static programs
            (stub(b"", b"\x68\0\0\0\0\xe9\xe0\xff\xff\xff"), 16),
            (stub(b"", b"\x66\x90"), 8),
            // .plt.sec, without and with `bnd`
            (stub(endbr64, b"\x66\x0f\x1f\x44\0\0"), 16),
            (stub(b"\xf3\x0f\x1e\xfa\xf2", b"\x0f\x1f\x44\0\0"), 16),
            // mold
            (stub(b"\xf3\x0f\x1e\xfa\x41\xbb\0\0\0\0", b""), 16),
        ] {
            let found: Vec<Candidate> = x86_64(&code, PLT).collect();
            let expected = Candidate {
                start: PLT,
                end: PLT + size,
                slot: 0x3000,
            };
            assert_eq!(found, [expected], "{code:x?}");
            // The next one starts at its end.
            let two = [&code[..], &code].concat();
            let starts: Vec<u64> = x86_64(&two, PLT).map(|candidate| candidate.start).collect();
            assert_eq!(starts, [PLT, PLT + size], "{code:x?}");
        }
        assert_eq!(x86_64(b"\xff\x25\0\0\0", u64::MAX).count(), 0);
        assert_eq!(x86_64(&[0xff, 0x25, 0xff, 0xff, 0xff, 0x7f], u64::MAX).count(), 1);
    }

    #[test]
    fn stubs_of_all_linkers_are_recognized_on_aarch64() {
        const NOP: u32 = 0xd503_201f;
        let found = |words: &[u32], address: u64| {
            let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let found: Vec<Candidate> = aarch64(&code, address).collect();
            let found = found.iter();
            found
                .map(|it| (it.start, it.end - it.start, it.slot))
                .collect::<Vec<_>>()
        };
        // GNU ld and lld: adrp x16, 0x20000; ldr x17, [x16, #8]; add; br x17
        let plain = [0x9000_0110, 0xf940_0611, 0x9100_2210, 0xd61f_0220];
        assert_eq!(found(&plain, 0x700), [(0x700, 16, 0x2_0008)]);
        // With bti and autia1716.
        let protected = [
            0xd503_245f,
            0x9000_0110,
            0xf940_0611,
            0x9100_2210,
            0xd503_219f,
            0xd61f_0220,
            NOP,
        ];
        assert_eq!(found(&protected, 0x700), [(0x700, 24, 0x2_0008)]);
        assert_eq!(
            found(&[&protected[1..], &plain].concat(), 0x700),
            [(0x700, 20, 0x2_0008), (0x718, 16, 0x2_0008)]
        );
        // adrp x16, of the page before
        let before = [0xf0ff_fff0, 0xf940_0611, 0x9100_2210, 0xd61f_0220];
        assert_eq!(found(&before, 0x2_1000), [(0x2_1000, 16, 0x2_0008)]);
        // Without the branch, and other registers.
        assert_eq!(found(&plain[..3], 0x700), []);
        assert_eq!(
            found(&[0x9000_0111, 0xf940_0611, 0x9100_2210, 0xd61f_0220], 0x700),
            []
        );
    }
}
