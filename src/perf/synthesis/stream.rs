//! Records of our own as a stream, by themselves or among those of a recording.

use std::io::{self, Write};

use crate::bytes::ByteOrder;
use crate::perf::attr::Attrs;
use crate::perf::feature::{self, Feature};
use crate::perf::merge::{ROUND, write_round};
use crate::perf::profile::Profile;
use crate::perf::synthesis::definition::{AttrTemplate, Definition, IdAllocator, OwnEvent};
use crate::perf::synthesis::loss::Loss;
use crate::perf::synthesis::parts::{OwnedEntry, Synthesized, borrow_feature, with_identifiers};
use crate::perf::synthesis::process::{Comm, Task, put_comm, put_exit, put_fork};
use crate::perf::synthesis::recording::{Recording, Sink};
use crate::perf::synthesis::sample::{Sample, put_sample};
use crate::perf::synthesis::stand_alone::{self, Origin};
use crate::perf::synthesis::{Event, Mapping, event_desc, put_mmap2};
use crate::tally::Tally;
use crate::units::Time;

/// Makes a profile of records of our own, and of those of a recording if there is one.
///
/// Records of our own come in the order of their times. One stands before the first record of the recording, in
/// file order, whose time is later: no reader gets it late, whatever the recording's rounds. Where records have no
/// times, it stands behind all of them. Memory does not grow with the records.
#[derive(Debug)]
pub struct Synthesis<'p, W> {
    sink: Sink<W>,
    order: ByteOrder,
    events: Vec<OwnEvent>,
    /// Those of the recording, changed, and then those of `events`.
    attr_entries: Vec<OwnedEntry>,
    features: Vec<Feature<'p>>,
    recording: Option<Recording<'p>>,
    /// How many bytes were written before the last mark of a finished round.
    round_start: u64,
    /// The latest time of a record of our own.
    latest: Time,
    /// When the first sample of our own was taken, and the last.
    sample_times: Option<(Time, Time)>,
    buffer: Vec<u8>,
}

impl<'p, W: Write> Synthesis<'p, W> {
    /// Starts a profile of records of our own. Without a definition, there will be no record.
    pub fn stand_alone(origin: &Origin<'_>, definitions: &[Definition<'_>], out: W) -> Self {
        /// What Linux has been writing since 5.13 (`PERF_ATTR_SIZE_VER7`).
        const ATTR_SIZE: usize = 128;
        let agreement = AttrTemplate {
            order: origin.order,
            attr_size: ATTR_SIZE,
            clock_id: origin.clock_id,
            has_trailer: true,
            has_times: true,
        };
        let mut ids = IdAllocator::new();
        let nobody = Attrs::default();
        let events = definitions
            .iter()
            .map(|definition| OwnEvent::new(definition, ids.take(&nobody), &agreement));
        let mut synthesis = Self::new(origin.order, events.collect(), Vec::new(), out);
        synthesis.features = stand_alone::features(origin);
        synthesis.describe_events(&[]);
        synthesis
    }

    /// Starts a profile of what was recorded, none of it compressed, and records of our own.
    ///
    /// All recorded records keep their order, and their bytes but for the id of the event, if it is not where those
    /// of several events need it. Those of a pipe that stand for sections of a file become such sections.
    pub fn beside(recorded: &'p Profile<'p>, definitions: &[Definition<'_>], out: W) -> io::Result<Self> {
        let order = recorded.order;
        let mut ids = IdAllocator::new();
        let (mut entries, attr_size) = with_identifiers(recorded);
        for entry in entries.iter_mut().filter(|entry| entry.ids.len() < 8) {
            entry.ids.clear();
            order.put_u64(&mut entry.ids, ids.take(&recorded.attrs));
        }
        let first_id = entries.first().and_then(|entry| order.u64_at(&entry.ids, 0));
        let agreement = AttrTemplate {
            order,
            attr_size,
            clock_id: recorded.attrs.clock_id(),
            has_trailer: recorded.attrs.all().first().is_some_and(|attr| attr.has_trailer),
            has_times: recorded.attrs.has_times(),
        };
        let events = definitions
            .iter()
            .map(|definition| OwnEvent::new(definition, ids.take(&recorded.attrs), &agreement));
        let mut synthesis = Self::new(order, events.collect(), entries, out);
        synthesis.features = recorded.features.iter().map(borrow_feature).collect();
        let described = recorded.feature(feature::EVENT_DESC);
        match described.and_then(|content| event_desc::names(content, order, recorded.attr_entries.len())) {
            Some(names) => synthesis.describe_events(&names),
            None => synthesis.announce_names()?,
        }
        synthesis.recording = Some(Recording::new(recorded, first_id.unwrap_or(0)));
        Ok(synthesis)
    }

    fn new(order: ByteOrder, events: Vec<OwnEvent>, mut attr_entries: Vec<OwnedEntry>, out: W) -> Self {
        for event in &events {
            let mut ids = Vec::new();
            order.put_u64(&mut ids, event.id);
            attr_entries.push(OwnedEntry {
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
            order,
            events,
            attr_entries,
            features: Vec::new(),
            recording: None,
            round_start: 0,
            latest: Time(0),
            sample_times: None,
            buffer: Vec::new(),
        }
    }

    /// Makes the section that names all events; `recorded` are the names of the recording's.
    fn describe_events(&mut self, recorded: &[&[u8]]) {
        let own = self.events.iter().map(|event| &*event.name);
        let names: Vec<&[u8]> = recorded.iter().copied().chain(own).collect();
        let attr_size = self.attr_entries.first().map_or(0, |entry| entry.attr.len());
        let events = self.attr_entries.iter().zip(names);
        let events = events.map(|(entry, name)| (&*entry.attr, &*entry.ids, name));
        let content = event_desc::content(self.order, attr_size, events);
        self.features.retain(|feature| feature.id != feature::EVENT_DESC);
        self.features.push(Feature {
            id: feature::EVENT_DESC,
            content: content.into(),
        });
        self.features.sort_by_key(|feature| feature.id);
    }

    /// Names our own events only: nobody has named the recording's, and readers then do so by what was counted.
    fn announce_names(&mut self) -> io::Result<()> {
        for event in &self.events {
            event_desc::put_event_name(&mut self.buffer, self.order, event.id, &event.name);
        }
        self.flush_buffer()
    }

    /// Adds a sample. Fails with [`io::ErrorKind::InvalidInput`] if its event was not defined.
    pub fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        self.make_room(sample.time)?;
        let Some(event) = self.events.get(sample.event) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let cut = put_sample(&mut self.buffer, self.order, sample, event);
        for (is_cut, loss) in [(cut.chain, Loss::Callers), (cut.raw, Loss::Bytes)] {
            self.sink.losses.add_many(loss, is_cut.into(), self.sink.written);
        }
        let (first, last) = self.sample_times.unwrap_or((sample.time, sample.time));
        self.sample_times = Some((first.min(sample.time), last.max(sample.time)));
        self.flush_buffer()
    }

    /// Adds the name of a thread.
    pub fn comm(&mut self, comm: &Comm<'_>) -> io::Result<()> {
        let is_cut = comm.name.len() > Comm::LONGEST;
        self.sink
            .losses
            .add_many(Loss::Name, is_cut.into(), self.sink.written);
        self.put(comm.time, |out, order, event| put_comm(out, order, comm, event))
    }

    /// Adds a thread's start.
    pub fn fork(&mut self, task: &Task) -> io::Result<()> {
        self.put(task.time, |out, order, event| put_fork(out, order, task, event))
    }

    /// Adds a thread's end.
    pub fn exit(&mut self, task: &Task) -> io::Result<()> {
        self.put(task.time, |out, order, event| put_exit(out, order, task, event))
    }

    /// Adds a map.
    pub fn map(&mut self, mapping: &Mapping<'_>) -> io::Result<()> {
        self.put(mapping.time, |out, order, event| {
            put_mmap2(out, order, mapping, event)
        })
    }

    /// Adds a record that is no sample; it is of the first of our own events.
    fn put(&mut self, time: Time, put: impl FnOnce(&mut Vec<u8>, ByteOrder, Event<'_>)) -> io::Result<()> {
        self.make_room(time)?;
        let Some(OwnEvent { attr, id, .. }) = self.events.first() else {
            return Ok(());
        };
        put(&mut self.buffer, self.order, Event { attr, id: *id });
        self.flush_buffer()
    }

    /// Writes all that comes before a record of our own of this time.
    fn make_room(&mut self, time: Time) -> io::Result<()> {
        if time < self.latest {
            self.sink.losses.add(Loss::Order, self.sink.written);
        }
        self.latest = self.latest.max(time);
        match &mut self.recording {
            Some(recording) => recording.copy_until(time, &mut self.sink),
            None if self.sink.written.saturating_sub(self.round_start) >= ROUND => self.finish_round(),
            None => Ok(()),
        }
    }

    fn finish_round(&mut self) -> io::Result<()> {
        write_round(self.order, &mut self.buffer)?;
        self.flush_buffer()?;
        self.round_start = self.sink.written;
        Ok(())
    }

    fn flush_buffer(&mut self) -> io::Result<()> {
        self.sink.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is left of the recording. Returns all but the records, and where they were written to.
    pub fn finish(mut self) -> io::Result<(Synthesized<'p>, W)> {
        let mut faults = Tally::default();
        match self.recording.take() {
            Some(mut recording) => {
                recording.copy_rest(&mut self.sink)?;
                faults.merge(recording.faults());
            }
            None => {
                self.finish_round()?;
                if let Some(times) = self.sample_times {
                    self.features.push(stand_alone::sample_times(self.order, times));
                    self.features.sort_by_key(|feature| feature.id);
                }
            }
        }
        let synthesized = Synthesized {
            order: self.order,
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
    use crate::perf::attr;
    use crate::perf::profile::{AttrEntry, Container};
    use crate::perf::record;
    use crate::perf::synthesis::definition::Measure;
    use crate::perf::synthesis::process::Thread;
    use crate::units::{Address, Pid, Tid};

    const ORDER: ByteOrder = ByteOrder::Little;
    const TID: u64 = 1 << 1;
    const TIME: u64 = 1 << 2;
    const ID: u64 = 1 << 6;
    const HAS_TRAILER: u64 = 1 << 18;
    const DEFINITIONS: [Definition<'static>; 1] = [Definition {
        name: b"mono/exception/",
        measure: Measure::Count,
    }];

    fn attr(size: usize, sample_type: u64, flags: u64) -> Vec<u8> {
        let mut bytes = vec![0; size];
        ORDER.set_u32(&mut bytes, 4, size as u32);
        bytes[24..32].copy_from_slice(&sample_type.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        record::put_header(&mut out, ORDER, kind, 0, (8 + 8 * words.len()) as u16);
        for &word in words {
            ORDER.put_u64(&mut out, word);
        }
        out
    }

    fn profile<'a>(attr_entries: Vec<AttrEntry<'a>>, data: &'a [u8]) -> Profile<'a> {
        Profile {
            container: Container::File,
            order: ORDER,
            attrs: Attrs::read(&attr_entries, ORDER),
            attr_entries,
            data,
            data_offset: 0,
            features: Vec::new(),
            head_records: Vec::new(),
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

    /// A recording with samples of our own at some times.
    fn merged<'p>(recorded: &'p Profile<'p>, times: &[u64]) -> (Synthesized<'p>, Vec<u8>) {
        let mut synthesis = Synthesis::beside(recorded, &DEFINITIONS, Vec::new()).unwrap();
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
    fn records_of_our_own_stand_before_the_first_that_is_later() {
        let attr = attr(64, TIME, HAS_TRAILER);
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
        // 0 for the end of a round
        let times: Vec<u64> = found.map(|(_, time)| time.unwrap_or(0)).collect();
        assert_eq!(times, [5, 10, 0, 10, 25, 30, 20, 0, 30, 35, 40, 40, 50, 45]);
        assert_eq!(synthesized.losses.count(Loss::Order), 1);
    }

    #[test]
    fn where_records_have_no_times_ours_have_none_and_stand_behind_them() {
        let attr = attr(64, TID, HAS_TRAILER);
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
    fn ids_inside_of_records_are_the_identifiers_too() {
        let attrs = [attr(72, TIME | ID, HAS_TRAILER), attr(64, TIME | ID, HAS_TRAILER)];
        let ids = [3u64.to_le_bytes(), 4u64.to_le_bytes()];
        let entries = attrs.iter().zip(&ids).map(|(attr, ids)| AttrEntry { attr, ids });
        let data = [
            record(record::SAMPLE, &[10, 4]),
            record(record::COMM, &[1, 2, 11, 3]),
            // one that names no event
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
            .map(|entry| (entry.attr.len(), attr::size(entry.attr, ORDER)));
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
    fn a_single_events_identifiers_are_corrected_where_they_are_no_events() {
        const IDENTIFIER: u64 = 1 << 16;
        let attr = attr(64, TIME | IDENTIFIER, HAS_TRAILER);
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
    fn perfs_own_records_and_what_can_not_be_read_keep_their_bytes() {
        let attr = attr(64, TIME, HAS_TRAILER);
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
    fn the_largest_sample_gives_a_word_of_its_stack_for_the_identifier() {
        const STACK_USER: u64 = 1 << 13;
        let attr = attr(64, TIME | STACK_USER, HAS_TRAILER);
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
        assert_eq!(synthesized.losses.count(Loss::StackWord), 1);
        let again = synthesized.profile(&records);
        let found = again.records().find(|it| it.kind == record::SAMPLE).unwrap();
        assert_eq!(found.bytes.len(), data.len());
        let parsed = crate::perf::sample::Sample::parse(&found, &again.attrs.all()[0], ORDER);
        assert!(!parsed.is_cut);
        assert!(parsed.stack.iter().map(|it| it.0).eq(0..words - 1));

        // A record of another type has nothing to give.
        let data = record(record::COMM, &vec![7; 65_528 / 8 - 1]);
        let recorded = profile(entries(), &data);
        let (synthesized, records) = merged(&recorded, &[]);
        assert_eq!(synthesized.losses.count(Loss::Record), 1);
        assert!(shape(&synthesized.profile(&records)).is_empty());
    }

    #[test]
    fn names_stand_in_the_section_of_names_if_all_events_have_one() {
        let attr = attr(64, TIME, HAS_TRAILER);
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
        recorded.features.push(Feature {
            id: feature::EVENT_DESC,
            content: event_desc::content(ORDER, 64, one).into(),
        });
        let (synthesized, records) = merged(&recorded, &[]);
        assert!(records.is_empty());
        let expected = vec![b"cycles".to_vec(), b"mono/exception/".to_vec()];
        assert_eq!(names(&synthesized.profile(&records)), Some(expected));
    }

    #[test]
    fn a_long_stream_of_our_own_has_rounds() {
        let origin = Origin {
            order: ORDER,
            clock_id: None,
            host: b"",
            os_release: b"",
            version: b"",
            architecture: b"",
            command_line: &[],
        };
        let mut synthesis = Synthesis::stand_alone(&origin, &DEFINITIONS, Vec::new());
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
        assert_eq!(rounds.count() as u64, records.len() as u64 / ROUND + 1);
        let ids: Vec<u8> = again.features.iter().map(|feature| feature.id).collect();
        assert_eq!(ids, [feature::EVENT_DESC, feature::SAMPLE_TIME]);
    }
}
