//! What the page shows, as it stands in it: columns, which are small as text and quick to read.

use serde::Serialize;

/// The version of the page's data.
pub const FORMAT: u32 = 1;

/// All that the page shows.
///
/// Times are nanoseconds since the recording began, and addresses bytes since their region began: JavaScript's numbers
/// are exact up to 2^53. What is larger stands as text.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Values {
    /// [`FORMAT`].
    pub format: u32,
    /// What to call the profile.
    pub input: String,
    /// When the recording began on its own clock, in nanoseconds.
    pub start: String,
    /// How long it is; never 0.
    pub span: u64,
    /// The processes that have JIT code, by their numbers.
    pub processes: Vec<Process>,
    /// The compilers of functions, those with most samples first.
    pub tiers: Vec<String>,
    /// The names of functions, each once.
    pub names: Vec<String>,
    /// Where code lies, by process, from the lowest address up.
    pub regions: Vec<Region>,
    /// The functions.
    pub functions: Functions,
    /// Where they were, and when.
    pub boxes: Boxes,
    /// Samples over time.
    pub share: Share,
    /// What is not shown, and why.
    pub notes: Vec<String>,
}

/// A process with JIT code.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its samples.
    pub samples: u64,
    /// Those of them that were taken in JIT code.
    pub jit: u64,
}

/// Addresses that lie close to each other.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Region {
    /// Whose, as an index.
    pub process: u32,
    /// The lowest address, as hexadecimal digits.
    pub base: String,
    /// How many bytes it is long.
    pub size: u64,
}

/// The functions, one in each row.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Functions {
    /// The name, as an index.
    pub name: Vec<u32>,
    /// The compiler, as an index; `None` if it is not known.
    pub tier: Vec<Option<u32>>,
    /// The process whose code it is, as an index.
    pub process: Vec<u32>,
    /// How many samples of the process were taken in it.
    pub samples: Vec<u64>,
}

/// Functions at their places: one row for each rectangle of addresses and time. Sorted by time within a process.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Boxes {
    /// The function, as an index.
    pub function: Vec<u32>,
    /// The region, as an index.
    pub region: Vec<u32>,
    /// Bytes from the region's start.
    pub offset: Vec<u64>,
    /// Bytes.
    pub size: Vec<u64>,
    /// Since when; `None` if that was before the recording.
    pub from: Vec<Option<u64>>,
    /// Until when; `None` if it was there in the end.
    pub until: Vec<Option<u64>>,
    /// How many samples of the process were taken in the function while it was at this place; what is left of a place that
    /// was partly overwritten counts them as well.
    pub samples: Vec<u32>,
}

/// How many samples were taken when and in what: one row for each of these that has any, in this order.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Share {
    /// In how many parts of the same length the recording is divided.
    pub bins: u32,
    /// The process, as an index.
    pub process: Vec<u32>,
    /// What they were taken in: 0 anything, 1 JIT code without a name, 2 functions whose compiler is not known, and
    /// from 3 on those of the compilers.
    pub series: Vec<u32>,
    /// Which part.
    pub bin: Vec<u32>,
    /// The samples.
    pub samples: Vec<u32>,
}
