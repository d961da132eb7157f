//! Dumps the contents of files written by runtimes, record by record, for runtime developers.
//!
//! ```text
//! file ─► [FileKind] ─► its reader ─► [entry]: decoded records  [jitdump] [mono] [xray] ─► JSON, text
//!                                                [filter]: selects entries
//! ```
//!
//! Entries are not collected: each is passed on before the next one is read. Only a filter on functions needs
//! a pass over the file before that. It builds the index of a jitdump, or collects the methods of a Mono log.
//!
//! # JSON
//!
//! The output has one object per line. The first object has `format`, the version of this form ([`FORMAT`]);
//! `kind`: `jitdump`, `mono-log` or `xray-trace`; and `file_size`. For a packed log, `file_size` is the
//! unpacked size, and all offsets refer to the unpacked data; `packed_size` is the size of the file, and
//! `packing_faults` lists the faults of unpacking.
//!
//! Each of the other objects covers `size` bytes of the file from `offset` on. The objects are in file order
//! and cover each byte once: their sizes add up to `file_size`, unless a filter has removed some. `type` is
//! one of:
//!
//! - the type that the format's specification uses;
//! - `header`;
//! - `padding` for bytes without a meaning;
//! - `unknown` for a record of unknown type;
//! - `cut` for the start of a record at the end of the file, up to its type;
//! - `damage` for bytes that could not be read.
//!
//! Headers of buffers are objects, and so are the events in buffers. `time` is in the unit of the file:
//! nanoseconds or, if the header sets the flag for them, cycles; ticks in XRay traces. All other fields
//! depend on the type. They follow these conventions:
//!
//! - Addresses, IDs that are addresses, and bits are strings: `"0x7f00"`. All other numbers are JSON numbers
//!   of up to 64 bits; JavaScript rounds those above 2^53.
//! - Names are strings. Bytes that are not UTF-8 are replaced by U+FFFD. In that case, a second field with
//!   the suffix `_bytes` has all bytes of the name as hexadecimal digits.
//! - `fault` describes a fault. `cut` names the first part that is incomplete, and `missing` is the number of
//!   missing bytes, if known. `repaired` marks a wrong size or file name that has been repaired; `total_size`
//!   is the size in the file. `same_name` marks a file name that is 0xff in the file: that of the entry before.

pub mod entry;
pub mod filter;
pub(crate) mod jitdump;
pub(crate) mod mono;
mod xray;

pub use self::entry::{DumpEntry, Fields, Value};
pub use self::filter::{EntryFilter, TimeRange};
pub use self::xray::FunctionNames;
use crate::results::FileKind;

/// Version of the JSON form.
pub const FORMAT: u32 = 1;

/// Length up to which names are printed that other parts of a file have, so that any number of records can repeat them.
const MAX_REPEATED_NAME: usize = 1024;

/// Returns the start of a name, up to [`MAX_REPEATED_NAME`] bytes, without a part of a character at its end.
fn shortened(name: &[u8]) -> &[u8] {
    let Some(start) = name.get(..MAX_REPEATED_NAME) else {
        return name;
    };
    match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() => start.get(..error.valid_up_to()).unwrap_or(start),
        _ => start,
    }
}

/// What to dump of a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Selects the entries.
    pub filter: EntryFilter,
    /// Whether to include the bytes of code.
    pub with_code: bool,
    /// Names of the functions of an XRay trace; empty if they are not known.
    pub function_names: FunctionNames,
}

/// Callback that receives the entries of a file.
pub type EntrySink<'p, E> = dyn FnMut(&DumpEntry<'_>) -> Result<(), E> + 'p;

/// Passes the selected entries of a file to `sink`, in file order. Returns the first error of `sink`.
pub fn dump<E>(file: &[u8], kind: FileKind, options: &Options, sink: &mut EntrySink<'_, E>) -> Result<(), E> {
    match kind {
        FileKind::Jitdump => jitdump::dump(file, options, sink),
        FileKind::MonoLog => mono::dump(file, &options.filter, sink),
        FileKind::XrayTrace => xray::dump(file, &options.filter, &options.function_names, sink),
    }
}
