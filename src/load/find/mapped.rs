//! Whether a file at the path of a marker is the one that its process had mapped.

use std::time::{Duration, SystemTime};

use jitdump::Time;

use crate::code::profile_index::{FileMarker, ProfileIndex};
use crate::files::FileOrigin;
use crate::files::open_file::is_trusted;
use crate::perf::feature::ClockData;
use crate::perf::process_records::FileId;

/// How much later than its mapping a file may seem to be created: file systems have the time of the last tick, and the wall
/// clock may be adjusted.
const CLOCK_ERROR: Duration = Duration::from_millis(20);

/// When the files of a profile's markers were mapped.
#[derive(Clone, Copy, Debug)]
pub struct MappingTimes {
    /// The profile's clock and the wall clock, if recorded.
    clock: Option<ClockData>,
    /// First time in the profile.
    begin: Option<Time>,
    /// When the profile ended, if that is known.
    end: Option<SystemTime>,
}

impl MappingTimes {
    /// Creates it from the clocks of a profile, its index, and when it ended.
    pub fn new(clock: Option<ClockData>, index: &ProfileIndex, end: Option<SystemTime>) -> Self {
        let begin = index.times.map(|(begin, _)| begin);
        Self { clock, begin, end }
    }

    /// Whether a file, which was created then, is the one of a marker. Its numbers alone do not show that: when a file is
    /// removed, its inode becomes free, and a link of somebody else may lead to another file system.
    pub fn has(&self, file: &FileOrigin, created: Option<SystemTime>, marker: &FileMarker) -> bool {
        let has_numbers = marker
            .file
            .is_some_and(|mapped| is_same_file(mapped, file.file_id));
        let times = created.zip(self.mapped_by(marker.time));
        // Without the time of creation, as on some network file systems, the inode must be enough.
        let existed = created.is_none() || times.is_some_and(|(created, mapped)| created <= mapped);
        has_numbers && existed && file.trail.link_owners.iter().all(|&owner| is_trusted(owner))
    }

    /// Returns a time at which a file had been mapped whose marker has the time `marked`, 0 if it was before the profile.
    fn mapped_by(&self, marked: Time) -> Option<SystemTime> {
        let time = Some(marked).filter(|&time| time != Time(0)).or(self.begin);
        let mapped = self
            .clock
            .zip(time)
            .and_then(|(clock, time)| clock.wall_clock_at(time));
        match mapped {
            Some(mapped) => mapped.checked_add(CLOCK_ERROR),
            None => self.end,
        }
    }
}

/// Whether a file has the numbers of a mapped one. In a mount of its own (FUSE, tmpfs), a process can choose the inode, but
/// not the number of a block device.
///
/// Quirk of Linux: for file systems without one, such as Btrfs and overlays, mappings and `stat` have different numbers. Their
/// major number is 0.
fn is_same_file(mapped: FileId, (device, inode): (u64, u64)) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let is_same_device = major == 0 || (major, minor) == (mapped.major, mapped.minor);
    inode != 0 && inode == mapped.inode && is_same_device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_device_and_the_inode_of_the_mapping() {
        let mapped = FileId {
            major: 8,
            minor: 1,
            inode: 5,
        };
        let is_same = |major, minor, inode| is_same_file(mapped, (rustix::fs::makedev(major, minor), inode));
        assert!(is_same(8, 1, 5) && is_same(0, 40, 5));
        assert!(!is_same(8, 2, 5) && !is_same(8, 1, 6));
        assert!(!is_same_file(
            FileId { inode: 0, ..mapped },
            (rustix::fs::makedev(8, 1), 0)
        ));
    }
}
