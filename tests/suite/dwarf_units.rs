//! Debug information of many units in one file, as in an object for many functions.

use jitdump::ByteOrder;
use jitinject::internals::elf::dwarf::{EncoderMemory, FunctionUnit, Sections, Version};
use jitinject::internals::elf::object::TEXT_OFFSET;

use crate::dwarf::{encode, gimli_endian};
use crate::support::dwarf_contents;
use crate::support::dwarf_units::{INLINED, SIZE, UNITS, address, info, name, settings, shuffled};
use crate::support::lines::Site;

/// Checks the frames that addr2line finds in all functions.
fn check_frames(sections: &Sections<'_>) {
    let dwarf = dwarf_contents::load(sections, gimli_endian(ByteOrder::Little));
    let context = addr2line::Context::from_dwarf(dwarf).unwrap();
    let frames_of = |address: u64| {
        let mut frames = context.find_frames(address).skip_all_loads().unwrap();
        let mut found = Vec::new();
        while let Some(frame) = frames.next().unwrap() {
            let name = frame.function.unwrap().raw_name().unwrap().into_owned();
            let place = frame.location.unwrap();
            let file = place.file.unwrap();
            let file = file.strip_prefix("./").unwrap();
            found.push(Site::new(&name, file, place.line.unwrap()));
        }
        found
    };
    for number in 0..UNITS {
        let outer = |line| Site::new(&name(number), "src/module.js", line);
        let inner = Site::new("inlined", "src/inlined.js", 7);
        assert_eq!(frames_of(address(number)), [outer(number + 1)]);
        let chain = [inner, outer(number + 5)];
        assert_eq!(frames_of(address(number) + INLINED), chain);
        let last = u64::from(SIZE) - 1;
        assert_eq!(frames_of(address(number) + last), [outer(number + 2)]);
    }
}

#[test]
fn many_units_share_an_object() {
    let names: Vec<String> = (0..UNITS).map(name).collect();
    let infos: Vec<_> = (0..UNITS).map(info).collect();
    let unit = |number: u32| FunctionUnit {
        symbol: names[number as usize].as_bytes(),
        address: address(number),
        size: SIZE,
        info: &infos[number as usize],
    };
    let units: Vec<_> = shuffled().into_iter().map(unit).collect();
    for version in [Version::Four, Version::Five] {
        let mut memory = EncoderMemory::default();
        let sections = encode(&units, settings(version), &mut memory);
        let inlined = memchr::memmem::Finder::new(b"\0inlined\0");
        let occurrences = sections.iter().map(|(_, bytes)| inlined.find_iter(bytes).count());
        assert_eq!(occurrences.sum::<usize>(), 1);
        check_frames(&sections);
    }
}

/// Reused memory does not affect the output.
#[test]
fn the_same_units_give_the_same_bytes() {
    let (one, other) = (info(1), info(2000));
    for version in [Version::Four, Version::Five] {
        let settings = settings(version);
        let unit = |symbol, info| FunctionUnit {
            symbol,
            address: TEXT_OFFSET,
            size: SIZE,
            info,
        };
        let bytes = |sections: Sections<'_>| sections.map(|(_, bytes)| bytes.to_vec());
        let mut memory = EncoderMemory::default();
        let first = bytes(encode(&[unit(b"one", &one)], settings, &mut memory));
        encode(
            &[unit(b"another", &other), unit(b"one", &one)],
            settings,
            &mut memory,
        );
        let again = bytes(encode(&[unit(b"one", &one)], settings, &mut memory));
        assert_eq!(again, first);
        let nothing = encode(&[], settings, &mut memory);
        assert!(nothing.iter().all(|(_, bytes)| bytes.is_empty()), "{nothing:?}");
    }
}
