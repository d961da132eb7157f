//! Arbitrary core files: memory is found at offsets in the file.

use jitdump::{Address, AddressRange};
use jitinject::internals::elf::core_file::CoreFile;
use jitinject_fuzz::choices::Choices;

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let wanted = (choices.u64(), u64::from(choices.u16()));
    let file = choices.rest();
    let Ok(core) = CoreFile::parse(file) else {
        return;
    };
    // The asked range, and all that the words of the file could mean.
    let words = file
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    for (start, size) in std::iter::once(wanted).chain(words.map(|word| (word, 1))) {
        let Some(range) = AddressRange::new(Address(start), size) else {
            continue;
        };
        if let Some(offset) = core.file_offset(range) {
            assert!(offset + range.size() <= file.len() as u64);
        }
    }
}
