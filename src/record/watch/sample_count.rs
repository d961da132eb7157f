//! Counts the samples of a profile while perf writes it.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use crate::perf::record::{AUXTRACE, COMPRESSED, COMPRESSED2, SAMPLE};

/// Size of a record's header: type, flags and size (`struct perf_event_header`).
const HEADER_SIZE: u64 = 8;

/// Where the header of a file has the offset of its records (`struct perf_file_header`).
const RECORDS_OFFSET: u64 = 40;

/// The samples counted so far.
#[derive(Debug, Default)]
pub struct SampleCount {
    /// Offset of the next record; 0 if it is not known yet.
    offset: u64,
    samples: u64,
    /// Whether samples cannot be counted by the headers of records.
    is_unknown: bool,
}

impl SampleCount {
    /// Returns the number of samples in a profile with this size. It may have grown since the last call. `None` if it is
    /// compressed or has other parts that are no plain records.
    pub fn update(&mut self, profile: &Path, size: u64) -> Option<u64> {
        if !self.is_unknown {
            match self.count_new(profile, size) {
                Ok(()) => {}
                Err(cause) if cause.kind() == ErrorKind::NotFound => {}
                Err(_) => self.is_unknown = true,
            }
        }
        (!self.is_unknown).then_some(self.samples)
    }

    /// Counts the samples among the records from `offset` to `size`. Ends at a record that is not complete yet, where the next
    /// call goes on. Fails if the file cannot be read, or at a record that is not plain.
    #[expect(
        clippy::disallowed_methods,
        reason = "perf writes it to the folder of the recording"
    )]
    fn count_new(&mut self, profile: &Path, size: u64) -> io::Result<()> {
        let mut file = BufReader::new(File::open(profile)?);
        if self.offset == 0 {
            if size < RECORDS_OFFSET.saturating_add(8) {
                return Ok(());
            }
            file.seek(SeekFrom::Start(RECORDS_OFFSET))?;
            self.offset = u64::from_ne_bytes(read_array(&mut file)?);
        }
        file.seek(SeekFrom::Start(self.offset))?;
        while self.offset.saturating_add(HEADER_SIZE) <= size {
            let kind = u32::from_ne_bytes(read_array(&mut file)?);
            let [_, _, low, high] = read_array(&mut file)?;
            let record_size = u64::from(u16::from_ne_bytes([low, high]));
            // Compressed samples have no headers of their own, and the size of AUX data is not in the header.
            let is_plain = !matches!(kind, AUXTRACE | COMPRESSED | COMPRESSED2);
            let content_size = record_size.checked_sub(HEADER_SIZE);
            let Some(content_size) = content_size.filter(|_| is_plain) else {
                return Err(ErrorKind::InvalidData.into());
            };
            let end = self.offset.saturating_add(record_size);
            if end > size {
                break;
            }
            self.samples += u64::from(kind == SAMPLE);
            self.offset = end;
            file.seek_relative(content_size as i64)?;
        }
        Ok(())
    }
}

fn read_array<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, size: u16) -> Vec<u8> {
        let mut bytes = [&kind.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes()].concat();
        bytes.resize(usize::from(size), 0);
        bytes
    }

    #[test]
    fn samples_are_counted_as_the_profile_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        let mut count = SampleCount::default();
        assert_eq!(count.update(&path, 0), Some(0));
        let mut content = [&[0; 40][..], &104u64.to_ne_bytes(), &[0; 56]].concat();
        let mut update = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            count.update(&path, content.len() as u64)
        };
        assert_eq!(update(&content), Some(0));
        content.extend([record(3, 16), record(SAMPLE, 40), record(SAMPLE, 40)].concat());
        assert_eq!(update(&content), Some(2));
        // Half of a record.
        content.extend(&record(SAMPLE, 40)[..20]);
        assert_eq!(update(&content), Some(2));
        content.extend([0; 20]);
        assert_eq!(update(&content), Some(3));
        content.extend(record(COMPRESSED, 16));
        assert_eq!(update(&content), None);
        assert_eq!(update(&content), None);
    }
}
