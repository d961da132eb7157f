//! Resolves addresses to lines and inlined calls with the addr2line crate.

use std::path::Path;

use object::{Object, ObjectSection};

use super::lines::Site;

/// Returns the call chain of each address in an object, innermost function first. Relative paths have no leading
/// `./`.
pub fn sites(object: &Path, addresses: &[u64]) -> Vec<Vec<Site>> {
    let bytes = std::fs::read(object).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let endian = if file.is_little_endian() {
        gimli::RunTimeEndian::Little
    } else {
        gimli::RunTimeEndian::Big
    };
    let section = |id: gimli::SectionId| {
        let data = file
            .section_by_name(id.name())
            .map(|section| section.data().unwrap());
        Ok::<_, gimli::Error>(gimli::EndianSlice::new(data.unwrap_or_default(), endian))
    };
    let context = addr2line::Context::from_dwarf(gimli::Dwarf::load(section).unwrap()).unwrap();
    let chain = |&address: &u64| {
        let mut frames = context.find_frames(address).skip_all_loads().unwrap();
        let mut chain = Vec::new();
        while let Some(frame) = frames.next().unwrap() {
            let function = frame.function.unwrap();
            let place = frame.location.unwrap();
            let file = place.file.unwrap();
            let file = file.strip_prefix("./").unwrap_or(file);
            chain.push(Site::new(
                &function.raw_name().unwrap(),
                file,
                place.line.unwrap_or(0),
            ));
        }
        chain
    };
    addresses.iter().map(chain).collect()
}
