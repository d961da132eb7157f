//! A function in a file of any format.

use crate::names;
use crate::units::AddressRange;

/// A function as its file describes it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionView<'a> {
    /// Index of the function in the file.
    pub number: u32,
    /// Name as the runtime wrote it, without the NUL.
    pub name: &'a [u8],
    /// Machine code, exactly as long as `range`; `None` if the file has none.
    pub code: Option<&'a [u8]>,
    /// Addresses at which the code was first loaded.
    pub range: AddressRange,
    /// ID of the function in the runtime (`code_index` of a jitdump). It need not be unique.
    pub code_index: u64,
    /// Compiler tier from the file's records; `None` if they don't give one.
    pub recorded_tier: Option<&'a [u8]>,
}

impl<'a> FunctionView<'a> {
    /// Returns the compiler tier, from the file's records or else from the name.
    pub fn tier(&self) -> Option<&'a [u8]> {
        let by_name = || names::tier(self.name).map(str::as_bytes);
        self.recorded_tier.or_else(by_name)
    }
}
