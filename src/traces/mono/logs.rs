//! Logs that were opened and read, and the functions in them.

use std::io;
use std::sync::Arc;

use jitdump::{AddressRange, Machine, RuntimeTime, Tally};

use crate::bytes::printable_path;
use crate::code::process::Processes;
use crate::code::symbol_only_code::{SymbolOnlyCode, SymbolOnlyFunction};
use crate::collections::range_map::RangeMap;
use crate::files::{InputFile, TempFile};
use crate::results::FileKind;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::detect::is_packed;
use crate::traces::mono::format::{Log, LogIndex, packed};
use crate::traces::mono::memory::MonoMemory;
use crate::traces::mono::prepare::Prepared;
use crate::traces::options::TraceOptions;
use crate::units::Pid;

/// A log that was opened.
#[derive(Debug)]
pub struct OpenLog {
    /// The file, decompressed if it was compressed.
    pub file: Arc<InputFile>,
    /// Its process, once it is known.
    pub pid: Pid,
    /// Errors found while decompressing the file.
    faults: Tally<Issue>,
    /// The compressed file, if it was compressed.
    packed: Option<Arc<InputFile>>,
}

impl OpenLog {
    /// Decompresses a log if it is compressed.
    pub fn of(file: Arc<InputFile>) -> io::Result<Self> {
        if !is_packed(&file) {
            return Ok(Self {
                file,
                pid: Pid(0),
                faults: Tally::default(),
                packed: None,
            });
        }
        let mut temp_file = TempFile::create()?;
        let unpacked = packed::unpack(
            &file,
            packed::max_unpacked_size(file.len() as u64),
            &mut temp_file,
        )?;
        Ok(Self {
            file: Arc::new(temp_file.map(file.path())?),
            pid: Pid(0),
            faults: unpacked.faults,
            packed: Some(file),
        })
    }

    /// Returns the process given with `--pid`, or the one in the log's header.
    pub fn header_pid(&self, options: &TraceOptions) -> Result<Pid, Diagnostic> {
        let log = Log::parse(&self.file)?;
        Ok(Pid(options.pid.unwrap_or(log.header().pid)))
    }

    /// Assigns the log to a process.
    pub fn of_process(self, Pid(pid): Pid) -> Self {
        // PID 0 would be the idle task.
        let pid = Pid(pid.max(1));
        Self { pid, ..self }
    }
}

/// A log that was read.
#[derive(Debug)]
pub struct ReadLog<'a> {
    /// The file, decompressed if it was compressed.
    pub file: &'a Arc<InputFile>,
    /// Its process.
    pub pid: Pid,
    /// Reader of the log's header and events.
    pub log: Log<'a>,
    /// The log's code and names.
    pub index: LogIndex<'a>,
    /// Errors found while decompressing the file.
    pub packing_faults: &'a Tally<Issue>,
    /// Clock, threads and addresses used to convert events and stacks; `None` until `prepare` was called.
    pub prepared: Option<Prepared<'a>>,
    /// Events that could not be converted in full.
    pub conversion_faults: Tally<Issue>,
}

impl<'a> ReadLog<'a> {
    /// Reads a log, and indexes its code and names.
    pub fn of(opened: &'a OpenLog) -> Result<Self, Diagnostic> {
        let log = Log::parse(&opened.file)?;
        Ok(Self {
            file: &opened.file,
            pid: opened.pid,
            log,
            index: LogIndex::of(&log),
            packing_faults: &opened.faults,
            prepared: None,
            conversion_faults: Tally::default(),
        })
    }

    /// Returns the log's functions, except those that were compiled ahead of time: their code is in a mapped file,
    /// which has better names for them. `core` supplies the code bytes, where it has them; `recorded` is the machine
    /// that the profile was recorded on.
    pub fn code(
        &self,
        processes: &Processes,
        core: Option<&MonoMemory>,
        recorded: Machine,
    ) -> SymbolOnlyCode<'a> {
        let machine = Machine {
            is_64: self.log.header().pointer_size == 8,
            ..recorded
        };
        let pid = self.pid;
        let in_files = files_of(processes, pid);
        let frame_addresses = self.prepared.as_ref().map(|prepared| &prepared.frame_addresses);
        let mut code = SymbolOnlyCode::new(pid.0, machine, FileKind::MonoLog);
        for (number, function) in (0u32..).zip(&self.index.code.functions) {
            if in_files.overlapping(function.range).next().is_some() {
                continue;
            }
            let named = SymbolOnlyFunction {
                name: function.name().unwrap_or_default().into(),
                range: function.range,
                code: core.and_then(|core| core.bytes(function.range)),
            };
            // A call of a method may be logged before its JIT event.
            let first_use = frame_addresses.and_then(|frame_addresses| frame_addresses.first_use(number));
            let loaded = code.load(named, first_use.unwrap_or(function.time).min(function.time));
            code.compiled = loaded.map_or(code.compiled, |number| number.saturating_add(1));
        }
        self.load_native_symbols(&in_files, &mut code);
        if let Some(frame_addresses) = frame_addresses {
            frame_addresses
                .synthetic_symbols
                .load(&mut code, self.first_time());
        }
        code.sort();
        code
    }

    /// Adds the symbols of native code that Mono looked up for its own samples, except in files of the profile, which have
    /// better ones, and in code of methods. A symbol ends at the next one at the latest.
    fn load_native_symbols(&self, in_files: &RangeMap<()>, code: &mut SymbolOnlyCode<'a>) {
        /// Size of a symbol without one, in bytes, as in mprof-report.
        const DEFAULT_SIZE: u64 = 4096;
        let mut symbols = self.index.native_symbols.clone();
        // Stable, so the first symbol at an address stays.
        symbols.sort_by_key(|symbol| symbol.start);
        symbols.dedup_by_key(|symbol| symbol.start);
        let mut methods = RangeMap::default();
        for function in &self.index.code.functions {
            methods.insert(function.range, ());
        }
        let taken = [in_files, &methods];
        let is_free = |range: AddressRange| {
            taken
                .iter()
                .all(|taken| taken.overlapping(range).next().is_none())
        };
        let starts_of_next = symbols.iter().skip(1).map(|next| next.start.0);
        for (symbol, next) in symbols.iter().zip(starts_of_next.chain([u64::MAX])) {
            let size = if symbol.size > 0 {
                symbol.size
            } else {
                DEFAULT_SIZE
            };
            let size = size.min(next.saturating_sub(symbol.start.0));
            let range = AddressRange::new(symbol.start, size);
            if let Some(range) = range.filter(|&range| is_free(range)) {
                let named = SymbolOnlyFunction {
                    name: symbol.name.into(),
                    range,
                    code: None,
                };
                code.load(named, self.first_time());
            }
        }
    }

    /// Returns the time of the first event, from which symbols without a time are valid: before, the process may have run
    /// another program.
    fn first_time(&self) -> RuntimeTime {
        self.index.times.unwrap_or_default().0
    }

    /// Returns a diagnostic if the log does not record where code was placed while the program ran. Most of its
    /// names then belong to methods without a known address.
    fn without_addresses(&self) -> Option<Diagnostic> {
        let code = &self.index.code;
        let unplaced = code.without_range;
        let has_buffers = code.functions.iter().any(|function| function.is_compiled);
        (unplaced > 0 && !has_buffers).then(|| {
            let without = Diagnostic::new(Issue::MonoNoCodeAddresses).in_file_called(self.name());
            without.with("methods", unplaced)
        })
    }

    /// Returns the log's path for messages.
    pub fn name(&self) -> String {
        printable_path(self.file.path())
    }
}

/// The logs that belong to a profile.
#[derive(Debug)]
pub struct Logs<'a> {
    /// Logs that were read.
    pub all: Vec<ReadLog<'a>>,
    /// Core file with their code, if the user gave one.
    pub core: Option<&'a MonoMemory>,
    /// Compressed files that logs were read from.
    pub packed: Vec<&'a InputFile>,
    /// What to report of them as a whole.
    pub diagnostics: Vec<Diagnostic>,
}

impl Logs<'_> {
    /// Adds a diagnostic for each log with several heap shots, of which only the last one is converted.
    pub fn note_earlier_heap_shots(&mut self) {
        for log in &self.all {
            let shots = log
                .prepared
                .as_ref()
                .map_or(0, |prepared| prepared.heap_shots.count());
            if shots > 1 {
                let note = Diagnostic::new(Issue::MonoHeapShots).in_file_called(log.name());
                self.diagnostics.push(note.with("shots", shots));
            }
        }
    }
}

/// Reads the logs that were opened, with a core file and diagnostics about them. Fails if one has an invalid header.
pub fn read<'a>(
    opened: &'a [OpenLog],
    core: Option<&'a MonoMemory>,
    mut diagnostics: Vec<Diagnostic>,
) -> Result<Logs<'a>, Diagnostic> {
    let logs = opened.iter();
    let logs = logs.map(|log| ReadLog::of(log).map_err(|error| error.in_file(log.file.path())));
    let all = logs.collect::<Result<Vec<_>, _>>()?;
    diagnostics.extend(all.iter().filter_map(ReadLog::without_addresses));
    Ok(Logs {
        core,
        all,
        packed: opened.iter().filter_map(|log| log.packed.as_deref()).collect(),
        diagnostics,
    })
}

/// Returns the addresses where a process had a file mapped at any time.
fn files_of(processes: &Processes, pid: Pid) -> RangeMap<()> {
    let mut files = RangeMap::default();
    for map in processes.spaces_of(pid).flat_map(|(_, space)| &space.maps) {
        if map.backing.is_file() {
            files.insert(map.range, ());
        }
    }
    files
}

/// Returns the architecture of the first log as `uname -m` prints it; empty without a log.
pub(super) fn architecture<'a>(logs: &[ReadLog<'a>]) -> &'a [u8] {
    match logs.first().map(|log| log.log.header().architecture) {
        Some(b"x86-64" | b"amd64") => b"x86_64",
        Some(b"arm64") => b"aarch64",
        Some(b"x86") => b"i686",
        Some(other) => other,
        None => b"",
    }
}
