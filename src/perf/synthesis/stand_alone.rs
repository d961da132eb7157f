//! What a profile says of itself if nothing was recorded.

use crate::bytes::ByteOrder;
use crate::perf::feature::{self, Feature};
use crate::units::Time;

/// Where events come from that stand alone. What is empty is left out.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The byte order of the profile.
    pub order: ByteOrder,
    /// The clock of all times, such as 1 for CLOCK_MONOTONIC; `None` is the scheduler's.
    pub clock_id: Option<i32>,
    /// The machine's name.
    pub host: &'a [u8],
    /// The release of its kernel.
    pub os_release: &'a [u8],
    /// The version of the program that makes the profile.
    pub version: &'a [u8],
    /// The architecture, in the words of `uname -m`. Without it, readers take the machine's that they run on.
    pub architecture: &'a [u8],
    /// The command that makes the profile: program and arguments.
    pub command_line: &'a [&'a [u8]],
}

/// The sections for all that does not change with the records.
pub(super) fn features(origin: &Origin<'_>) -> Vec<Feature<'static>> {
    let order = origin.order;
    let strings = [
        (feature::HOSTNAME, origin.host),
        (feature::OS_RELEASE, origin.os_release),
        (feature::VERSION, origin.version),
        (feature::ARCH, origin.architecture),
    ];
    let mut features = Vec::new();
    let mut add = |id, content: Vec<u8>| {
        features.push(Feature {
            id,
            content: content.into(),
        });
    };
    for (id, string) in strings.into_iter().filter(|(_, string)| !string.is_empty()) {
        let mut content = Vec::new();
        feature::put_string(&mut content, order, string);
        add(id, content);
    }
    if !origin.command_line.is_empty() {
        let mut content = Vec::new();
        let count = u32::try_from(origin.command_line.len()).unwrap_or(u32::MAX);
        order.put_u32(&mut content, count);
        for argument in origin.command_line {
            feature::put_string(&mut content, order, argument);
        }
        add(feature::COMMAND_LINE, content);
    }
    if origin.clock_id.is_some() {
        // Times are in nanoseconds.
        let mut content = Vec::new();
        order.put_u64(&mut content, 1);
        add(feature::CLOCK_ID, content);
    }
    features
}

/// The section that tells when the first and the last sample were taken.
pub(super) fn sample_times(order: ByteOrder, times: (Time, Time)) -> Feature<'static> {
    let mut content = Vec::new();
    order.put_u64(&mut content, times.0.0);
    order.put_u64(&mut content, times.1.0);
    Feature {
        id: feature::SAMPLE_TIME,
        content: content.into(),
    }
}
