//! Rewriting of a profile: call chains in place of copied stacks.

use std::io::{self, Write};
use std::path::Path;

use crate::code::profile_index::IndexedProfile;
use crate::code::samples::{Located, SampleRecord, SampleVisitor, Samples, Visited};
use crate::files::{StreamedFile, TempFile};
use crate::frames::unwind::registers::Registers;
use crate::frames::unwind::stack::{SampledStack, StackWalk, Unwinder, UnwoundCounts};
use crate::frames::unwind::step::StackCopy;
use crate::perf::Profile;
use crate::perf::attr::KeptStacks;
use crate::perf::callchain::unwound;
use crate::perf::record::reader::RecordReader;
use crate::perf::record::{
    self,
    data::{COPY_SIZE, ProfileWindow},
};

/// Writes the records of a profile with call chains. `kept` is what samples keep.
pub fn rewrite<'w, 'a>(
    recorded: &'w IndexedProfile<'w>,
    unwinder: &'w Unwinder<'a>,
    kept: KeptStacks,
    mut progress: impl FnMut(u64),
) -> io::Result<(StreamedFile, UnwoundCounts)> {
    let IndexedProfile { profile, index } = recorded;
    let mut out = Output {
        profile,
        headers: profile.records(),
        window: ProfileWindow::new(profile.data, COPY_SIZE),
        file: TempFile::create()?,
        copied: 0,
    };
    let mut heads = profile.header_records.iter().peekable();
    let mut written: io::Result<()> = Ok(());
    let start = || Rewriter {
        profile,
        kept,
        walk: StackWalk::new(unwinder),
        chunk: NewSamples::default(),
    };
    let merge = |rewriters: &mut [Visited<'_, Rewriter<'_, '_>>]| {
        let threads = rewriters.iter_mut();
        let chunks = threads.map(|visited| std::mem::take(&mut visited.visitor.chunk));
        let chunks: Vec<NewSamples> = chunks.collect();
        let samples = chunks.iter().flat_map(NewSamples::iter);
        let mut samples: Vec<(UnwoundSample, &[u8])> = samples.collect();
        // Each thread has some.
        samples.sort_by_key(|(sample, _)| sample.at);
        let write = || {
            for (sample, bytes) in samples {
                while let Some(&(at, _)) = heads.next_if(|&&(at, _)| at < sample.at) {
                    out.copy_header(at, kept)?;
                }
                out.replace(sample.at, sample.size, bytes)?;
            }
            Ok(())
        };
        if written.is_ok() {
            written = write();
        }
    };
    let rewriters = Samples::of(recorded).visit(&index.marks, start, merge, &mut progress);
    written?;
    let mut counts = UnwoundCounts::default();
    for rewriter in rewriters {
        counts.add(&rewriter.walk.counts);
    }
    for &(at, _) in heads {
        out.copy_header(at, kept)?;
    }
    out.copy_until(profile.data.len())?;
    Ok((out.file.into_streamed(Path::new("records"))?, counts))
}

/// The records written so far.
struct Output<'p> {
    profile: &'p Profile<'p>,
    /// Reads records that have attributes, in a pipe.
    headers: RecordReader<'p>,
    /// Records to copy.
    window: ProfileWindow<'p>,
    file: TempFile,
    /// Number of bytes of the profile's records that are written, or replaced.
    copied: u64,
}

impl Output<'_> {
    fn copy_until(&mut self, end: u64) -> io::Result<()> {
        let start = std::mem::replace(&mut self.copied, end);
        self.window.copy(start, end, &mut self.file)
    }

    fn replace(&mut self, at: u64, size: u64, bytes: &[u8]) -> io::Result<()> {
        self.copy_until(at)?;
        self.copied = at.saturating_add(size);
        self.file.write_all(bytes)
    }

    /// Copies a record that has attributes, in a pipe.
    fn copy_header(&mut self, at: u64, kept: KeptStacks) -> io::Result<()> {
        self.headers.seek(at);
        let Some(record) = self.headers.next() else {
            return Ok(());
        };
        let size = record.size();
        match unwound::header_record(&record, self.profile.endian, kept) {
            Some(bytes) => self.replace(at, size, &bytes),
            None => Ok(()),
        }
    }
}

/// Unwinds the stacks of samples.
struct Rewriter<'w, 'a> {
    profile: &'w Profile<'w>,
    kept: KeptStacks,
    walk: StackWalk<'w, 'a>,
    chunk: NewSamples,
}

/// New samples.
#[derive(Default)]
struct NewSamples {
    samples: Vec<UnwoundSample>,
    /// The records.
    bytes: Vec<u8>,
}

impl NewSamples {
    /// Returns all of them, with their bytes.
    fn iter(&self) -> impl Iterator<Item = (UnwoundSample, &[u8])> {
        let starts = std::iter::once(0).chain(self.samples.iter().map(|sample| sample.end));
        let samples = self.samples.iter().zip(starts);
        samples.map(|(sample, start)| (*sample, self.bytes.get(start..sample.end).unwrap_or_default()))
    }
}

/// A sample that replaces another.
#[derive(Clone, Copy)]
struct UnwoundSample {
    /// Offset and size of the old one, in bytes.
    at: u64,
    size: u64,
    /// End of the new one in the bytes of [`NewSamples`].
    end: usize,
}

impl SampleVisitor for Rewriter<'_, '_> {
    fn sample(&mut self, located: &Located<SampleRecord<'_>>) {
        let SampleRecord { record, sample } = &located.content;
        let endian = self.profile.endian;
        let Some(attr) = self.profile.attrs.event_of(record, endian) else {
            return;
        };
        if !attr.copies_stacks() {
            return;
        }
        let walk = &mut self.walk;
        walk.frames.clear();
        if sample.has_narrow_registers {
            walk.counts.narrow += 1;
        } else if let Some(space) = located.space
            && !record.is_guest()
            && !sample.is_truncated
        {
            let target = walk.target();
            let registers = Registers::of_sample(sample, attr.user_registers, target);
            if let Some((registers, address)) = registers {
                walk.unwind(&SampledStack {
                    space,
                    time: located.lookup_time(),
                    address,
                    registers,
                    copy: StackCopy {
                        start: registers.get(target.stack_pointer()).unwrap_or_default(),
                        bytes: sample.stack.bytes(),
                    },
                    is_sampled: record.cpu_mode() == record::MISC_USER,
                });
            }
        }
        let NewSamples { samples, bytes } = &mut self.chunk;
        let start = bytes.len();
        match unwound::write_sample(bytes, endian, record, sample, &walk.frames, self.kept) {
            Some(()) => samples.push(UnwoundSample {
                at: record.offset,
                size: record.size(),
                end: bytes.len(),
            }),
            None => bytes.truncate(start),
        }
    }
}
