//! Feature sections of a profile that has no recording.

use jitdump::{ByteOrder, Time};

use crate::perf::feature::{self, Feature};

/// Origin of the events in a profile that has no recording. Empty fields are left out of the profile.
#[derive(Clone, Copy, Debug)]
pub struct EventOrigin<'a> {
    /// Endianness of the profile.
    pub endian: ByteOrder,
    /// Clock of all times, such as 1 for CLOCK_MONOTONIC; `None` for the scheduler's clock.
    pub clock_id: Option<i32>,
    /// Host name.
    pub host: &'a [u8],
    /// Kernel release.
    pub os_release: &'a [u8],
    /// Version of the program that writes the profile.
    pub version: &'a [u8],
    /// Architecture as named by `uname -m`. Without it, readers assume that of their own machine.
    pub architecture: &'a [u8],
    /// Command line of the program that writes the profile.
    pub command_line: &'a [&'a [u8]],
}

/// Returns the sections that do not depend on the records.
pub(super) fn features(origin: &EventOrigin<'_>) -> Vec<Feature<'static>> {
    let endian = origin.endian;
    let strings = [
        (feature::HOSTNAME, origin.host),
        (feature::OS_RELEASE, origin.os_release),
        (feature::VERSION, origin.version),
        (feature::ARCH, origin.architecture),
    ];
    let mut features = Vec::new();
    for (id, string) in strings.into_iter().filter(|(_, string)| !string.is_empty()) {
        let mut content = Vec::new();
        feature::write_string(&mut content, endian, string);
        features.push(Feature::new(id, content));
    }
    if !origin.command_line.is_empty() {
        let mut content = Vec::new();
        let count = u32::try_from(origin.command_line.len()).unwrap_or(u32::MAX);
        endian.write_u32(&mut content, count);
        for argument in origin.command_line {
            feature::write_string(&mut content, endian, argument);
        }
        features.push(Feature::new(feature::COMMAND_LINE, content));
    }
    if origin.clock_id.is_some() {
        // Times are in nanoseconds.
        let mut content = Vec::new();
        endian.write_u64(&mut content, 1);
        features.push(Feature::new(feature::CLOCK_ID, content));
    }
    features
}

/// Returns the section with the number of CPUs, `cpus`, as far as events show it.
///
/// perf 7.3 warns about a profile without it, and rejects samples of other CPUs.
pub(super) fn nr_cpus(endian: ByteOrder, cpus: u32) -> Feature<'static> {
    let mut content = Vec::new();
    endian.write_u32(&mut content, cpus);
    endian.write_u32(&mut content, cpus);
    Feature::new(feature::NR_CPUS, content)
}

/// Returns the section with the times of the first and the last sample.
pub(super) fn sample_times(endian: ByteOrder, times: (Time, Time)) -> Feature<'static> {
    let mut content = Vec::new();
    endian.write_u64(&mut content, times.0.0);
    endian.write_u64(&mut content, times.1.0);
    Feature::new(feature::SAMPLE_TIME, content)
}
