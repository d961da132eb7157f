//! The bytes of a jitdump, in memory or read when they are needed.
//!
//! A file is indexed in one pass over windows, whose result does not depend on where a window ends. The
//! index has positions, addresses and times; names, code and tables are read when they are needed, and compared
//! with the index: a function that is no longer there counts as damage, not as another function.

use std::ops::ControlFlow;

use crate::bytes::{ByteOrder, RandomAccess};
use crate::format::record::window::ContentWindow;
use crate::format::record::{PREFIX_SIZE, RecordLocation, Records, Step};

/// Bytes read at a time for a walk over all records. Records fit into it, and it fits into a processor's cache.
const WINDOW_SIZE: usize = 256 << 10;

/// Bytes read for the first records, which is all that some callers need.
const FIRST_WINDOW_SIZE: usize = 16 << 10;

/// Where the bytes of a jitdump are.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// In memory.
    InMemory(&'a [u8]),
    /// In a file, of which only what is needed is in memory.
    OnDemand(&'a dyn RandomAccess),
}

impl<'a> Contents<'a> {
    /// Returns the content of the record at `location`; `None` if it exceeds the file or cannot be read.
    pub fn of(self, location: RecordLocation) -> Option<&'a [u8]> {
        let start = location.offset.checked_add(PREFIX_SIZE as u64)?;
        let size = usize::try_from(location.size).ok()?;
        match self {
            Self::InMemory(file) => file.get(usize::try_from(start).ok()?..)?.get(..size),
            Self::OnDemand(file) => file.get(start, size),
        }
    }

    /// Calls `visit` with what [`Records`] returns for all records from byte `start` of the file, until it breaks.
    pub fn walk(
        self,
        start: usize,
        endian: ByteOrder,
        mut visit: impl FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Self::InMemory(file) => Records::new(file, start, endian).try_for_each(visit),
            Self::OnDemand(file) => walk_file(file, start, endian, &mut visit),
        }
    }
}

/// Walks over the records of a file from byte `start`, in windows that are read one after the other. A step that depends on bytes
/// behind its window is not visited, but found again in the next window, which starts there.
///
/// If a window is too small for its first step, the next one has twice the size, up to the rest of the file. All steps are found
/// then, because no bytes are behind it.
fn walk_file(
    file: &dyn RandomAccess,
    start: usize,
    endian: ByteOrder,
    visit: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut size = usize::try_from(file.size()).unwrap_or(usize::MAX);
    let (mut position, mut last_time) = (start, None);
    let mut window_size = FIRST_WINDOW_SIZE;
    let mut buffer = Vec::new();
    loop {
        let wanted = window_size.min(size.saturating_sub(position));
        buffer.resize(wanted, 0);
        let read = file.read(position as u64, &mut buffer);
        if read < wanted {
            // The file has become shorter, or cannot be read.
            size = position.saturating_add(read);
            buffer.truncate(read);
        }
        let window = ContentWindow::new(&buffer, position, size);
        let mut records = Records::in_window(window, position, endian, last_time);
        let window_start = position;
        loop {
            let step = records.next();
            if records.has_missed() {
                break;
            }
            let Some(step) = step else {
                return ControlFlow::Continue(());
            };
            visit(step)?;
            (position, last_time) = records.state();
        }
        window_size = if position > window_start {
            WINDOW_SIZE
        } else {
            window_size.saturating_mul(2)
        };
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file that is nowhere in memory as a whole.
    #[derive(Debug)]
    pub struct Distant(pub Vec<u8>);

    impl RandomAccess for Distant {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> usize {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            count
        }

        fn get(&self, _: u64, _: usize) -> Option<&[u8]> {
            None
        }
    }

    /// Steps with the contents of their records.
    fn steps(contents: Contents<'_>) -> Vec<String> {
        let mut steps = Vec::new();
        let _ = contents.walk(0, ByteOrder::Little, |step| {
            steps.push(format!("{step:?}"));
            ControlFlow::Continue(())
        });
        steps
    }

    pub fn record(kind: u32, time: u64, size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [kind, (PREFIX_SIZE + size) as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&time.to_le_bytes());
        out.resize(PREFIX_SIZE + size, kind as u8);
        out
    }

    #[test]
    fn windows_make_no_difference() {
        let whole: Vec<u8> = (1..3000).flat_map(|time| record(77, time, 1000)).collect();
        let large = [
            record(77, 1, 10),
            record(78, 2, 3 * WINDOW_SIZE),
            record(77, 3, 10),
        ]
        .concat();
        let mut damaged = whole.clone();
        for at in [5000, WINDOW_SIZE - 3, WINDOW_SIZE * 2 - 500] {
            damaged[at..at + 900].fill(0xab);
        }
        let mut with_hole = whole.clone();
        with_hole[WINDOW_SIZE - 50_000..WINDOW_SIZE + 50_000].fill(0);
        let cut = whole[..whole.len() - 300].to_vec();
        let spare = [whole.clone(), vec![0; 2 * WINDOW_SIZE]].concat();
        for file in [
            whole,
            large,
            damaged,
            with_hole,
            cut,
            spare,
            Vec::new(),
            vec![1; 5],
        ] {
            let expected = steps(Contents::InMemory(&file));
            assert_eq!(steps(Contents::OnDemand(&Distant(file))), expected);
        }
    }
}
