//! LOAD records: a function with its name and machine code.

use crate::bytes::{ByteOrder, Reader, split_once};
use crate::units::Address;

/// The content of a LOAD record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load<'a> {
    /// PID of the process that loaded the function.
    pub pid: u32,
    /// ID of the thread that loaded it.
    pub tid: u32,
    /// Virtual address of the code (`vma` in the specification).
    ///
    /// Quirk: it is 0 from LLVM 14 (captures lli14-mcjit, postgres15).
    pub vma: u64,
    /// Start address of the code.
    pub start: Address,
    /// Size of the code, in bytes.
    pub size: u32,
    /// ID that the runtime gave the function (`code_index`).
    pub code_index: u64,
    /// Name of the function, without the NUL.
    pub name: &'a [u8],
    /// Bytes between the name's NUL and the code.
    pub padding: &'a [u8],
    /// Machine code.
    pub code: &'a [u8],
}

impl<'a> Load<'a> {
    /// Parses the content of a record; `None` if the name or code exceeds it, or the code exceeds the address
    /// space.
    pub fn parse(content: &'a [u8], endian: ByteOrder) -> Option<Self> {
        let mut content = Reader::new(content, endian);
        let pid = content.u32()?;
        let tid = content.u32()?;
        let vma = content.u64()?;
        let start = Address(content.u64()?);
        let size = u32::try_from(content.u64()?).ok()?;
        let code_index = content.u64()?;
        start.checked_add(size.into())?;
        // The code is at the end of the record, so there may be padding between the name and the code. perf
        // reads it the same way.
        let name_size = content.rest().len().checked_sub(size as usize)?;
        let (name, code) = content.rest().split_at_checked(name_size)?;
        let (name, padding) = split_once(name, 0)?;
        Some(Self {
            pid,
            tid,
            vma,
            start,
            size,
            code_index,
            name,
            padding,
            code,
        })
    }
}
