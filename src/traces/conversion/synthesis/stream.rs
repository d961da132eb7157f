//! Writes a stream of synthetic records, alone or among those of a recording.

use std::io::{self, Write};

use jitdump::{ByteOrder, Tally, Time};

use crate::perf::attr::AttrEntry;
use crate::perf::attr::Attrs;
use crate::perf::feature::{self, Feature};
use crate::perf::merge::{ROUND_SIZE, write_finished_round};
use crate::perf::process_records::MAX_THREAD_NAME;
use crate::perf::profile::Profile;
use crate::perf::synthetic::{RecordEvent, SyntheticMapping, write_mmap2};
use crate::results::diagnostics::Issue;
use crate::traces::conversion::synthesis::definition::{
    AttrTemplate, Definition, IdAllocator, SyntheticEvent,
};
use crate::traces::conversion::synthesis::event_desc;
use crate::traces::conversion::synthesis::process::{Comm, ThreadStart, write_comm, write_fork};
use crate::traces::conversion::synthesis::recording::{RemainingRecords, Sink};
use crate::traces::conversion::synthesis::sample::{SyntheticSample, UNKNOWN_CPU, write_sample};
use crate::traces::conversion::synthesis::stand_alone;
use crate::traces::conversion::synthesis::stand_alone::EventOrigin;
use crate::traces::conversion::synthesis::synthesized::{Synthesized, attrs_with_identifiers, copy_feature};

/// Writes a profile of synthetic records and, if there is a recording, of its records.
///
/// Synthetic records should be added in the order of their times. Each is written before the first recorded
/// record, in file order, with a later time, so that readers never get it late, whatever rounds the recording
/// has. If recorded records have no times, synthetic ones follow them. Memory use does not grow with the
/// number of records.
#[derive(Debug)]
pub struct Synthesis<'p, W> {
    sink: Sink<W>,
    endian: ByteOrder,
    events: Vec<SyntheticEvent>,
    /// The attributes of the recording, changed, then those of `events`.
    attr_entries: Vec<AttrEntry>,
    features: Vec<Feature<'static>>,
    recording: Option<RemainingRecords<'p>>,
    /// Bytes of records written before the last FINISHED_ROUND record.
    round_start: u64,
    /// Latest time of a synthetic record.
    latest: Time,
    /// Times of the first and the last synthetic sample.
    sample_times: Option<(Time, Time)>,
    /// Highest CPU of a sample so far.
    last_cpu: u32,
    buffer: Vec<u8>,
}

impl<'p, W: Write> Synthesis<'p, W> {
    /// Starts a profile of synthetic records only. Without definitions, it will have no records.
    pub fn stand_alone(origin: &EventOrigin<'_>, definitions: &[Definition<'_>], out: W) -> Self {
        /// Attribute size in bytes that Linux writes since 5.13 (`PERF_ATTR_SIZE_VER7`).
        const ATTR_SIZE: usize = 128;
        let template = AttrTemplate {
            endian: origin.endian,
            attr_size: ATTR_SIZE,
            clock_id: origin.clock_id,
            has_trailer: true,
            has_times: true,
        };
        let mut ids = IdAllocator::new();
        let no_attrs = Attrs::default();
        let events = definitions
            .iter()
            .map(|definition| SyntheticEvent::new(definition, ids.take(&no_attrs), &template));
        let mut synthesis = Self::new(origin.endian, events.collect(), Vec::new(), out);
        synthesis.features = stand_alone::features(origin);
        synthesis.add_event_desc(&[]);
        synthesis
    }

    /// Starts a profile of recorded and synthetic records. The recording must not be compressed.
    ///
    /// Recorded records keep their order and their bytes, except for an ID that several events need. Header
    /// records of a pipe become header sections.
    pub fn with_recording(
        recorded: &'p Profile<'p>,
        definitions: &[Definition<'_>],
        out: W,
    ) -> io::Result<Self> {
        let endian = recorded.endian;
        let mut ids = IdAllocator::new();
        let (mut entries, attr_size) = attrs_with_identifiers(recorded);
        for entry in entries.iter_mut().filter(|entry| entry.ids.len() < 8) {
            entry.ids.clear();
            endian.write_u64(&mut entry.ids, ids.take(&recorded.attrs));
        }
        let first_id = entries.first().and_then(|entry| endian.u64_at(&entry.ids, 0));
        let template = AttrTemplate {
            endian,
            attr_size,
            clock_id: recorded.attrs.clock_id(),
            has_trailer: recorded.attrs.all().first().is_some_and(|attr| attr.has_trailer),
            has_times: recorded.attrs.has_times(),
        };
        let events = definitions
            .iter()
            .map(|definition| SyntheticEvent::new(definition, ids.take(&recorded.attrs), &template));
        let mut synthesis = Self::new(endian, events.collect(), entries, out);
        synthesis.features = recorded.features.iter().map(copy_feature).collect();
        let described = recorded.feature(feature::EVENT_DESC);
        match described.and_then(|content| event_desc::names(content, endian, recorded.attr_entries.len())) {
            Some(names) => synthesis.add_event_desc(&names),
            None => synthesis.write_event_names()?,
        }
        synthesis.recording = Some(RemainingRecords::new(recorded, first_id.unwrap_or(0)));
        Ok(synthesis)
    }

    /// Prepares a stream with the attributes of a profile and of the synthetic events after them.
    fn new(endian: ByteOrder, events: Vec<SyntheticEvent>, mut attr_entries: Vec<AttrEntry>, out: W) -> Self {
        for event in &events {
            let mut ids = Vec::new();
            endian.write_u64(&mut ids, event.id);
            attr_entries.push(AttrEntry {
                attr: event.attr_bytes.clone(),
                ids,
            });
        }
        Self {
            sink: Sink {
                out,
                written: 0,
                faults: Tally::default(),
            },
            endian,
            events,
            attr_entries,
            features: Vec::new(),
            recording: None,
            round_start: 0,
            latest: Time(0),
            sample_times: None,
            last_cpu: 0,
            buffer: Vec::new(),
        }
    }

    /// Adds the section with the names of all events. `recorded` are the names of the recorded ones.
    fn add_event_desc(&mut self, recorded: &[&[u8]]) {
        let synthetic = self.events.iter().map(|event| &*event.name);
        let names: Vec<&[u8]> = recorded.iter().copied().chain(synthetic).collect();
        let attr_size = self.attr_entries.first().map_or(0, |entry| entry.attr.len());
        let events = self.attr_entries.iter().zip(names);
        let events = events.map(|(entry, name)| (&*entry.attr, &*entry.ids, name));
        let content = event_desc::content(self.endian, attr_size, events);
        self.features.retain(|feature| feature.id != feature::EVENT_DESC);
        self.features.push(Feature::new(feature::EVENT_DESC, content));
        self.features.sort_by_key(|feature| feature.id);
    }

    /// Names only the synthetic events. The recorded ones have no names; readers derive them from the
    /// attributes.
    fn write_event_names(&mut self) -> io::Result<()> {
        for event in &self.events {
            event_desc::write_event_name(&mut self.buffer, self.endian, event.id, &event.name);
        }
        self.flush_buffer()
    }

    /// Adds a sample. Fails with [`io::ErrorKind::InvalidInput`] if its event was not defined.
    pub fn sample(&mut self, sample: &SyntheticSample<'_>) -> io::Result<()> {
        self.write_earlier(sample.time)?;
        let Some(event) = self.events.get(sample.event) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let cut = write_sample(&mut self.buffer, self.endian, sample, event);
        for (is_truncated, issue) in [(cut.chain, Issue::ChainCut), (cut.raw, Issue::EventDataCut)] {
            self.sink
                .faults
                .add_many(issue, is_truncated.into(), self.sink.written);
        }
        let (first, last) = self.sample_times.unwrap_or((sample.time, sample.time));
        self.sample_times = Some((first.min(sample.time), last.max(sample.time)));
        // perf 7.3 rejects a profile of more than 2^20 CPUs.
        if sample.cpu != UNKNOWN_CPU {
            self.last_cpu = self.last_cpu.max(sample.cpu);
        }
        self.flush_buffer()
    }

    /// Adds the name of a thread.
    pub fn comm(&mut self, comm: &Comm<'_>) -> io::Result<()> {
        let is_truncated = comm.name.len() > MAX_THREAD_NAME;
        self.sink
            .faults
            .add_many(Issue::ThreadNameCut, is_truncated.into(), self.sink.written);
        self.add_record(comm.time, |out, endian, event| {
            write_comm(out, endian, comm, event)
        })
    }

    /// Adds the start of a thread.
    pub fn fork(&mut self, start: &ThreadStart) -> io::Result<()> {
        self.add_record(start.time, |out, endian, event| {
            write_fork(out, endian, start, event)
        })
    }

    /// Adds a mapping.
    pub fn map(&mut self, mapping: &SyntheticMapping<'_>) -> io::Result<()> {
        self.add_record(mapping.time, |out, endian, event| {
            write_mmap2(out, endian, mapping, event)
        })
    }

    /// Adds a record other than a sample. It belongs to the first synthetic event.
    fn add_record(
        &mut self,
        time: Time,
        write: impl FnOnce(&mut Vec<u8>, ByteOrder, RecordEvent<'_>),
    ) -> io::Result<()> {
        self.write_earlier(time)?;
        let Some(SyntheticEvent { attr, id, .. }) = self.events.first() else {
            return Ok(());
        };
        write(&mut self.buffer, self.endian, RecordEvent { attr, id: *id });
        self.flush_buffer()
    }

    /// Writes the records that precede a synthetic record of this time.
    fn write_earlier(&mut self, time: Time) -> io::Result<()> {
        if time < self.latest {
            self.sink.faults.add(Issue::EventsOutOfOrder, self.sink.written);
        }
        self.latest = self.latest.max(time);
        match &mut self.recording {
            Some(recording) => recording.copy_until(time, &mut self.sink),
            None if self.sink.written.saturating_sub(self.round_start) >= ROUND_SIZE => self.finish_round(),
            None => Ok(()),
        }
    }

    fn finish_round(&mut self) -> io::Result<()> {
        write_finished_round(self.endian, &mut self.buffer)?;
        self.flush_buffer()?;
        self.round_start = self.sink.written;
        Ok(())
    }

    fn flush_buffer(&mut self) -> io::Result<()> {
        self.sink.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest of the recording. Returns the profile without its records, and the output.
    pub fn finish(mut self) -> io::Result<(Synthesized, W)> {
        let mut recorded_faults = Tally::default();
        match self.recording.take() {
            Some(mut recording) => {
                recording.copy_rest(&mut self.sink)?;
                recorded_faults.merge(recording.faults());
            }
            None => {
                self.finish_round()?;
                if let Some(times) = self.sample_times {
                    self.features.push(stand_alone::sample_times(self.endian, times));
                    let cpus = self.last_cpu.saturating_add(1);
                    self.features.push(stand_alone::nr_cpus(self.endian, cpus));
                    self.features.sort_by_key(|feature| feature.id);
                }
            }
        }
        let synthesized = Synthesized {
            endian: self.endian,
            attr_entries: self.attr_entries,
            features: self.features,
            recorded_faults,
            faults: self.sink.faults,
        };
        Ok((synthesized, self.sink.out))
    }
}

#[cfg(test)]
mod tests;
