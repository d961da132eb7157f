//! The processed profile of the Firefox Profiler.
//!
//! The version decides what a reader does to a file: it converts older ones, and refuses newer ones. Addresses have 31 bits and
//! are relative to a library, so code in memory gets libraries of its own, one for each such range. Call trees add up by
//! function, so a function is one row; its source file has to be that of its lines. Functions and frames have the position that
//! was compiled, and beside it the original one if a source map led there.

use std::borrow::Cow;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::collections::interner::Interner;
use crate::frames::stream::Kind;
use crate::frames::stream::tables::{Call, Location, SourceFileIndex, TierIndex};
use crate::tools::export::EXPORTER;
use crate::tools::export::calls::CallNodes;
use crate::tools::export::firefox_markers::{self, MISSING, MarkerSource, milliseconds};
use crate::tools::export::firefox_threads::threads;
use crate::tools::export::json;
use crate::tools::export::profile::{
    ExportedProfile, FormatDescription, FormatScope, FunctionKey, Home, WeightedStack,
};

/// The format.
pub const FORMAT: FormatDescription = FormatDescription {
    name: "firefox",
    end: ".json.gz",
    is_text: false,
    viewer: Some("https://profiler.firefox.com"),
    help: "https://profiler.firefox.com, on any system; all threads with times",
    scope: FormatScope {
        has_times: true,
        one_event: false,
        one_thread: false,
        has_markers: true,
        has_texts: true,
    },
    write,
};

/// Version of the format.
const VERSION: u32 = 70;

/// Most addresses of a library.
const MAX_ADDRESS: u64 = i32::MAX as u64;

/// Size of a page, which libraries start at.
const PAGE: u64 = 4096;

/// Categories: the default one first, and their colors.
const CATEGORIES: [(Kind, &str, &str); Kind::ALL.len()] = [
    (Kind::Unknown, "Other", "grey"),
    (Kind::Language, "Language", "green"),
    (Kind::Native, "Native", "blue"),
    (Kind::Kernel, "Kernel", "orange"),
    (Kind::Compiler, "Compiler", "purple"),
    (Kind::Gc, "Garbage collector", "red"),
    (Kind::Idle, "Idle", "transparent"),
];

#[derive(Serialize)]
struct File<'p, T> {
    meta: Value,
    libs: Vec<Value>,
    shared: Shared<'p>,
    threads: T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shared<'p> {
    string_array: Vec<String>,
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: FunctionTable,
    resource_table: Value,
    native_symbols: Value,
    sources: SourceTable<'p>,
    source_location_table: LocationTable,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StackTable {
    frame: Vec<u32>,
    /// Distance to the caller; 0 without one.
    prefix_offset: Vec<u32>,
    length: usize,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    func: Vec<u32>,
    lib: Vec<u32>,
    address: Vec<u64>,
    inline_depth: Vec<u8>,
    category: Vec<usize>,
    subcategory: Vec<u32>,
    native_symbol: Vec<()>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u8>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
    original_location: Vec<Option<u32>>,
    length: usize,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct FunctionTable {
    name: Vec<u32>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    source: Vec<Option<u32>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
    original_location: Vec<Option<u32>>,
    length: usize,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct SourceTable<'p> {
    id: Vec<()>,
    filename: Vec<u32>,
    start_line: Vec<u32>,
    start_column: Vec<u32>,
    #[serde(rename = "sourceMapURL")]
    source_map_url: Vec<()>,
    content: Vec<Option<Cow<'p, str>>>,
    length: usize,
}

#[derive(Serialize, Default)]
struct LocationTable {
    source: Vec<u32>,
    line: Vec<u32>,
    column: Vec<u32>,
    length: usize,
}

/// What files and original positions are numbered by.
#[derive(Default)]
struct OriginalPositions {
    sources: Interner<SourceFileIndex>,
    originals: Interner<Location>,
}

impl OriginalPositions {
    /// Returns the number of a position, if it has a line.
    fn number(&mut self, original: Option<Location>) -> Option<u32> {
        let original = original.filter(|original| original.line > 0)?;
        self.sources.of(original.file);
        // Columns are not optional.
        let column = original.column.max(1);
        Some(self.originals.of(Location { column, ..original }))
    }
}

/// Returns the line and the column of a place, as far as they are known.
fn line_and_column(place: Option<Location>) -> (Option<u32>, Option<u32>) {
    let known = |number: u32| (number > 0).then_some(number);
    place.map_or((None, None), |place| (known(place.line), known(place.column)))
}

/// Numbers by which tables refer to others, given at the first reference. So a table comes after those that refer to it.
#[derive(Default)]
struct Numbering {
    strings: Interner<String>,
    functions: Interner<FunctionKey>,
    resources: Interner<Home>,
    positions: OriginalPositions,
}

/// Writes the file.
pub fn write(profile: &ExportedProfile, out: &mut dyn Write) -> io::Result<()> {
    let mut distinct: Interner<Call> = Interner::default();
    let nodes = CallNodes::of(profile, |call| distinct.of(call));
    let calls = distinct.all.rows();
    let tiers = tiers(profile, calls);
    let libraries = Libraries::of_calls(profile, calls);
    let mut numbering = Numbering::default();
    // In this order, and strings at the end.
    let frame_table = frame_table(profile, calls, &tiers, &libraries, &mut numbering);
    let func_table = function_table(profile, &mut numbering);
    let source_location_table = location_table(&mut numbering);
    let sources = source_table(profile, &mut numbering);
    let resource_table = resource_table(profile, &mut numbering);
    let (shown_thread, its_samples) = profile.busiest().unwrap_or_default();
    let categories = [Kind::Compiler, Kind::Gc].map(category);
    let markers = MarkerSource::new(profile, &mut numbering.strings, categories, shown_thread);
    let weighted = profile.weighted_events();
    let libs = libraries.all.iter().map(|of_code| library(profile, of_code.home));
    let file = File {
        meta: meta(profile, &tiers, shown_thread, its_samples),
        libs: libs.collect(),
        shared: Shared {
            string_array: numbering.strings.all.into_iter().collect(),
            stack_table: stack_table(&nodes),
            frame_table,
            func_table,
            resource_table,
            native_symbols: json!({"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0}),
            sources,
            source_location_table,
        },
        threads: threads(profile, &nodes, &markers, &weighted),
    };
    let mut out = GzEncoder::new(out, Compression::default());
    json::write(&mut out, &file)?;
    out.finish().map(drop)
}

/// Returns the table of stacks, each of which has the distance to its caller.
fn stack_table(CallNodes { nodes, .. }: &CallNodes<u32>) -> StackTable {
    let callers = nodes.iter().map(|node| node.caller);
    StackTable {
        frame: nodes.iter().map(|node| node.call).collect(),
        prefix_offset: callers
            .zip(0_u32..)
            .map(|(caller, index)| caller.map_or(0, |caller| index.saturating_sub(caller)))
            .collect(),
        length: nodes.len(),
    }
}

/// Returns the table of frames, one for each call.
fn frame_table(
    profile: &ExportedProfile,
    calls: &[Call],
    tiers: &[TierIndex],
    libraries: &Libraries,
    numbering: &mut Numbering,
) -> FrameTable {
    let mut table = FrameTable {
        lib: libraries.places.iter().map(|place| place.library).collect(),
        address: libraries.places.iter().map(|place| place.address).collect(),
        native_symbol: vec![(); calls.len()],
        inner_window_id: vec![0; calls.len()],
        length: calls.len(),
        ..FrameTable::default()
    };
    for call in calls {
        let (frame, line) = (&profile.tables.frames[call.frame], call.line);
        let compiled = line.compiled();
        let declared = || profile.tables.functions[line.function].compiled();
        let file = compiled.or_else(declared).map(|location| location.file);
        let function = numbering.functions.of((line.function, file));
        table.func.push(function);
        let depth = u8::try_from(call.inline_depth).unwrap_or(u8::MAX);
        table.inline_depth.push(depth);
        table.category.push(category(frame.kind));
        let tier = frame.tier.filter(|_| frame.kind == Kind::Language);
        let subcategory = tier.and_then(|tier| tiers.binary_search(&tier).ok());
        table.subcategory.push(subcategory.map_or(0, |at| at as u32 + 1));
        let (number, column) = line_and_column(compiled);
        table.line.push(number);
        table.column.push(column);
        let original = line.generated.and(line.location());
        table.original_location.push(numbering.positions.number(original));
    }
    table
}

/// Returns the table of what has code, all of it libraries.
fn resource_table(profile: &ExportedProfile, numbering: &mut Numbering) -> Value {
    let Numbering {
        strings, resources, ..
    } = numbering;
    let names = resources
        .all
        .iter()
        .map(|&home| profile.home_path(home).into_owned());
    let names: Vec<u32> = names.map(|name| strings.of(name)).collect();
    let count = names.len();
    json!({
        "name": names,
        "host": vec![(); count],
        "type": vec![1; count],
        "length": count,
    })
}

fn category(kind: Kind) -> usize {
    let found = CATEGORIES.iter().position(|(of, ..)| *of == kind);
    found.unwrap_or_default()
}

/// Returns the compiler tiers of the calls, in order.
fn tiers(profile: &ExportedProfile, calls: &[Call]) -> Vec<TierIndex> {
    let tiers = calls
        .iter()
        .filter_map(|call| profile.tables.frames[call.frame].tier);
    let mut tiers: Vec<TierIndex> = tiers.collect();
    tiers.sort_unstable();
    tiers.dedup();
    tiers
}

/// Describes the profile. The thread at the position `shown_thread` is shown first.
fn meta(
    profile: &ExportedProfile,
    tiers: &[TierIndex],
    shown_thread: usize,
    its_samples: &[WeightedStack],
) -> Value {
    let categories = CATEGORIES.map(|(kind, name, color)| {
        let own = tiers.iter().filter(|_| kind == Kind::Language);
        let own = own.map(|&tier| &*profile.tables.tiers[tier]);
        let subcategories: Vec<&str> = std::iter::once("Other").chain(own).collect();
        json!({"name": name, "color": color, "subcategories": subcategories})
    });
    let mut about = vec![
        json!({"label": "Events", "format": "string", "value": profile.event_names()}),
        json!({"label": MISSING, "format": "string", "value": profile.tables.losses.text()}),
    ];
    let markers = profile.markers.text();
    about.extend(markers.map(|text| json!({"label": "Markers", "format": "string", "value": text})));
    json!({
        "interval": interval(its_samples),
        "startTime": 0,
        "processType": 0,
        "product": profile.title,
        "stackwalk": 1,
        "version": 36,
        "preprocessedProfileVersion": VERSION,
        "symbolicated": true,
        // Otherwise there is a button that sends build IDs and addresses to Mozilla's server.
        "symbolicationNotSupported": true,
        "sourceCodeIsNotOnSearchfox": true,
        "initialSelectedThreads": [shown_thread],
        "importedFrom": EXPORTER,
        "categories": categories,
        "markerSchema": firefox_markers::schema(),
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "extra": [{"label": "Samples", "entries": about}],
    })
}

/// Returns the usual time between the samples of a thread, in milliseconds. That is the median, as threads also wait.
fn interval(rows: &[WeightedStack]) -> f64 {
    let times = rows.windows(2).filter_map(|rows| {
        let [row, next] = rows else { return None };
        Some(next.time.saturating_sub(row.time)).filter(|&time| time > 0)
    });
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(1.0, |&time| milliseconds(time))
}

/// Returns the entry of an executable or library, by which symbols would be looked up.
fn library(profile: &ExportedProfile, home: Home) -> Value {
    let path = profile.home_path(home);
    let module = profile.module(home);
    let name = module.map_or(&*path, |module| &module.name);
    let build_id = module.and_then(|module| module.build_id.as_deref());
    json!({
        "arch": "",
        "name": name,
        "path": path,
        "debugName": name,
        "debugPath": path,
        "breakpadId": build_id.map(breakpad_id).unwrap_or_default(),
        "codeId": build_id,
    })
}

/// Returns the first 16 bytes of a build ID as a GUID, whose first three parts are little-endian, and an age of 0.
fn breakpad_id(build_id: &str) -> String {
    let digits: Vec<char> = build_id.chars().chain(std::iter::repeat('0')).take(32).collect();
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let bytes = ORDER
        .iter()
        .filter_map(|&byte| digits.get(2 * byte..2 * byte + 2));
    let digits = bytes.flatten().map(char::to_ascii_uppercase);
    digits.chain(['0']).collect()
}

/// Returns the table of functions, and adds the names, resources and source files that it refers to.
fn function_table(profile: &ExportedProfile, numbering: &mut Numbering) -> FunctionTable {
    let Numbering {
        strings,
        functions,
        resources,
        positions,
    } = numbering;
    let functions = functions.all.rows();
    let mut table = FunctionTable {
        length: functions.len(),
        relevant_for_js: vec![false; functions.len()],
        ..FunctionTable::default()
    };
    for &(index, file) in functions {
        let function = &profile.tables.functions[index];
        table.name.push(strings.of(profile.name(index).into_owned()));
        table.is_js.push(function.kind == Kind::Language);
        // Functions without a resource are grey, as labels are.
        let home = Home::of(function.module, function.kind, None);
        let resource = (home != Home::Unknown).then(|| resources.of(home));
        table.resource.push(resource.map_or(-1, i64::from));
        table.source.push(file.map(|file| positions.sources.of(file)));
        // The function is declared in another file than this one if code of it was included.
        let here = function.compiled().filter(|location| Some(location.file) == file);
        let (line, column) = line_and_column(here);
        table.line_number.push(line);
        table.column_number.push(column);
        let original = function.generated.and(function.location());
        table.original_location.push(positions.number(original));
    }
    table
}

/// Returns the table of original positions.
fn location_table(numbering: &mut Numbering) -> LocationTable {
    let OriginalPositions { sources, originals } = &mut numbering.positions;
    LocationTable {
        source: originals
            .all
            .iter()
            .map(|location| sources.of(location.file))
            .collect(),
        line: originals.all.iter().map(|location| location.line).collect(),
        column: originals.all.iter().map(|location| location.column).collect(),
        length: originals.all.len(),
    }
}

/// Returns the table of source files, with their texts where these are known.
fn source_table<'p>(profile: &'p ExportedProfile, numbering: &mut Numbering) -> SourceTable<'p> {
    let Numbering {
        strings, positions, ..
    } = numbering;
    let files = positions.sources.all.rows();
    let text = |file: &SourceFileIndex| {
        let embedded = profile.tables.files[*file].text.as_ref();
        embedded
            .or_else(|| profile.texts.get(file))
            .map(|text| String::from_utf8_lossy(text))
    };
    let names = files
        .iter()
        .map(|&file| strings.of(profile.tables.files[file].path.clone()));
    SourceTable {
        filename: names.collect(),
        id: vec![(); files.len()],
        start_line: vec![1; files.len()],
        start_column: vec![1; files.len()],
        source_map_url: vec![(); files.len()],
        content: files.iter().map(text).collect(),
        length: files.len(),
    }
}

/// Libraries, and where calls are in them.
struct Libraries {
    all: Vec<Library>,
    /// The place of each call.
    places: Vec<PlaceInLibrary>,
}

/// A library.
struct Library {
    /// What has its code.
    home: Home,
    /// Its first address.
    start: u64,
}

/// Where a call is.
#[derive(Clone, Copy, Default)]
struct PlaceInLibrary {
    /// Index of the library.
    library: u32,
    /// Address from the start of the library, less than [`MAX_ADDRESS`].
    address: u64,
}

impl Libraries {
    /// Returns the libraries of calls. All code of runtimes has one home here.
    fn of_calls(profile: &ExportedProfile, calls: &[Call]) -> Self {
        Self::of(calls.iter().map(|call| {
            let frame = &profile.tables.frames[call.frame];
            let home = match profile.home(frame) {
                Home::Jit(_) => Home::Jit(None),
                home => home,
            };
            (home, frame.address)
        }))
    }

    /// Returns the libraries of calls, by the home of the code and the address of each.
    fn of(calls: impl Iterator<Item = (Home, u64)>) -> Self {
        let mut sorted: Vec<(Home, u64, usize)> = calls
            .enumerate()
            .map(|(call, (home, address))| (home, address, call))
            .collect();
        sorted.sort_unstable();
        let mut libraries = Self {
            all: Vec::new(),
            places: vec![PlaceInLibrary::default(); sorted.len()],
        };
        for (home, address, call) in sorted {
            let place_of_call = libraries.place(home, address);
            if let Some(place) = libraries.places.get_mut(call) {
                *place = place_of_call;
            }
        }
        libraries
    }

    /// Returns the place of an address in the last library, or in a new one if that is of another home, or has no room. It must
    /// not be lower than those of the same home before.
    fn place(&mut self, home: Home, address: u64) -> PlaceInLibrary {
        // Addresses of files are relative already.
        let start_of_new = if address < MAX_ADDRESS {
            0
        } else {
            address / PAGE * PAGE
        };
        let last = self.all.last().filter(|last| last.home == home);
        let last_start = last.map(|last| last.start);
        let with_room = last_start.filter(|start| address.saturating_sub(*start) < MAX_ADDRESS);
        let start = with_room.unwrap_or(start_of_new);
        if with_room.is_none() {
            self.all.push(Library { home, start });
        }
        PlaceInLibrary {
            library: self.all.len().saturating_sub(1) as u32,
            address: address.saturating_sub(start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpad_ids_are_those_of_breakpad() {
        let id = breakpad_id("00112233445566778899aabbccddeeff01234567");
        assert_eq!(id, "33221100554477668899AABBCCDDEEFF0");
        assert_eq!(breakpad_id("ab"), "000000AB0000000000000000000000000");
    }

    #[test]
    fn addresses_in_a_library_have_31_bits() {
        let jit = Home::Jit(None);
        let of = |addresses: &[u64]| {
            let libraries = Libraries::of(addresses.iter().map(|&address| (jit, address)));
            let all = libraries.all.iter().map(|it| (it.home, it.start));
            let places = libraries.places.iter().map(|it| (it.library, it.address));
            (all.collect::<Vec<_>>(), places.collect::<Vec<_>>())
        };
        let near = of(&[0x7fff_fffe, 0]);
        assert_eq!(near, (vec![(jit, 0)], vec![(0, 0x7fff_fffe), (0, 0)]));
        let far = of(&[0x7fff_ffff, 0]);
        assert_eq!(far.0, [(jit, 0), (jit, 0x7fff_f000)]);
        assert_eq!(far.1, [(1, 0xfff), (0, 0)]);
        // The first address decides where a library starts.
        let high = of(&[0x7000_0000_0008, 0x7000_7fff_fffe, 0x7000_7fff_ffff]);
        assert_eq!(high.0, [(jit, 0x7000_0000_0000), (jit, 0x7000_7fff_f000)]);
        assert_eq!(high.1, [(0, 8), (0, 0x7fff_fffe), (1, 0xfff)]);
    }
}
