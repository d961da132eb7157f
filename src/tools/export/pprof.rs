//! pprof's `profile.proto`, compressed with gzip.
//!
//! Samples of the same thread and stack are one. Locations are frames of machine code, with inlined calls as lines. Lines have no
//! file, so code that was included from another file is a function of its own. Readers number mappings, locations and functions
//! from 1 and in order, and some demand that.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::collections::interner::Interner;
use crate::frames::stream::tables::{Frame, FrameIndex};
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

/// Fields of the message `ValueType`.
mod value_type_field {
    pub const TYPE: u64 = 1;
    pub const UNIT: u64 = 2;
}

/// Fields of the message `Mapping`.
mod mapping_field {
    pub const ID: u64 = 1;
    pub const MEMORY_START: u64 = 2;
    pub const MEMORY_LIMIT: u64 = 3;
    pub const FILENAME: u64 = 5;
    pub const BUILD_ID: u64 = 6;
    pub const HAS_FUNCTIONS: u64 = 7;
    pub const HAS_FILENAMES: u64 = 8;
    pub const HAS_LINE_NUMBERS: u64 = 9;
    pub const HAS_INLINE_FRAMES: u64 = 10;
}

/// Fields of the message `Location`.
mod location_field {
    pub const ID: u64 = 1;
    pub const MAPPING_ID: u64 = 2;
    pub const ADDRESS: u64 = 3;
    pub const LINE: u64 = 4;
}

/// Fields of the message `Line`.
mod line_field {
    pub const FUNCTION_ID: u64 = 1;
    pub const LINE: u64 = 2;
    pub const COLUMN: u64 = 3;
}

/// Fields of the message `Function`.
mod function_field {
    pub const ID: u64 = 1;
    pub const NAME: u64 = 2;
    pub const FILENAME: u64 = 4;
    pub const START_LINE: u64 = 5;
}

/// Returns the ID of what has a number from 0: a mapping, location or function. 0 is none.
fn id_of(number: u32) -> u64 {
    u64::from(number).saturating_add(1)
}

/// A mapping.
#[derive(Clone, Copy, Default)]
struct Mapping {
    start: u64,
    /// 0 if it has no frame yet.
    end: u64,
    has_files: bool,
    has_inlined: bool,
}

impl Mapping {
    /// Extends it to a frame.
    fn add(&mut self, frame: &Frame) {
        self.start = if self.end == 0 {
            frame.address
        } else {
            self.start.min(frame.address)
        };
        self.end = self.end.max(frame.address.saturating_add(1));
        self.has_files |= frame.lines.iter().any(|line| line.file.is_some());
        self.has_inlined |= frame.lines.len() > 1;
    }
}

/// What locations refer to by number.
#[derive(Default)]
struct Referred {
    functions: Interner<FunctionKey>,
    homes: Interner<Home>,
    /// The mapping of each home.
    mappings: Vec<Mapping>,
}

impl Referred {
    /// Returns the ID of the mapping with a frame, which is extended to it.
    fn mapping_id(&mut self, home: Home, frame: &Frame) -> u64 {
        let number = self.homes.of(home);
        self.mappings.resize(self.homes.all.len(), Mapping::default());
        if let Some(mapping) = self.mappings.get_mut(number as usize) {
            mapping.add(frame);
        }
        id_of(number)
    }
}

/// Writes the file.
pub fn write(profile: &ExportedProfile, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer {
        profile,
        out: GzEncoder::new(out, Compression::default()),
        strings: Interner::default(),
    };
    // String 0 must be empty.
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
            // Another event may have this name, or one that differs only in characters that are replaced.
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
            let is_first = number == 0;
            if is_first {
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
        message.number(value_type_field::TYPE, self.strings.of(name));
        message.number(value_type_field::UNIT, self.strings.of(unit.to_owned()));
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
                locations.push(id_of(frames.of(Some(frame))));
            }
            if locations.is_empty() {
                // Readers drop samples without a location.
                locations.push(id_of(frames.of(None)));
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
        let mut referred = Referred::default();
        for (frame, id) in frames.all.iter().zip(1_u64..) {
            let mut location = Message::default();
            location.number(location_field::ID, id);
            if let Some(frame) = frame.map(|frame| &self.profile.tables.frames[frame]) {
                describe(self.profile, frame, &mut location, &mut referred);
            }
            self.field(field::LOCATION, location.bytes())?;
        }
        self.functions(&referred.functions)?;
        self.mappings(&referred)
    }

    /// Writes the functions, with the numbers that lines refer to.
    fn functions(&mut self, functions: &Interner<FunctionKey>) -> io::Result<()> {
        let tables = &self.profile.tables;
        for (&(index, file), id) in functions.all.iter().zip(1_u64..) {
            let mut message = Message::default();
            message.number(function_field::ID, id);
            // Readers take a system name for one that is to be demangled.
            let name = self.profile.name(index).into_owned();
            message.number(function_field::NAME, self.strings.of(name));
            if let Some(file) = file {
                let path = tables.files[file].path.clone();
                message.number(function_field::FILENAME, self.strings.of(path));
            }
            let function = &tables.functions[index];
            // Otherwise, this is code that was included from another file.
            if function.file == file {
                message.number(function_field::START_LINE, function.line);
            }
            self.field(field::FUNCTION, message.bytes())?;
        }
        Ok(())
    }

    /// Writes where functions are from, with the numbers that locations refer to.
    fn mappings(&mut self, referred: &Referred) -> io::Result<()> {
        let mappings = referred.homes.all.iter().zip(&referred.mappings);
        for ((&home, mapping), id) in mappings.zip(1_u64..) {
            let mut message = Message::default();
            message.number(mapping_field::ID, id);
            message.number(mapping_field::MEMORY_START, mapping.start);
            message.number(mapping_field::MEMORY_LIMIT, mapping.end);
            let path = self.profile.home_path(home).into_owned();
            message.number(mapping_field::FILENAME, self.strings.of(path));
            let module = self.profile.module(home);
            if let Some(build_id) = module.and_then(|module| module.build_id.as_ref()) {
                message.number(mapping_field::BUILD_ID, self.strings.of(build_id.clone()));
            }
            // Without it, pprof looks for the file on its own machine.
            message.flag(mapping_field::HAS_FUNCTIONS, true);
            message.flag(mapping_field::HAS_FILENAMES, mapping.has_files);
            message.flag(mapping_field::HAS_LINE_NUMBERS, mapping.has_files);
            message.flag(mapping_field::HAS_INLINE_FRAMES, mapping.has_inlined);
            self.field(field::MAPPING, message.bytes())?;
        }
        Ok(())
    }
}

/// Adds the mapping, the address and the lines of a frame to its location.
fn describe(profile: &ExportedProfile, frame: &Frame, location: &mut Message, referred: &mut Referred) {
    let home = profile.home(frame);
    if home != Home::Unknown {
        location.number(location_field::MAPPING_ID, referred.mapping_id(home, frame));
    }
    location.number(location_field::ADDRESS, frame.address);
    let functions = &profile.tables.functions;
    // Readers show the address and the mapping of a location without lines.
    let is_named = frame.lines.iter().any(|line| functions[line.function].is_named);
    for line in frame.lines.iter().filter(|_| is_named) {
        let mut message = Message::default();
        let file = line.file.or(functions[line.function].file);
        let number = referred.functions.of((line.function, file));
        message.number(line_field::FUNCTION_ID, id_of(number));
        message.number(line_field::LINE, line.line);
        message.number(line_field::COLUMN, line.column);
        location.field(location_field::LINE, message.bytes());
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
