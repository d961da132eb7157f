//! Builds the index of a jitdump, record by record.

use crate::collections::tally::Tally;
use crate::event::{CodeEvent, RuntimeTime};
use crate::fault::Fault;
use crate::format::debug_info::DebugInfoQuirks;
use crate::format::debug_info2;
use crate::format::debug_info2::source_track::SourceTrack;
use crate::format::dump::function_table::{FunctionRecords, FunctionTable};
use crate::format::dump::index::{EmbeddedSources, EmbeddedText, Index};
use crate::format::header::Header;
use crate::format::load::Load;
use crate::format::moves::Move;
use crate::format::record;
use crate::format::record::{Record, RecordType, Step};
use crate::format::record_association::PendingRecords;
use crate::format::source_file::EmbeddedSource;
use crate::format::tier;
use crate::machine::Machine;
use crate::names;

/// An index while the records are read.
#[derive(Clone, Debug)]
pub struct IndexBuilder {
    pub index: Index,
    pub moves: Vec<Move>,
    pub pending: PendingRecords,
}

impl IndexBuilder {
    /// Starts with no functions. `faults` are those of the header.
    pub fn new(header: Header, faults: Tally<Fault>) -> Self {
        let index = Index {
            header,
            machine: Machine::new(header.elf_machine, header.endian),
            functions: FunctionTable::default(),
            faults,
            quirks: DebugInfoQuirks::default(),
            sources: EmbeddedSources::default(),
            has_v8_code: false,
        };
        Self {
            index,
            moves: Vec::new(),
            pending: PendingRecords::default(),
        }
    }

    /// Ends the file. Returns the index and the moves.
    pub fn finish(mut self) -> (Index, Vec<Move>) {
        self.pending.drop_all(&mut self.index.faults);
        self.index
            .functions
            .add_debug_info(self.pending.take_reassigned());
        self.index.functions.shrink();
        (self.index, self.moves)
    }

    /// Adds a record. If it loads a function with code, returns the load, after the offset of the record.
    pub fn add_step(&mut self, step: Step<'_>) -> Option<(u64, CodeEvent)> {
        let (endian, faults) = (self.index.header.endian, &mut self.index.faults);
        let record = match step {
            Step::Record(record) => record,
            Step::Repaired(record) => {
                faults.add(Fault::RepairedSize, record.offset);
                record
            }
            Step::Damage { offset, size } => {
                // The LOADs of pending records may be lost.
                self.pending.drop_all(faults);
                faults.add_many(Fault::SkippedBytes, size, offset);
                return None;
            }
            Step::CutTail { offset } => {
                faults.add(Fault::CutTail, offset);
                return None;
            }
        };
        match RecordType::of(record.kind) {
            Some(RecordType::Load) => return self.add_load(&record),
            Some(RecordType::Move) => match Move::parse(&record, endian) {
                Some(moved) => self.moves.push(moved),
                None => faults.add(Fault::BadMove, record.offset),
            },
            Some(RecordType::DebugInfo) => self.pending.add_debug_info(&record, endian, faults),
            Some(RecordType::UnwindingInfo) => self.pending.add_unwinding(&record, endian, faults),
            Some(RecordType::Close) => {}
            Some(RecordType::Extension) => self.add_extension(&record),
            Some(RecordType::SourceTrack) => match SourceTrack::parse(record.content, endian) {
                Some(track) => self.pending.add_track(track.start, record.location(), faults),
                None => faults.add(Fault::BadExtension, record.offset),
            },
            None => faults.add(Fault::UnknownRecord, record.offset),
        }
        None
    }

    /// Adds a record of one of samply's extensions. Its structure decides before its type, as the type
    /// numbers changed.
    fn add_extension(&mut self, record: &Record<'_>) {
        let endian = self.index.header.endian;
        if let Some(layout) = debug_info2::layout(record.content, endian) {
            return self
                .pending
                .add_debug_info2(layout, record.location(), &mut self.index.faults);
        }
        match record.kind {
            record::JIT_TIER if tier::parse(record.content).is_some() => {
                self.pending.add_tier(record, &mut self.index.faults);
            }
            record::EMBEDDED_SOURCE_FILE => match EmbeddedSource::parse(record.content, endian) {
                Some(source) => {
                    let text = EmbeddedText {
                        record: record.location(),
                        start: source.text_start,
                        size: source.text.len() as u64,
                    };
                    self.index
                        .sources
                        .entry(source.path.to_vec())
                        .or_default()
                        .push(text);
                }
                None => self.index.faults.add(Fault::BadExtension, record.offset),
            },
            _ => self.index.faults.add(Fault::BadExtension, record.offset),
        }
    }

    /// Adds a LOAD record and its function, to which pending records belong. Returns the time and the event if it has code.
    fn add_load(&mut self, record: &Record<'_>) -> Option<(u64, CodeEvent)> {
        let load = Load::parse(record.content, self.index.header.endian);
        let next = u32::try_from(self.index.functions.len());
        let (Some(load), Ok(function)) = (load, next) else {
            // Pending records without an address belong to this function.
            self.pending.drop_without_address(&mut self.index.faults);
            self.index.faults.add(Fault::BadLoad, record.offset);
            return None;
        };
        if load.name.len() > record::MAX_NAME {
            self.index.faults.add(Fault::LongName, record.offset);
        }
        self.index.has_v8_code |= names::is_v8(load.name);
        let records = FunctionRecords {
            load: record.location(),
            time: RuntimeTime(record.time),
            pid: load.pid,
            start: load.start,
            size: load.size,
            debug_info: self.pending.take_debug_info(function, load.start, load.size),
            debug_info2: self.pending.take_debug_info2(
                function,
                load.start,
                load.size,
                &mut self.index.faults,
            ),
            unwinding: self.pending.take_unwinding(),
            tier: self.pending.take_tier(),
        };
        let tracks = self.pending.take_tracks(load.start);
        let functions = &mut self.index.functions;
        functions.push(function, &records);
        functions.push_tracks(function, tracks);
        Some((record.offset, functions.load_event(function)?))
    }
}
