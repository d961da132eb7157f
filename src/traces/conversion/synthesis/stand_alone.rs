//! Feature sections of a profile that has no recording.

use jitdump::{ByteOrder, Time};

use crate::perf::feature::{self, Feature};

/// Origin of the events in a profile that has no recording.
#[derive(Clone, Copy, Debug)]
pub struct EventOrigin<'a> {
    /// Endianness of the profile.
    pub endian: ByteOrder,
    /// Clock of all times, such as 1 for CLOCK_MONOTONIC; `None` for the scheduler's clock.
    pub clock_id: Option<i32>,
    /// Architecture as named by `uname -m`; possibly empty. Without it, readers assume that of their own machine.
    pub architecture: &'a [u8],
}

/// Returns the sections that do not depend on the records.
pub(super) fn features(origin: &EventOrigin<'_>) -> Vec<Feature<'static>> {
    let endian = origin.endian;
    let string = |id, string| {
        let mut content = Vec::new();
        feature::write_string(&mut content, endian, string);
        Feature::new(id, content)
    };
    let mut features = vec![string(feature::VERSION, env!("CARGO_PKG_VERSION").as_bytes())];
    if !origin.architecture.is_empty() {
        features.push(string(feature::ARCH, origin.architecture));
    }
    let mut command_line = Vec::new();
    endian.write_u32(&mut command_line, 1);
    feature::write_string(&mut command_line, endian, b"jitinject");
    features.push(Feature::new(feature::COMMAND_LINE, command_line));
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
pub(super) fn sample_times(endian: ByteOrder, (first, last): (Time, Time)) -> Feature<'static> {
    let mut content = Vec::new();
    endian.write_u64(&mut content, first.0);
    endian.write_u64(&mut content, last.0);
    Feature::new(feature::SAMPLE_TIME, content)
}
