//! Puts unwound stacks into a profile, as call chains in place of the registers and stacks they come from.

use jitdump::{ByteOrder, Tally};
use linux_perf_event_reader::constants::PERF_CONTEXT_USER;

use crate::perf::attr::{self, Attrs, KeptStacks};
use crate::perf::feature::{self, Feature};
use crate::perf::pipe::PipeHeader;
use crate::perf::profile::{Container, Profile};
use crate::perf::record::data::ProfileBytes;
use crate::perf::record::{self, HEADER_SIZE, Record};
use crate::perf::sample::{ChainEntry, Sample, USER_DEFERRED};

/// Size of a word in bytes.
const WORD: usize = 8;

/// Maximum size of a record in bytes: a multiple of 8.
const MAX_RECORD: usize = 0xfff8;

/// Header sections of a profile with unwound stacks.
#[derive(Clone, Debug)]
pub struct UnwoundHeader {
    attrs: Vec<Vec<u8>>,
    event_desc: Option<Vec<u8>>,
}

impl UnwoundHeader {
    /// Changes the header sections of a profile.
    pub fn of(profile: &Profile<'_>, kept: KeptStacks) -> Self {
        let attrs = profile.attr_entries.iter().map(|entry| {
            let mut attr = entry.attr.clone();
            attr::set_unwound(&mut attr, profile.endian, kept);
            attr
        });
        let event_desc = profile.feature(feature::EVENT_DESC).map(|content| {
            let mut content = content.to_vec();
            set_event_desc(&mut content, profile.endian, kept);
            content
        });
        Self {
            attrs: attrs.collect(),
            event_desc,
        }
    }

    /// Returns the profile with these sections and new records.
    pub fn profile<'a>(self, recorded: Profile<'a>, records: ProfileBytes<'a>) -> Profile<'a> {
        let mut profile = Profile {
            data: records,
            data_offset: 0,
            ..recorded
        };
        for (entry, attr) in profile.attr_entries.iter_mut().zip(self.attrs) {
            entry.attr = attr;
        }
        let mut features = profile.features.iter_mut();
        let event_desc = features.find(|feature| feature.id == feature::EVENT_DESC);
        if let (Some(feature), Some(content)) = (event_desc, self.event_desc) {
            *feature = Feature::new(feature::EVENT_DESC, content);
        }
        profile.attrs = Attrs::read(&profile.attr_entries, profile.endian);
        if profile.container == Container::Pipe {
            let head = PipeHeader::read(profile.data, profile.endian, &mut Tally::default());
            profile.header_records = head.records;
        }
        profile
    }
}

/// Changes the attributes in an event description. It has the layout that perf's `write_event_desc` writes.
fn set_event_desc(content: &mut [u8], endian: ByteOrder, kept: KeptStacks) -> Option<()> {
    let count = endian.u32_at(content, 0)?;
    let size = usize::try_from(endian.u32_at(content, 4)?).ok()?;
    let mut at = 8usize;
    for _ in 0..count {
        let end = at.checked_add(size)?;
        attr::set_unwound(content.get_mut(at..end)?, endian, kept);
        let ids = usize::try_from(endian.u32_at(content, end)?).ok()?;
        let name = endian.u32_at(content, end.checked_add(4)?)?;
        let after_name = end.checked_add(8)?.checked_add(usize::try_from(name).ok()?)?;
        at = after_name.checked_add(ids.checked_mul(WORD)?)?;
    }
    Some(())
}

/// Changes a record of a pipe that holds an attribute or an event description. `None` for all other records.
pub fn header_record(record: &Record<'_>, endian: ByteOrder, kept: KeptStacks) -> Option<Vec<u8>> {
    /// Offset of a feature's content, after its ID.
    const CONTENT: usize = HEADER_SIZE + WORD;
    let mut bytes = record.bytes.to_vec();
    match record.kind {
        record::HEADER_ATTR => {
            let body = bytes.get_mut(HEADER_SIZE..)?;
            let size = attr::size(body, endian)?;
            attr::set_unwound(body.get_mut(..size)?, endian, kept);
        }
        record::HEADER_FEATURE if record.body(endian).u64() == Some(feature::EVENT_DESC.into()) => {
            set_event_desc(bytes.get_mut(CONTENT..)?, endian, kept);
        }
        _ => return None,
    }
    Some(bytes)
}

/// Appends a sample with an unwound stack: the sampled address and those of its callers, with markers. Without one (`stack`
/// is empty), or if the recorded call chain has more user addresses, it keeps its call chain. `None` if the record ends
/// before its call chain. Then a part of it may have been appended.
pub fn write_sample(
    out: &mut Vec<u8>,
    endian: ByteOrder,
    record: &Record<'_>,
    sample: &Sample<'_>,
    stack: &[u64],
    kept: KeptStacks,
) -> Option<()> {
    let place = sample.callchain_place?;
    let recorded = sample.callchain.count();
    let chain = place.checked_add(if sample.callchain_offset.is_some() {
        WORD
    } else {
        0
    })?;
    let chain_end = chain.checked_add(recorded.checked_mul(WORD)?)?;
    let before_user = before_user_part(record, sample);
    let addresses = stack.iter().filter(|&&entry| entry != PERF_CONTEXT_USER).count();
    let is_better = addresses > recorded.saturating_sub(before_user).saturating_sub(1);
    // Number of recorded entries that stay, and what follows them.
    let (recorded_left, stack) = if is_better && !stack.is_empty() {
        (before_user, stack)
    } else {
        (recorded, &[][..])
    };
    let recorded_size = recorded_left.checked_mul(WORD)?;
    // A record may be cut off.
    let end = record.bytes.len();
    let registers = sample.registers_offset.unwrap_or(end);
    let after = sample.stack_end.unwrap_or(end);
    let between = record.bytes.get(chain_end..registers)?;
    let kept_bytes = record.bytes.get(registers..after)?;
    let rest = record.bytes.get(after..)?;

    // The stack loses its outermost frames if there is not enough room for it.
    let fixed = [place, WORD, recorded_size, between.len(), rest.len()];
    let fixed = fixed.into_iter().try_fold(0usize, usize::checked_add)?;
    let marker = if stack.is_empty() { 0 } else { 1 };
    let chain_room = MAX_RECORD.checked_sub(fixed)? / WORD;
    let stack = stack.get(..chain_room.saturating_sub(marker)).unwrap_or(stack);
    let count = recorded_left.checked_add(marker)?.checked_add(stack.len())?;

    let start = out.len();
    out.extend_from_slice(record.bytes.get(..place)?);
    endian.write_u64(out, count as u64);
    out.extend_from_slice(record.bytes.get(chain..)?.get(..recorded_size)?);
    if marker > 0 {
        endian.write_u64(out, PERF_CONTEXT_USER);
    }
    for &address in stack {
        endian.write_u64(out, address);
    }
    out.extend_from_slice(between);
    if kept == KeptStacks::Stacks {
        let used = out.len().saturating_sub(start).saturating_add(rest.len());
        write_kept(out, endian, kept_bytes, sample, MAX_RECORD.saturating_sub(used));
    }
    out.extend_from_slice(rest);
    let size = u16::try_from(out.len().saturating_sub(start)).ok();
    endian.set_u16(out.get_mut(start..)?, record::SIZE_OFFSET, size?);
    Some(())
}

/// Appends registers and stack copy. The copy loses its outermost words if there is not enough room.
fn write_kept(out: &mut Vec<u8>, endian: ByteOrder, kept: &[u8], sample: &Sample<'_>, room: usize) {
    let over = kept.len().saturating_sub(room).next_multiple_of(WORD);
    let stack = sample.stack_offset.zip(sample.registers_offset);
    let at = stack.and_then(|(stack, registers)| stack.checked_sub(registers));
    let size = at.and_then(|at| endian.u64_at(kept, at));
    let (Some(at), Some(size), 1..) = (at, size, over) else {
        out.extend_from_slice(kept);
        return;
    };
    // The size, the bytes, and how many of them were copied.
    let left = size.saturating_sub(over as u64);
    let copied = (sample.stack.bytes().len() as u64).min(left);
    let bytes = at.saturating_add(WORD);
    let end = bytes.saturating_add(usize::try_from(left).unwrap_or_default());
    out.extend_from_slice(kept.get(..at).unwrap_or_default());
    endian.write_u64(out, left);
    out.extend_from_slice(kept.get(bytes..end).unwrap_or_default());
    if left > 0 {
        endian.write_u64(out, copied);
    }
}

/// Returns the number of entries of a call chain before its user part.
fn before_user_part(record: &Record<'_>, sample: &Sample<'_>) -> usize {
    let is_user_part = |(position, entry)| match entry {
        ChainEntry::Marker(marker) => matches!(marker, PERF_CONTEXT_USER | USER_DEFERRED),
        // Without any marker, all entries are of the mode that was sampled.
        _ => position == 0 && record.cpu_mode() == record::MISC_USER,
    };
    let mut entries = sample.chain_entries().enumerate();
    entries.position(is_user_part).unwrap_or(sample.callchain.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::Attr;
    use crate::perf::testing::{self, ORDER};

    #[test]
    fn stacks_of_any_depth_become_records_of_up_to_65528_bytes() {
        // An address, a thread, a time and a call chain.
        let attr = Attr::parse(&testing::attr(64, 0b10_0111, 0), ORDER);
        let bytes = testing::record(record::SAMPLE, record::MISC_USER, &[0x1000, 5 | 5 << 32, 9, 0]);
        let record = record::Records::new(&bytes, 0, ORDER).next().unwrap();
        let sample = Sample::parse(&record, &attr, ORDER);
        let size = |depth: u64| {
            let stack: Vec<u64> = (0x1000..0x1000 + depth).collect();
            let mut out = Vec::new();
            write_sample(&mut out, ORDER, &record, &sample, &stack, KeptStacks::Nothing).unwrap();
            out.len()
        };
        // The header, three fields, the length of the chain and a marker have 48 bytes.
        assert_eq!(size(8185), 65_528);
        assert_eq!(size(8186), 65_528);
        assert_eq!(size(8184), 65_520);
    }
}
