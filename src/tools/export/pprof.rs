//! pprof's `profile.proto`, compressed with gzip.
//!
//! Samples of the same thread and stack are one. Locations are frames of machine code, with inlined calls as lines. Lines have no
//! file, so code that was included from another file is a function of its own. Readers number mappings, locations and functions
//! from 1 and in order, and some demand that.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::collections::interner::Interner;
use crate::frames::stream::tables::FrameIndex;
use crate::results::summary::profile::{EventSummary, Unit};
use crate::tools::export::EXPORTER;
use crate::tools::export::profile::{
    ExportedProfile, FormatDescription, FormatScope, FunctionKey, Home, WeightedStack,
};
use crate::tools::export::protobuf::Message;

/// The format.
pub const FORMAT: FormatDescription = FormatDescription {
    name: "pprof",
    end: ".pb.gz",
    is_text: false,
    viewer: Some("go tool pprof"),
    help: "go tool pprof, Pyroscope, Parca, Grafana; sums",
    scope: FormatScope {
        has_times: false,
        one_event: false,
        one_thread: false,
        has_markers: false,
        has_texts: false,
    },
    write,
};

/// Fields of the message `Sample`.
mod sample_field {
    pub const LOCATIONS: u64 = 1;
    pub const VALUES: u64 = 2;
    pub const LABEL: u64 = 3;
}

/// Fields of the message `Label`.
mod label_field {
    pub const KEY: u64 = 1;
    pub const TEXT: u64 = 2;
    pub const NUMBER: u64 = 3;
}

/// Fields of the message `Profile`.
mod field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING_TABLE: u64 = 6;
    pub const DURATION_NANOS: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// A mapping.
#[derive(Clone, Copy, Default)]
struct Mapping {
    start: u64,
    end: u64,
    has_files: bool,
    has_inlined: bool,
}

/// Writes the file.
pub fn write(profile: &ExportedProfile, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer {
        profile,
        out: GzEncoder::new(out, Compression::default()),
        strings: Interner::default(),
    };
    writer.strings.of(String::new());
    writer.types()?;
    let frames = writer.samples()?;
    writer.locations(&frames)?;
    for text in std::mem::take(&mut writer.strings.all) {
        writer.field(field::STRING_TABLE, text.as_bytes())?;
    }
    writer.out.finish().map(drop)
}

struct Writer<'p, W: Write> {
    profile: &'p ExportedProfile,
    out: GzEncoder<W>,
    strings: Interner<String>,
}

impl<W: Write> Writer<'_, W> {
    fn field(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let mut message = Message::default();
        message.field(number, bytes);
        self.out.write_all(message.bytes())
    }

    fn number(&mut self, number: u64, value: u64) -> io::Result<()> {
        let mut message = Message::default();
        message.number(number, value);
        self.out.write_all(message.bytes())
    }

    /// Writes the types of values, and what is true of the whole profile.
    fn types(&mut self) -> io::Result<()> {
        let profile = self.profile;
        let mut names: Interner<String> = Interner::default();
        for &index in &profile.events {
            let Some(event) = profile.event(index) else {
                continue;
            };
            let mut name = type_name(event);
            if names.has(&name) {
                name = format!("{name}_{index}");
            }
            let samples = match profile.events.len() {
                1 => "samples".to_owned(),
                _ => format!("{name}_samples"),
            };
            let number = names.of(name.clone());
            let counted = self.value_type(samples, "count");
            self.field(field::SAMPLE_TYPE, counted.bytes())?;
            let value = self.value_type(name.clone(), unit(event.unit));
            self.field(field::SAMPLE_TYPE, value.bytes())?;
            if number == 0 {
                self.field(field::PERIOD_TYPE, value.bytes())?;
                self.number(field::PERIOD, event.period / event.samples.max(1))?;
                let default = self.strings.of(name);
                self.number(field::DEFAULT_SAMPLE_TYPE, u64::from(default))?;
            }
        }
        if let Some(duration) = profile.duration {
            self.number(field::DURATION_NANOS, duration)?;
        }
        let comments = [
            EXPORTER.to_owned(),
            format!("events: {}", profile.event_names()),
            format!("missing: {}", profile.tables.losses.text()),
        ];
        for comment in comments {
            let comment = self.strings.of(comment);
            self.number(field::COMMENT, u64::from(comment))?;
        }
        Ok(())
    }

    fn value_type(&mut self, name: String, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.strings.of(name));
        message.number(2, self.strings.of(unit.to_owned()));
        message
    }

    /// Writes the samples. Returns the frames of their stacks by number.
    fn samples(&mut self) -> io::Result<Interner<Option<FrameIndex>>> {
        let profile = self.profile;
        let mut frames: Interner<_> = Interner::default();
        let mut locations: Vec<u64> = Vec::new();
        for row in &profile.rows {
            locations.clear();
            for frame in profile.tables.frame_indices(row.stack) {
                locations.push(u64::from(frames.of(Some(frame))).saturating_add(1));
            }
            if locations.is_empty() {
                // Readers drop samples without a location.
                locations.push(u64::from(frames.of(None)).saturating_add(1));
            }
            let sample = self.sample(row, &locations);
            self.field(field::SAMPLE, sample.bytes())?;
        }
        Ok(frames)
    }

    /// Encodes a sample with the locations of its stack.
    fn sample(&mut self, row: &WeightedStack, locations: &[u64]) -> Message {
        let profile = self.profile;
        let mut message = Message::default();
        message.numbers(sample_field::LOCATIONS, locations.iter().copied());
        let values = profile.events.iter().flat_map(|&event| {
            if event == row.event {
                [row.weight.samples, row.weight.period]
            } else {
                [0, 0]
            }
        });
        // Values are signed.
        let values = values.map(|value| value.min(i64::MAX as u64));
        message.numbers(sample_field::VALUES, values);
        let thread = &profile.tables.threads[row.thread];
        let kind = profile.tables.kind(row.stack, row.thread);
        for (key, text) in [
            ("process", &*thread.process_name),
            ("thread", thread.name()),
            ("kind", kind.name()),
        ] {
            if !text.is_empty() {
                let mut label = self.label(key);
                label.number(label_field::TEXT, self.strings.of(text.to_owned()));
                message.field(sample_field::LABEL, label.bytes());
            }
        }
        let (pid, tid) = (thread.pid.map(|pid| pid.0), thread.tid.map(|tid| tid.0));
        for (key, id) in [("pid", pid), ("tid", tid)] {
            if let Some(id) = id {
                let mut label = self.label(key);
                label.number(label_field::NUMBER, id);
                message.field(sample_field::LABEL, label.bytes());
            }
        }
        message
    }

    /// Starts a label, whose value is missing.
    fn label(&mut self, key: &str) -> Message {
        let mut label = Message::default();
        label.number(label_field::KEY, self.strings.of(key.to_owned()));
        label
    }

    /// Writes the frames, their functions, and the mappings that have them.
    fn locations(&mut self, frames: &Interner<Option<FrameIndex>>) -> io::Result<()> {
        let tables = &self.profile.tables;
        let mut homes: Interner<Home> = Interner::default();
        let mut mappings: Vec<Mapping> = Vec::new();
        let mut functions: Interner<FunctionKey> = Interner::default();
        for (frame, id) in frames.all.iter().zip(1_u64..) {
            let mut location = Message::default();
            location.number(1, id);
            let Some(frame) = frame.map(|frame| &tables.frames[frame]) else {
                self.field(field::LOCATION, location.bytes())?;
                continue;
            };
            let home = self.profile.home(frame);
            if home != Home::Unknown {
                let number = homes.of(home);
                mappings.resize(homes.all.len(), Mapping::default());
                if let Some(mapping) = mappings.get_mut(number as usize) {
                    let is_new = mapping.end == 0;
                    mapping.start = if is_new {
                        frame.address
                    } else {
                        mapping.start.min(frame.address)
                    };
                    mapping.end = mapping.end.max(frame.address.saturating_add(1));
                    mapping.has_files |= frame.lines.iter().any(|line| line.file.is_some());
                    mapping.has_inlined |= frame.lines.len() > 1;
                }
                location.number(2, u64::from(number).saturating_add(1));
            }
            location.number(3, frame.address);
            // Readers show the address and the mapping of a location without lines.
            let is_named = frame
                .lines
                .iter()
                .any(|line| tables.functions[line.function].is_named);
            for line in frame.lines.iter().filter(|_| is_named) {
                let mut message = Message::default();
                let file = line.file.or(tables.functions[line.function].file);
                let function = functions.of((line.function, file));
                message.number(1, u64::from(function).saturating_add(1));
                message.number(2, line.line);
                message.number(3, line.column);
                location.field(4, message.bytes());
            }
            self.field(field::LOCATION, location.bytes())?;
        }
        self.functions(&functions)?;
        self.mappings(&homes, &mappings)
    }

    /// Writes the functions, with the numbers that lines refer to.
    fn functions(&mut self, functions: &Interner<FunctionKey>) -> io::Result<()> {
        let tables = &self.profile.tables;
        for (&(index, file), id) in functions.all.iter().zip(1_u64..) {
            let mut message = Message::default();
            message.number(1, id);
            // Readers take a system name for one that is to be demangled.
            message.number(2, self.strings.of(self.profile.name(index).into_owned()));
            if let Some(file) = file {
                message.number(4, self.strings.of(tables.files[file].path.clone()));
            }
            let function = &tables.functions[index];
            if function.file == file {
                message.number(5, function.line);
            }
            self.field(field::FUNCTION, message.bytes())?;
        }
        Ok(())
    }

    /// Writes where functions are from, with the numbers that locations refer to.
    fn mappings(&mut self, homes: &Interner<Home>, mappings: &[Mapping]) -> io::Result<()> {
        for ((&home, mapping), id) in homes.all.iter().zip(mappings).zip(1_u64..) {
            let mut message = Message::default();
            message.number(1, id);
            message.number(2, mapping.start);
            message.number(3, mapping.end);
            message.number(5, self.strings.of(self.profile.home_path(home).into_owned()));
            let module = self.profile.module(home);
            if let Some(build_id) = module.and_then(|module| module.build_id.as_ref()) {
                message.number(6, self.strings.of(build_id.clone()));
            }
            // Without it, pprof looks for the file on its own machine.
            message.flag(7, true);
            message.flag(8, mapping.has_files);
            message.flag(9, mapping.has_files);
            message.flag(10, mapping.has_inlined);
            self.field(field::MAPPING, message.bytes())?;
        }
        Ok(())
    }
}

/// Returns the name of an event as readers accept it: Pyroscope takes colons for separators, and refuses hyphens.
fn type_name(event: &EventSummary) -> String {
    let is_kept = |character: char| character.is_alphanumeric();
    let characters = event.name.chars();
    characters
        .map(|character| if is_kept(character) { character } else { '_' })
        .collect()
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Cycles => "cycles",
        Unit::Occurrences => "count",
    }
}
