//! Content of the page, in columns, which are small as text and fast to parse.

use serde::Serialize;

use crate::tools::excerpts::Excerpt;

/// Version of the page's data format.
pub const FORMAT: u32 = 2;

/// Content of the page.
///
/// Times are nanoseconds since the start of the recording, and addresses are bytes since the start of their region,
/// because JavaScript's numbers are exact only up to 2^53. Larger values are strings.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PageValues {
    /// Format version, [`FORMAT`].
    pub format: u32,
    /// Name of the profile.
    pub input: String,
    /// Name of the event whose samples are counted.
    pub event: String,
    /// Start of the recording on its own clock, in nanoseconds.
    pub start: String,
    /// Length of the recording, in nanoseconds; never 0.
    pub span: u64,
    /// Processes with JIT code, by process ID.
    pub processes: Vec<ProcessValues>,
    /// Compilers of the functions, those with the most samples first.
    pub tiers: Vec<String>,
    /// Color of each compiler, as `#rrggbb`.
    pub colors: Vec<String>,
    /// Names of the functions, without duplicates.
    pub names: Vec<String>,
    /// Parts of the names that contain a source location.
    pub locations: Locations,
    /// Address regions with code, by process and address.
    pub regions: Vec<Region>,
    /// Functions, one per row.
    pub functions: FunctionColumns,
    /// Indices of the functions that are part of their runtime, in ascending order.
    pub built_ins: Vec<u32>,
    /// Addresses and lifetimes of the functions, one rectangle per row.
    pub boxes: Boxes,
    /// Samples over time.
    pub share: SampleColumns,
    /// Paths of the source files of [`PageValues::lines`].
    pub files: Vec<String>,
    /// Samples by source line.
    pub lines: LineColumns,
    /// Samples in inlined functions.
    pub inlined: InlinedColumns,
    /// Source text around the lines, if requested.
    pub excerpts: Vec<Excerpt>,
    /// Notes on what is not shown, and why.
    pub notes: Vec<String>,
}

/// Columns of the parts of names. Positions count units of UTF-16, as JavaScript does.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Locations {
    /// Index of the name, in ascending order.
    pub name: Vec<u32>,
    /// Start of the function's own name.
    pub function_start: Vec<u32>,
    /// End of the function's own name, which may be empty.
    pub function_end: Vec<u32>,
    /// Start of the path.
    pub path_start: Vec<u32>,
    /// End of the path.
    pub path_end: Vec<u32>,
    /// Line; 0 if the name has none.
    pub line: Vec<u32>,
}

/// Columns of the source lines of functions, sorted by function, file and line.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct LineColumns {
    /// Index of the function.
    pub function: Vec<u32>,
    /// Index of the file.
    pub file: Vec<u32>,
    /// Line, from 1.
    pub line: Vec<u32>,
    /// Number of samples of the function in code of this line; 0 for the line that the function is declared in.
    pub samples: Vec<u32>,
}

/// Columns of functions that are inlined into others, sorted by the function that contains them. Their samples are
/// among those of that function.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct InlinedColumns {
    /// Index of the function that contains the code.
    pub function: Vec<u32>,
    /// Index of the inlined function's name.
    pub name: Vec<u32>,
    /// Number of samples in code of the inlined function itself.
    pub samples: Vec<u32>,
}

/// A process with JIT code.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ProcessValues {
    /// Process ID.
    pub pid: u32,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples in JIT code.
    pub jit: u64,
}

/// A range of addresses with code close together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Region {
    /// Index of the process.
    pub process: u32,
    /// Lowest address, in hexadecimal digits.
    pub base: String,
    /// Size of the region, in bytes.
    pub size: u64,
}

/// Columns of functions, one function per row.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct FunctionColumns {
    /// Index of the name.
    pub name: Vec<u32>,
    /// Index of the compiler; `None` if unknown.
    pub tier: Vec<Option<u32>>,
    /// Index of the process.
    pub process: Vec<u32>,
    /// Number of samples of the process in the function.
    pub samples: Vec<u64>,
}

/// Columns of rectangles of address and time in which a function existed, sorted by time within a process.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Boxes {
    /// Index of the function.
    pub function: Vec<u32>,
    /// Index of the region.
    pub region: Vec<u32>,
    /// Offset from the start of the region, in bytes.
    pub offset: Vec<u64>,
    /// Size of the code, in bytes.
    pub size: Vec<u64>,
    /// Start time; `None` if before the recording.
    pub from: Vec<Option<u64>>,
    /// End time; `None` if after the recording.
    pub until: Vec<Option<u64>>,
    /// Number of samples of the process in the function at this address. The rectangles left of partly overwritten
    /// code all have the same number.
    pub samples: Vec<u32>,
}

/// Columns of sample counts over time, without zeros, sorted by process, series and bin.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct SampleColumns {
    /// Number of bins of equal length into which the recording is divided.
    pub bins: u32,
    /// Index of the process.
    pub process: Vec<u32>,
    /// What the samples are in: 0 anything, 1 JIT code without a name, 2 functions of an unknown compiler, and from 3
    /// up functions of each compiler.
    pub series: Vec<u32>,
    /// Index of the bin.
    pub bin: Vec<u32>,
    /// Number of samples.
    pub samples: Vec<u32>,
}
