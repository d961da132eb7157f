//! LOAD records: a function's code and name.

use crate::bytes::{ByteOrder, Reader, until_nul};
use crate::units::Address;

/// The content of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load<'a> {
    /// The process, by the number that it knows itself under.
    pub pid: u32,
    /// Where the code was put.
    pub start: Address,
    /// How many bytes the code has.
    pub size: u32,
    /// What MOVE records know the function by.
    pub index: u64,
    /// The function's name.
    pub name: &'a [u8],
    /// The code.
    pub code: &'a [u8],
}

impl<'a> Load<'a> {
    /// Reads the content; `None` where the name or the code leaves it, or the code the address space.
    pub fn parse(content: &'a [u8], order: ByteOrder) -> Option<Self> {
        let mut content = Reader::new(content, order);
        let pid = content.u32()?;
        let _tid = content.u32()?;
        // Quirk: the field before the address, `vma`, is 0 from LLVM 14 (captures lli14-mcjit, postgres15).
        let _vma = content.u64()?;
        let start = Address(content.u64()?);
        let size = u32::try_from(content.u64()?).ok()?;
        let index = content.u64()?;
        start.checked_add(size.into())?;
        // The code is what the record ends with, so that padding may stand between it and the name: perf
        // reads it so.
        let name_size = content.rest().len().checked_sub(size as usize)?;
        let (name, code) = content.rest().split_at_checked(name_size)?;
        memchr::memchr(0, name)?;
        Some(Self {
            pid,
            start,
            size,
            index,
            name: until_nul(name),
            code,
        })
    }
}
