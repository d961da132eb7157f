//! hotspot's parser, and a reader of what it writes for hotspot's window.
//!
//! The stream is "QPERFSTREAM\0" and a version of 4 bytes, then messages: a length in little-endian, a kind, and
//! fields as `QDataStream` writes them, in big-endian. Ids are numbers of messages of one kind, and -1 is none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::support::tools;

/// A function in the stack of a sample, as hotspot's window shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function; empty if hotspot knows none.
    pub function: String,
    /// Base name of the source file, and line: of the sampled address in the first frame, of the inlined call in the
    /// others.
    pub line: (String, i32),
}

/// What hotspot's parser found in a profile.
#[derive(Default)]
pub struct Stream {
    strings: Vec<String>,
    locations: HashMap<i32, Location>,
    /// Function that begins at a location.
    symbols: HashMap<i32, i32>,
    /// Locations of each sample, starting with the sampled address.
    samples: Vec<Vec<i32>>,
}

#[derive(Clone, Copy)]
struct Location {
    file: i32,
    line: i32,
    parent: i32,
}

impl Stream {
    /// Returns the inlined calls at the sampled address of each sample, and then the function that contains them.
    pub fn leaves(&self) -> impl Iterator<Item = Vec<Frame>> {
        let leaves = self.samples.iter().filter_map(|sample| sample.first());
        leaves.map(|&leaf| self.frames(leaf))
    }

    /// Returns the functions of each sample's stack, without what was inlined into them.
    pub fn stacks(&self) -> impl Iterator<Item = Vec<String>> {
        let outermost = |&at: &i32| self.frames(at).pop().unwrap().function;
        self.samples
            .iter()
            .map(move |sample| sample.iter().map(outermost).collect())
    }

    /// Returns the frames at an address. Positions (an address, or a call) alternate with the functions that
    /// contain them.
    fn frames(&self, address: i32) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut position = address;
        loop {
            let at = self.locations[&position];
            // Without debugging information, the address itself has the symbol.
            let parent = self.locations.get(&at.parent);
            let function = if parent.is_some() { at.parent } else { position };
            let name = self.symbols.get(&function);
            let path = self.string(at.file);
            let file = path.rsplit('/').next().unwrap_or(path);
            frames.push(Frame {
                function: name.map_or("", |&name| self.string(name)).to_owned(),
                line: (file.to_owned(), at.line),
            });
            match parent {
                Some(parent) if parent.parent >= 0 => position = parent.parent,
                _ => return frames,
            }
        }
    }

    fn string(&self, id: i32) -> &str {
        let known = usize::try_from(id).ok().map(|id| &self.strings[id]);
        known.map_or("", |text| text.as_str())
    }
}

/// Returns what hotspot's parser finds in a profile. The parser unwinds with elfutils and reads symbols itself. It
/// is in Debian's package hotspot.
pub fn parse(folder: &Path, profile: &Path) -> Stream {
    let parsed = folder.join("parsed");
    let parser = hotspot_parser();
    let arguments = ["--input", tools::text(profile), "--output", tools::text(&parsed)];
    tools::run(tools::text(&parser), &arguments);
    read(&std::fs::read(parsed).unwrap())
}

fn hotspot_parser() -> PathBuf {
    let places = [
        std::env::var_os("HOTSPOT_PERFPARSER").map(PathBuf::from),
        Some("/usr/lib/x86_64-linux-gnu/libexec/hotspot-perfparser".into()),
    ];
    let found = places.into_iter().flatten().find(|path| path.exists());
    found.expect("hotspot-perfparser is missing; scripts/test installs it")
}

fn read(bytes: &[u8]) -> Stream {
    const LOCATION: u8 = 3;
    const SYMBOL: u8 = 4;
    const STRING: u8 = 5;
    const SAMPLE: u8 = 13;
    let mut stream = Stream::default();
    let mut messages = bytes.strip_prefix(b"QPERFSTREAM\0").unwrap().get(4..).unwrap();
    while let Some((length, rest)) = messages.split_first_chunk() {
        let (message, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        messages = rest;
        let (kind, fields) = message.split_first().unwrap();
        let mut fields = Fields(fields);
        match *kind {
            STRING => {
                assert_eq!(fields.i32() as usize, stream.strings.len());
                let length = fields.i32() as usize;
                let text = fields.take(length).to_vec();
                stream.strings.push(String::from_utf8(text).unwrap());
            }
            LOCATION => {
                let id = fields.i32();
                let _address = fields.take(8);
                let file = fields.i32();
                let _process = fields.i32();
                let line = fields.i32();
                let _column = fields.i32();
                let parent = fields.i32();
                stream.locations.insert(id, Location { file, line, parent });
            }
            SYMBOL => {
                let location = fields.i32();
                stream.symbols.insert(location, fields.i32());
            }
            SAMPLE => {
                let _process_thread_cpu_and_time = fields.take(4 + 4 + 4 + 8);
                let count = fields.i32();
                stream.samples.push((0..count).map(|_| fields.i32()).collect());
            }
            _ => {}
        }
    }
    assert!(messages.is_empty());
    stream
}

/// Fields of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        taken
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }
}
