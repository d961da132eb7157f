//! What is in a file that a runtime wrote, piece by piece, for those who write runtimes.
//!
//! ```text
//! file ─► [FileKind] ─► runtime/'s readers ─► [entry]: what each piece is  [jitdump] [mono] [xray] ─► JSON, text
//!                                                    [filter]: which ones are wanted
//! ```
//!
//! Nothing is kept: a piece is told, and the next one is read. Only to know which records are about a function, a jitdump's
//! index is made first, and the names of a Mono log.
//!
//! # JSON
//!
//! One object a line. The first has `format`, the version of this form ([`FORMAT`]); `kind`: `jitdump`,
//! `mono-log` or `xray-trace`; and `file_size`. Of a packed log, `file_size` is what came out of it, which all offsets are
//! of, `packed_size` is the size of the file, and `packing_faults` says what could not be unpacked.
//!
//! Each of the others stands for some bytes of the file, `size` from `offset` on. They come in the order of the file, and have all
//! of its bytes, each once: their sizes add up to `file_size`, unless a filter has left some out. `type` is what it is, by the name
//! that the format has for it; `header`; `padding` for bytes that mean nothing; `unknown` for a record of a type that is not known; `cut` for the start of one
//! that the file ends in; or `damage` for bytes that could not be read. Headers of buffers are objects, and so are the events in them. `time` is that of the file: nanoseconds or, where
//! the header says so, cycles; ticks in traces of XRay. All other fields are those of the type. Of them:
//!
//! - Addresses, numbers that stand for addresses, and bits are strings: `"0x7f00"`. All other numbers are numbers, of
//!   up to 64 bits; JavaScript rounds those above 2^53.
//! - Names are strings, in which bytes that are not UTF-8 are replaced by U+FFFD. Then another field with `_bytes` behind its
//!   name has all of its bytes in hexadecimal digits.
//! - `fault` says what is wrong. `cut` names the first part that is not there whole, and `missing` says how many bytes are
//!   missing, where that is known. `repaired` tells a size, or a file's name, that was wrong and could be made out; what the file says of
//!   the size is in `total_size`.

pub mod entry;
pub mod filter;
mod jitdump;
pub(crate) mod mono;
mod xray;

pub use self::entry::{Entry, Fields, Value};
pub use self::filter::{Filter, Times};
use crate::runtime::FileKind;

/// The version of the JSON form.
pub const FORMAT: u32 = 1;

/// What is wanted of a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which pieces.
    pub filter: Filter,
    /// Whether the bytes of code are, too.
    pub with_code: bool,
}

/// What takes the pieces of a file.
pub type Put<'p, E> = dyn FnMut(&Entry<'_>) -> Result<(), E> + 'p;

/// Gives all pieces of a file that are wanted to `put`, in the order of the file. Errors are those of `put`.
pub fn dump<E>(file: &[u8], kind: FileKind, options: &Options, put: &mut Put<'_, E>) -> Result<(), E> {
    match kind {
        FileKind::Jitdump => jitdump::dump(file, options, put),
        FileKind::MonoLog => mono::dump(file, &options.filter, put),
        FileKind::XrayTrace => xray::dump(file, &options.filter, put),
    }
}
