//! A jitdump that may still grow.

use std::path::Path;
use std::vec;

use crate::bytes::RandomAccess;
use crate::debug_info::DebugInfo;
use crate::error::{Error, ErrorKind};
use crate::event::CodeEvent;
use crate::files::OpenFile;
use crate::format;
use crate::format::{Contents, GrowingIndex, Header, Index, Move};
use crate::machine::Machine;
use crate::symbolize::file_now::FileNow;
use crate::symbolize::growing_history::GrowingHistory;
use crate::units::{Address, AddressRange, Time};

/// Maximum size of a header that is waited for, in bytes. Headers have 40.
const MAX_HEADER: u64 = 4096;

/// A jitdump, with an index of its functions over time.
#[derive(Debug)]
pub struct Jitdump {
    file: OpenFile,
    /// `None` until the file has a header.
    read: Option<Read>,
}

/// What was read from the file.
#[derive(Debug)]
struct Read {
    index: GrowingIndex,
    /// Indices of functions in the file, each with the start of its code.
    code: GrowingHistory<(u32, Address)>,
}

/// A function at an address range, from a time on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct Function {
    /// Index of the function in the file, from 0. A function that was moved keeps it.
    pub number: u32,
    /// Addresses of its code.
    pub range: AddressRange,
    /// Time at which it was loaded or moved there.
    pub since: Time,
}

/// A function's name and tier.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Symbol {
    /// Name as the runtime wrote it. It may contain any bytes; [`printable`](crate::bytes::printable) is for terminals.
    pub name: Vec<u8>,
    /// Compiler tier; `None` if it is unknown.
    pub tier: Option<Vec<u8>>,
}

/// A function or an inlined call at an address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// Name of the function; of an inlined one, possibly empty.
    pub function: Vec<u8>,
    /// Path of the source file; `None` if it is unknown.
    pub file: Option<Vec<u8>>,
    /// Executed line, or in a caller the line of the call, from 1; `None` if it is unknown.
    pub line: Option<u32>,
    /// Column, from 1; `None` if it is unknown.
    pub column: Option<u32>,
    /// Whether the call was inlined into the next frame.
    pub is_inlined: bool,
}

impl Jitdump {
    /// Opens a regular file, which may still be empty. Nothing is read before [`update`](Self::update).
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenFile::open(path).map_err(|cause| Error::unreadable(path, cause))?;
        Ok(Self::new(file))
    }

    /// Wraps an open file.
    #[doc(hidden)]
    pub fn new(file: OpenFile) -> Self {
        Self { file, read: None }
    }

    /// Reads the records that were written since the last call, and returns the number of functions that were loaded or
    /// moved.
    ///
    /// Fails if the file is not a jitdump, has become shorter, or cannot be read.
    pub fn update(&mut self) -> Result<usize, Error> {
        self.read(false)
    }

    /// Like [`update`](Self::update), for a file that nothing writes to any more. An unfinished record at its end counts as a fault.
    pub fn finish(&mut self) -> Result<usize, Error> {
        self.read(true)
    }

    /// Reads new records; an unfinished one at the end only if the file `is_complete`.
    fn read(&mut self, is_complete: bool) -> Result<usize, Error> {
        let path = &self.file.origin().path;
        let file = FileNow::new(&self.file).map_err(|cause| Error::unreadable(path, cause))?;
        let read = match &mut self.read {
            Some(read) => read,
            empty => {
                let is_early =
                    |error: &Error| matches!(error.kind(), ErrorKind::Empty | ErrorKind::TooShort { .. });
                let header = match Header::read(&file) {
                    Err(error) if is_early(&error) && !is_complete => return Ok(0),
                    header => header.map_err(|error| error.in_file(path))?,
                };
                let size = u64::from(header.size);
                if (file.size()..MAX_HEADER).contains(&size) && size > file.size() && !is_complete {
                    return Ok(0);
                }
                empty.insert(Read {
                    index: GrowingIndex::new(header, file.size(), Machine::host()),
                    code: GrowingHistory::default(),
                })
            }
        };
        // Or it was truncated, and has grown again since.
        let is_other = Header::read(&file).ok() != Some(*read.index.index().header());
        if file.size() < read.index.position() || is_other {
            return Err(Error::from(ErrorKind::Shrunk).in_file(path));
        }
        let mut count = 0usize;
        loop {
            let mut events = read.index.read(&file, is_complete);
            count = count.saturating_add(read.put_new_code(&mut events.loads, &mut events.moves));
            if !events.has_more {
                return Ok(count);
            }
        }
    }

    /// Returns the path by which the file was opened.
    pub fn path(&self) -> &Path {
        &self.file.origin().path
    }

    /// Returns the device and inode of the file.
    pub fn file_id(&self) -> (u64, u64) {
        self.file.file_id()
    }

    /// Returns the index: header, machine, faults. `None` until an update has found a header.
    pub fn index(&self) -> Option<&Index> {
        self.read.as_ref().map(|read| read.index.index())
    }

    /// Returns the number of bytes that were read. The rest of the file is new, or an unfinished record.
    pub fn position(&self) -> u64 {
        self.read.as_ref().map_or(0, |read| read.index.position())
    }

    /// Returns the function whose code contains an address at a time; [`Time::LAST`] is now. Reads nothing from the
    /// file.
    pub fn function_at(&self, address: Address, time: Time) -> Option<Function> {
        let read = self.read.as_ref()?;
        read.function(read.code.at(address, time)?)
    }

    /// Iterates over the code that is there now, by address. Code that was overwritten in the middle has two parts.
    pub fn functions(&self) -> impl Iterator<Item = (AddressRange, Function)> + '_ {
        let read = self.read.iter();
        read.flat_map(|read| {
            let now = read.code.now();
            now.filter_map(|(range, placed)| Some((range, read.function(placed)?)))
        })
    }

    /// Reads a function's name and tier; `None` if the file has changed or cannot be read.
    pub fn symbol(&self, function: Function) -> Option<Symbol> {
        let file = FileNow::new(&self.file).ok()?;
        let function = format::Function::read(self.index()?, Contents::OnDemand(&file), function.number)?;
        Some(Symbol {
            name: function.name.to_vec(),
            tier: function.tier().map(<[u8]>::to_vec),
        })
    }

    /// Reads the source line and the inlined calls at an address of a function: inlined calls first, the function itself last.
    /// Without lines, there is one frame with the function's name. There is none if the file has changed or cannot be read, or
    /// if the address is outside the function.
    pub fn frames(&self, function: Function, address: Address) -> vec::IntoIter<Frame> {
        let frames = self.find_frames(function, address).unwrap_or_default();
        frames.into_iter()
    }

    /// Returns the frames at an address of a function; `None` if it does not contain it, or its record is gone.
    fn find_frames(&self, function: Function, address: Address) -> Option<Vec<Frame>> {
        let offset = u32::try_from(address.0.checked_sub(function.range.start.0)?).ok()?;
        if !function.range.contains(address) {
            return None;
        }
        let file = FileNow::new(&self.file).ok()?;
        let function = format::Function::read(self.index()?, Contents::OnDemand(&file), function.number)?;
        let info = function.lines().info.unwrap_or_default();
        let found = info.frames_at(offset);
        let last = found.len().saturating_sub(1);
        let frames = found.iter().enumerate();
        Some(
            frames
                .map(|(at, frame)| describe(&info, function.name, frame, at < last))
                .collect(),
        )
    }
}

/// Copies a frame.
fn describe(
    info: &DebugInfo<'_>,
    own_name: &[u8],
    frame: &crate::debug_info::SourceFrame,
    is_inlined: bool,
) -> Frame {
    let called = info.functions.get(frame.function as usize);
    let name = called.map_or(&b""[..], |called| called.name);
    let file = frame.file.and_then(|file| info.files.get(file as usize));
    let known = |number: u32| (number > 0).then_some(number);
    Frame {
        function: if name.is_empty() && !is_inlined {
            own_name
        } else {
            name
        }
        .to_vec(),
        file: file.map(|file| file.path.to_vec()),
        line: known(frame.line),
        column: known(frame.column),
        is_inlined,
    }
}

/// A function that a record moves.
struct MovedFunction {
    function: u32,
    /// Its addresses before and after the move.
    from: AddressRange,
    to: AddressRange,
}

impl Read {
    /// Puts new code at its addresses, in the order of time. Returns the number of functions that were loaded or moved.
    fn put_new_code(&mut self, loads: &mut [(u64, CodeEvent)], moves: &mut [Move]) -> usize {
        loads.sort_by_key(|(offset, load)| (load.time, *offset));
        moves.sort_by_key(|moved| (moved.time, moved.offset));
        let mut moves = moves.iter().peekable();
        let mut count = loads.len();
        for (offset, load) in loads.iter() {
            while let Some(moved) = moves.next_if(|moved| (moved.time, moved.offset) < (load.time, *offset)) {
                count = count.saturating_add(self.apply_move(moved));
            }
            let (function, since) = (load.function, Time(load.time.0));
            if let Some(range) = self.index.index().range(function) {
                self.code.put(range, since, (function, range.start));
            }
        }
        for moved in moves {
            count = count.saturating_add(self.apply_move(moved));
        }
        count
    }

    /// Moves the function that is at the address that the record gives; without one, the record is a fault. Returns the number of
    /// functions that were moved.
    fn apply_move(&mut self, moved: &Move) -> usize {
        let Some(MovedFunction { function, from, to }) = self.moved_function(moved) else {
            self.index.skip_move(moved);
            return 0;
        };
        let time = Time(moved.time.0);
        self.code.clear(from, time, |(placed, _)| placed == function);
        self.code.put(to, time, (function, to.start));
        1
    }

    /// Returns the function at the old address of a move; `None` if none starts there. Other functions with the same
    /// `code_index` are not considered, because some runtimes give all functions the same one.
    fn moved_function(&self, moved: &Move) -> Option<MovedFunction> {
        let (_, (function, start)) = self.code.at(moved.from, Time(moved.time.0))?;
        if start != moved.from {
            return None;
        }
        let size = self.index.index().range(function)?.size();
        Some(MovedFunction {
            function,
            from: AddressRange::new(moved.from, size)?,
            to: AddressRange::new(moved.to, size)?,
        })
    }

    fn function(&self, (since, (number, start)): (Time, (u32, Address))) -> Option<Function> {
        let size = self.index.index().range(number)?.size();
        Some(Function {
            number,
            range: AddressRange::new(start, size)?,
            since,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::ByteOrder;
    use crate::fault::Fault;

    #[test]
    fn headers_of_less_than_4_kib_are_waited_for() {
        for (size, is_waited_for) in [(4095, true), (4096, false)] {
            let mut header = Vec::new();
            for word in [0x4A69_5444, 1, size, 62, 0, 1, 0, 0, 0, 0] {
                ByteOrder::NATIVE.write_u32(&mut header, word);
            }
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("jit-1.dump");
            std::fs::write(&path, header).unwrap();
            let mut dump = Jitdump::open(&path).unwrap();
            assert_eq!(dump.update().unwrap(), 0);
            let faults = dump.index().map(Index::faults);
            let count = faults.map(|faults| faults.count(Fault::InvalidHeaderSize));
            assert_eq!(count, (!is_waited_for).then_some(1), "{size}");
        }
    }
}
