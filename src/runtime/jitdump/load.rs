//! LOAD records: a function, its name and its code.

use crate::bytes::{ByteOrder, Reader, split_once};
use crate::units::Address;

/// The content of a LOAD record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load<'a> {
    /// The process.
    pub pid: u32,
    /// What the specification calls the virtual address of the code.
    ///
    /// Quirk: it is 0 from LLVM 14 (captures lli14-mcjit, postgres15).
    pub vma: u64,
    /// Where the code was put.
    pub start: Address,
    /// How many bytes it has.
    pub size: u32,
    /// The number that the runtime knows the function under (`code_index`).
    pub index: u64,
    /// The function's name, without the NUL.
    pub name: &'a [u8],
    /// What stands between the name's NUL and the code.
    pub padding: &'a [u8],
    /// The code.
    pub code: &'a [u8],
}

impl<'a> Load<'a> {
    /// Reads the content of a record; `None` where name or code leave it, or the code the address space.
    pub fn parse(content: &'a [u8], order: ByteOrder) -> Option<Self> {
        let mut content = Reader::new(content, order);
        let pid = content.u32()?;
        let _tid = content.u32()?;
        let vma = content.u64()?;
        let start = Address(content.u64()?);
        let size = u32::try_from(content.u64()?).ok()?;
        let index = content.u64()?;
        start.checked_add(size.into())?;
        // The code is what the record ends with, so that padding may stand between it and the name: perf
        // reads it so.
        let name_size = content.rest().len().checked_sub(size as usize)?;
        let (name, code) = content.rest().split_at_checked(name_size)?;
        let (name, padding) = split_once(name, 0)?;
        Some(Self {
            pid,
            vma,
            start,
            size,
            index,
            name,
            padding,
            code,
        })
    }
}
