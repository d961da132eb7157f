//! Writes a stream of synthetic records, alone or among those of a recording.

use std::io::{self, Write};

use crate::bytes::ByteOrder;
use crate::diagnostics::Issue;
use crate::perf::attr::Attrs;
use crate::perf::feature::{self, Feature};
use crate::perf::merge::{ROUND_SIZE, write_finished_round};
use crate::perf::profile::Profile;
use crate::perf::synthesis::definition::{AttrTemplate, Definition, IdAllocator, SyntheticEvent};
use crate::perf::synthesis::process::{Comm, ThreadStart, write_comm, write_fork};
use crate::perf::synthesis::recording::{Recording, Sink};
use crate::perf::synthesis::sample::{Sample, write_sample};
use crate::perf::synthesis::stand_alone::{self, Origin};
use crate::perf::synthesis::synthesized::{OwnedAttrEntry, Synthesized, copy_feature, with_identifiers};
use crate::perf::synthesis::{Event, Mapping, event_desc, write_mmap2};
use crate::tally::Tally;
use crate::units::Time;

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
    attr_entries: Vec<OwnedAttrEntry>,
    features: Vec<Feature<'static>>,
    recording: Option<Recording<'p>>,
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
    pub fn stand_alone(origin: &Origin<'_>, definitions: &[Definition<'_>], out: W) -> Self {
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
        let (mut entries, attr_size) = with_identifiers(recorded);
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
        synthesis.recording = Some(Recording::new(recorded, first_id.unwrap_or(0)));
        Ok(synthesis)
    }

    fn new(
        endian: ByteOrder,
        events: Vec<SyntheticEvent>,
        mut attr_entries: Vec<OwnedAttrEntry>,
        out: W,
    ) -> Self {
        for event in &events {
            let mut ids = Vec::new();
            endian.write_u64(&mut ids, event.id);
            attr_entries.push(OwnedAttrEntry {
                attr: event.attr_bytes.clone(),
                ids,
            });
        }
        Self {
            sink: Sink {
                out,
                written: 0,
                losses: Tally::default(),
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
    pub fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        self.write_earlier(sample.time)?;
        let Some(event) = self.events.get(sample.event) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let cut = write_sample(&mut self.buffer, self.endian, sample, event);
        for (is_truncated, loss) in [(cut.chain, Issue::ChainCut), (cut.raw, Issue::EventDataCut)] {
            self.sink
                .losses
                .add_many(loss, is_truncated.into(), self.sink.written);
        }
        let (first, last) = self.sample_times.unwrap_or((sample.time, sample.time));
        self.sample_times = Some((first.min(sample.time), last.max(sample.time)));
        self.last_cpu = self.last_cpu.max(sample.cpu);
        self.flush_buffer()
    }

    /// Adds the name of a thread.
    pub fn comm(&mut self, comm: &Comm<'_>) -> io::Result<()> {
        let is_truncated = comm.name.len() > Comm::MAX_SIZE;
        self.sink
            .losses
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
    pub fn map(&mut self, mapping: &Mapping<'_>) -> io::Result<()> {
        self.add_record(mapping.time, |out, endian, event| {
            write_mmap2(out, endian, mapping, event)
        })
    }

    /// Adds a record other than a sample. It belongs to the first synthetic event.
    fn add_record(
        &mut self,
        time: Time,
        write: impl FnOnce(&mut Vec<u8>, ByteOrder, Event<'_>),
    ) -> io::Result<()> {
        self.write_earlier(time)?;
        let Some(SyntheticEvent { attr, id, .. }) = self.events.first() else {
            return Ok(());
        };
        write(&mut self.buffer, self.endian, Event { attr, id: *id });
        self.flush_buffer()
    }

    /// Writes the records that precede a synthetic record of this time.
    fn write_earlier(&mut self, time: Time) -> io::Result<()> {
        if time < self.latest {
            self.sink.losses.add(Issue::EventsOutOfOrder, self.sink.written);
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
        self.sink.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest of the recording. Returns the profile without its records, and the output.
    pub fn finish(mut self) -> io::Result<(Synthesized, W)> {
        let mut faults = Tally::default();
        match self.recording.take() {
            Some(mut recording) => {
                recording.copy_rest(&mut self.sink)?;
                faults.merge(recording.faults());
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
            faults,
            losses: self.sink.losses,
        };
        Ok((synthesized, self.sink.out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::profile::{AttrEntry, Container};
    use crate::perf::record;
    use crate::perf::synthesis::definition::Measure;
    use crate::perf::synthesis::process::Thread;
    use crate::perf::testing::{self, ORDER, SAMPLE_ID_ALL, attr};
    use crate::units::{Address, Pid, Tid};

    const TID: u64 = 1 << 1;
    const TIME: u64 = 1 << 2;
    const ID: u64 = 1 << 6;
    const ORIGIN: Origin<'static> = Origin {
        endian: ORDER,
        clock_id: None,
        host: b"",
        os_release: b"",
        version: b"",
        architecture: b"",
        command_line: &[],
    };
    const DEFINITIONS: [Definition<'static>; 1] = [Definition {
        name: b"mono/exception/",
        measure: Measure::Count,
    }];

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        testing::record(kind, 0, words)
    }

    fn profile<'a>(attr_entries: Vec<AttrEntry<'a>>, data: &'a [u8]) -> Profile<'a> {
        Profile {
            container: Container::File,
            endian: ORDER,
            attrs: Attrs::read(&attr_entries, ORDER),
            attr_entries,
            data,
            data_offset: 0,
            features: Vec::new(),
            header_records: Vec::new(),
            faults: Tally::default(),
        }
    }

    fn sample(time: u64) -> Sample<'static> {
        Sample {
            event: 0,
            thread: Thread {
                pid: Pid(5),
                tid: Tid(6),
            },
            time: Time(time),
            cpu: 0,
            period: 1,
            chain: &[Address(0x1000)],
            raw: &[],
        }
    }

    /// A recording with synthetic samples at these times.
    fn merged<'p>(recorded: &'p Profile<'p>, times: &[u64]) -> (Synthesized, Vec<u8>) {
        let mut synthesis = Synthesis::with_recording(recorded, &DEFINITIONS, Vec::new()).unwrap();
        for &time in times {
            synthesis.sample(&sample(time)).unwrap();
        }
        synthesis.finish().unwrap()
    }

    /// Type and time of each record.
    fn shape(profile: &Profile<'_>) -> Vec<(u32, Option<u64>)> {
        let time = |record: &_| profile.attrs.time_of(record, ORDER).map(|time| time.0);
        let records = profile
            .records()
            .filter(|record| record.kind != record::EVENT_UPDATE);
        records.map(|record| (record.kind, time(&record))).collect()
    }

    #[test]
    fn synthetic_records_precede_the_first_later_record() {
        let attr = attr(64, TIME, SAMPLE_ID_ALL);
        let entries = vec![AttrEntry {
            attr: &attr,
            ids: &[],
        }];
        let round = record(record::FINISHED_ROUND, &[]);
        let data = [
            record(record::COMM, &[1, 2, 10]),
            round.clone(),
            record(record::SAMPLE, &[30]),
            record(record::SAMPLE, &[20]),
            round,
            record(record::SAMPLE, &[40]),
        ];
        let data = data.concat();
        let recorded = profile(entries, &data);
        let (synthesized, records) = merged(&recorded, &[5, 10, 25, 30, 35, 40, 50, 45]);
        let found = shape(&synthesized.profile(&records)).into_iter();
        // 0 for the end of a round.
        let times: Vec<u64> = found.map(|(_, time)| time.unwrap_or(0)).collect();
        assert_eq!(times, [5, 10, 0, 10, 25, 30, 20, 0, 30, 35, 40, 40, 50, 45]);
        assert_eq!(synthesized.losses.count(Issue::EventsOutOfOrder), 1);
    }

    #[test]
    fn oversized_parts_are_truncated_and_counted() {
        let definitions = [Definition {
            name: b"xray/custom/",
            measure: Measure::Bytes,
        }];
        let mut synthesis = Synthesis::stand_alone(&ORIGIN, &definitions, Vec::new());
        let chain = vec![Address(1); 10_000];
        let raw = vec![0; 70_000];
        let thread = sample(0).thread;
        synthesis
            .sample(&Sample {
                chain: &chain,
                ..sample(1)
            })
            .unwrap();
        synthesis
            .sample(&Sample {
                raw: &raw,
                ..sample(2)
            })
            .unwrap();
        let comm = Comm {
            thread,
            time: Time(3),
            name: &[b'n'; 300],
            is_exec: false,
        };
        synthesis.comm(&comm).unwrap();
        let (synthesized, _) = synthesis.finish().unwrap();
        for issue in [Issue::ChainCut, Issue::EventDataCut, Issue::ThreadNameCut] {
            assert_eq!(synthesized.losses.count(issue), 1, "{issue}");
        }
    }

    #[test]
    fn without_times_synthetic_records_follow_the_recorded_ones() {
        let attr = attr(64, TID, SAMPLE_ID_ALL);
        let entries = vec![AttrEntry {
            attr: &attr,
            ids: &[],
        }];
        let data = [record(record::SAMPLE, &[7]), record(record::COMM, &[1, 2, 7])].concat();
        let recorded = profile(entries, &data);
        let (synthesized, records) = merged(&recorded, &[1, 2]);
        let again = synthesized.profile(&records);
        assert!(!again.attrs.has_times());
        let kinds: Vec<u32> = shape(&again).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(
            kinds,
            [record::SAMPLE, record::COMM, record::SAMPLE, record::SAMPLE]
        );
    }

    #[test]
    fn ids_inside_records_become_identifiers() {
        let attrs = [
            attr(72, TIME | ID, SAMPLE_ID_ALL),
            attr(64, TIME | ID, SAMPLE_ID_ALL),
        ];
        let ids = [3u64.to_le_bytes(), 4u64.to_le_bytes()];
        let entries = attrs.iter().zip(&ids).map(|(attr, ids)| AttrEntry { attr, ids });
        let data = [
            record(record::SAMPLE, &[10, 4]),
            record(record::COMM, &[1, 2, 11, 3]),
            // An ID of no event.
            record(record::SAMPLE, &[12, 0]),
            record(record::FINISHED_ROUND, &[]),
        ];
        let data = data.concat();
        let recorded = profile(entries.collect(), &data);
        let (synthesized, records) = merged(&recorded, &[100]);
        let again = synthesized.profile(&records);
        let found: Vec<_> = again
            .records()
            .filter(|it| it.kind != record::EVENT_UPDATE)
            .collect();
        assert_eq!(found[0].bytes, record(record::SAMPLE, &[4, 10, 4]));
        assert_eq!(found[1].bytes, record(record::COMM, &[1, 2, 11, 3, 3]));
        assert_eq!(found[2].bytes, record(record::SAMPLE, &[3, 12, 0]));
        assert_eq!(found[3].bytes, record(record::FINISHED_ROUND, &[]));
        let times = found
            .iter()
            .map(|it| again.attrs.time_of(it, ORDER).map(|time| time.0));
        assert_eq!(
            times.collect::<Vec<_>>(),
            [Some(10), Some(11), Some(12), None, Some(100)]
        );
        let sizes = again
            .attr_entries
            .iter()
            .map(|entry| (entry.attr.len(), crate::perf::attr::size(entry.attr, ORDER)));
        assert!(sizes.into_iter().all(|size| size == (72, Some(72))));
    }

    #[test]
    fn an_event_without_ids_gets_one_and_records_without_trailers_stay_so() {
        let attr = attr(112, TIME, 0);
        let entries = vec![AttrEntry {
            attr: &attr,
            ids: &[],
        }];
        let comm = record(record::COMM, &[1, 2]);
        let data = [comm.clone(), record(record::SAMPLE, &[10])].concat();
        let recorded = profile(entries, &data);
        let (synthesized, records) = merged(&recorded, &[100]);
        let again = synthesized.profile(&records);
        let found: Vec<_> = again
            .records()
            .filter(|it| it.kind != record::EVENT_UPDATE)
            .collect();
        assert_eq!(found[0].bytes, comm);
        let id = ORDER.u64_at(again.attr_entries[0].ids, 0).unwrap();
        assert_eq!(found[1].bytes, record(record::SAMPLE, &[id, 10]));
        let own = ORDER.u64_at(again.attr_entries[1].ids, 0).unwrap();
        assert_ne!(own, id);
        assert!(!again.attrs.by_id(own).unwrap().has_trailer);
    }

    #[test]
    fn unknown_identifiers_of_a_single_event_are_corrected() {
        const IDENTIFIER: u64 = 1 << 16;
        let attr = attr(64, TIME | IDENTIFIER, SAMPLE_ID_ALL);
        let ids = 3u64.to_le_bytes();
        let entries = vec![AttrEntry {
            attr: &attr,
            ids: &ids,
        }];
        let data = [
            record(record::SAMPLE, &[9, 10]),
            record(record::SAMPLE, &[3, 10]),
            record(record::COMM, &[1, 2, 10, 9]),
            record(record::COMM, &[1, 2, 10, 0]),
        ];
        let data = data.concat();
        let recorded = profile(entries, &data);
        let (synthesized, records) = merged(&recorded, &[]);
        let again = synthesized.profile(&records);
        let found: Vec<_> = again
            .records()
            .filter(|it| it.kind != record::EVENT_UPDATE)
            .collect();
        let found: Vec<_> = found.iter().map(|it| it.bytes.to_vec()).collect();
        let expected = [
            record(record::SAMPLE, &[3, 10]),
            record(record::SAMPLE, &[3, 10]),
            record(record::COMM, &[1, 2, 10, 3]),
            record(record::COMM, &[1, 2, 10, 0]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn perfs_own_records_and_unreadable_bytes_are_unchanged() {
        let attr = attr(64, TIME, SAMPLE_ID_ALL);
        let entries = vec![AttrEntry {
            attr: &attr,
            ids: &[],
        }];
        let mut data = record(record::AUXTRACE, &[5]);
        data.extend_from_slice(b"trace");
        data.extend(record(record::TIME_CONV, &[1, 2]));
        let whole = data.len();
        data.extend_from_slice(b"no record");
        let recorded = profile(entries, &data);
        let (synthesized, records) = merged(&recorded, &[7]);
        let again = synthesized.profile(&records);
        let own = again.records().last().unwrap();
        assert_eq!(again.attrs.time_of(&own, ORDER), Some(Time(7)));
        let start = own.offset as usize;
        assert!(records[..start].ends_with(&data[..whole]));
        assert_eq!(&records[own.end() as usize..], b"no record");
    }

    #[test]
    fn the_largest_sample_loses_a_stack_word_to_the_identifier() {
        const STACK_USER: u64 = 1 << 13;
        let attr = attr(64, TIME | STACK_USER, SAMPLE_ID_ALL);
        let entries = || {
            vec![AttrEntry {
                attr: &attr,
                ids: &[],
            }]
        };
        let words = 65_528 / 8 - 1 - 3;
        let mut body = vec![10, 8 * words];
        body.extend(0..words);
        body.push(8 * words);
        let data = record(record::SAMPLE, &body);
        let recorded = profile(entries(), &data);
        let (synthesized, records) = merged(&recorded, &[]);
        assert_eq!(synthesized.losses.count(Issue::StackWordLost), 1);
        let again = synthesized.profile(&records);
        let found = again.records().find(|it| it.kind == record::SAMPLE).unwrap();
        assert_eq!(found.bytes.len(), data.len());
        let parsed = crate::perf::sample::Sample::parse(&found, &again.attrs.all()[0], ORDER);
        assert!(!parsed.is_truncated);
        assert!(parsed.stack.iter().map(|it| it.0).eq(0..words - 1));

        // A record of another type has no stack copy.
        let data = record(record::COMM, &vec![7; 65_528 / 8 - 1]);
        let recorded = profile(entries(), &data);
        let (synthesized, records) = merged(&recorded, &[]);
        assert_eq!(synthesized.losses.count(Issue::RecordWithoutId), 1);
        assert!(shape(&synthesized.profile(&records)).is_empty());
    }

    #[test]
    fn event_desc_has_names_if_all_events_have_one() {
        let attr = attr(64, TIME, SAMPLE_ID_ALL);
        let entries = || {
            vec![AttrEntry {
                attr: &attr,
                ids: &[],
            }]
        };
        let names = |profile: &Profile<'_>| {
            let content = profile.feature(feature::EVENT_DESC)?;
            let names = event_desc::names(content, ORDER, profile.attr_entries.len())?;
            Some(names.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        let mut recorded = profile(entries(), &[]);
        let (synthesized, records) = merged(&recorded, &[]);
        let again = synthesized.profile(&records);
        assert_eq!(names(&again), None);
        let update = again.records().next().unwrap();
        assert_eq!(update.kind, record::EVENT_UPDATE);
        assert!(update.bytes.windows(15).any(|bytes| bytes == b"mono/exception/"));

        let one = std::iter::once((&*attr, &[][..], &b"cycles"[..]));
        let content = event_desc::content(ORDER, 64, one);
        recorded.features.push(Feature::new(feature::EVENT_DESC, content));
        let (synthesized, records) = merged(&recorded, &[]);
        assert!(records.is_empty());
        let expected = vec![b"cycles".to_vec(), b"mono/exception/".to_vec()];
        assert_eq!(names(&synthesized.profile(&records)), Some(expected));
    }

    #[test]
    fn a_long_synthetic_stream_has_rounds() {
        let mut synthesis = Synthesis::stand_alone(&ORIGIN, &DEFINITIONS, Vec::new());
        for time in 0..40_000 {
            synthesis.sample(&sample(time)).unwrap();
        }
        let other = Sample {
            event: 1,
            ..sample(0)
        };
        let error = synthesis.sample(&other).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let (synthesized, records) = synthesis.finish().unwrap();
        let again = synthesized.profile(&records);
        let rounds = again.records().filter(|it| it.kind == record::FINISHED_ROUND);
        assert_eq!(rounds.count() as u64, records.len() as u64 / ROUND_SIZE + 1);
        let ids: Vec<u8> = again.features.iter().map(|feature| feature.id).collect();
        assert_eq!(ids, [feature::NR_CPUS, feature::EVENT_DESC, feature::SAMPLE_TIME]);
    }
}
