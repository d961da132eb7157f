//! What functions of one row have in common: their names and origins.

use std::borrow::Cow;

use jitdump::names::{NameParts, SourceLocation};
use jitdump::{names, printable};

use crate::code::timeline::{FileIndex, FunctionId};
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::collections::interner::Interner;
use crate::frames::ranking::counts::SamplesByStack;
use crate::frames::source_files::names_and_lines::NamesAndLines;
use crate::frames::stream::Tables;
use crate::frames::stream::frame::FrameCode;
use crate::frames::stream::native_lines::NativeLines;
use crate::frames::stream::tables::{self, Frame};
use crate::frames::stream::walk::FrameSymbols;
use crate::load::advice::runtime_finder;
use crate::load::{Recording, function_of, symbol_of};
use crate::results::name_style::{self, NameStyle};
use crate::results::summary::event_counts::EventCounts;
use crate::results::summary::profile::{CodeOrigin, FunctionProfile};
use crate::units::Pid;

/// What a summary is made of.
#[derive(Clone, Copy)]
pub struct SummaryContext<'a> {
    /// The recording.
    pub recording: &'a Recording<'a>,
    /// What names its code.
    pub symbols: &'a FrameSymbols<'a>,
    /// Names and lines of functions.
    pub names_and_lines: &'a NamesAndLines<'a>,
    /// Lines of native code, if they were read.
    pub native_lines: Option<&'a NativeLines<'a>>,
    /// What samples refer to.
    pub tables: &'a Tables,
    /// All samples.
    pub counts: &'a SamplesByStack,
}

table_index! {
    /// Index of an identity.
    IdentityIndex
}

/// What functions that are counted together have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionIdentity {
    kind: CodeOrigin,
    name: String,
    tier: Option<String>,
    module: Option<String>,
    runtime: Option<&'static str>,
    file: Option<String>,
    line: Option<u32>,
}

impl FunctionIdentity {
    fn of(kind: CodeOrigin, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            tier: None,
            module: None,
            runtime: None,
            file: None,
            line: None,
        }
    }

    /// Returns the row of the summary, without samples, for the code that was counted. `events` is the number of events.
    pub fn profile(&self, code: CodeCounts, events: usize) -> FunctionProfile {
        let this = self.clone();
        FunctionProfile {
            name: this.name,
            kind: this.kind,
            runtime: this.runtime.map(Cow::Borrowed),
            file: this.file,
            line: this.line,
            tier: this.tier,
            module: this.module,
            functions: code.functions,
            size: code.largest,
            own: EventCounts::zero(events),
            total: EventCounts::zero(events),
            self_period: EventCounts::zero(events),
            total_period: EventCounts::zero(events),
            callers: Vec::new(),
        }
    }

    /// Sets the source location that a name contains, if it does.
    fn set_location(&mut self, name: &[u8]) {
        if let Some(location) = names::source_locations(name).first() {
            self.file = Some(printable(location.path));
            self.line = Some(location.line).filter(|&line| line > 0);
        }
    }
}

/// Code of an identity.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeCounts {
    /// Number of functions, with those that it is inlined into.
    pub functions: u64,
    /// Size of the largest one in bytes, if known.
    pub largest: Option<u64>,
}

/// Returns the name of the runtime that wrote each file: of the last program that its process executed.
fn runtimes(recording: &Recording<'_>) -> IndexedTable<FileIndex, Option<&'static str>> {
    let processes = &recording.profile.index.processes;
    let mut of_space = runtime_finder(&recording.profile, |_, _| true);
    let mut of_process = |&pid: &Pid| {
        let found = processes.spaces_of(pid).filter_map(|(space, _)| of_space(space));
        found.last().map(|runtime| runtime.name)
    };
    let files = &recording.runtime_files.used;
    files.map(|used| used.found.pids.iter().find_map(&mut of_process))
}

/// Names the functions in frames.
pub struct IdentityNamer<'a> {
    recording: &'a Recording<'a>,
    symbols: &'a FrameSymbols<'a>,
    names_and_lines: &'a NamesAndLines<'a>,
    tables: &'a Tables,
    /// Form of the names of JIT code.
    style: &'a NameStyle,
    /// Runtime of each file with code.
    runtimes: IndexedTable<FileIndex, Option<&'static str>>,
    /// All identities.
    pub identities: Interner<FunctionIdentity, IdentityIndex>,
    /// Code of each.
    pub counts: IndexedTable<IdentityIndex, CodeCounts>,
    of_codes: HashMap<FrameCode, IdentityIndex>,
    of_inlined: HashMap<(FrameCode, tables::NamedFunctionIndex), IdentityIndex>,
}

impl<'a> IdentityNamer<'a> {
    /// Returns a namer without identities. `style` is the form of the names of JIT code.
    pub fn new(context: &SummaryContext<'a>, style: &'a NameStyle) -> Self {
        Self {
            recording: context.recording,
            symbols: context.symbols,
            names_and_lines: context.names_and_lines,
            tables: context.tables,
            style,
            runtimes: runtimes(context.recording),
            identities: Interner::default(),
            counts: IndexedTable::default(),
            of_codes: HashMap::default(),
            of_inlined: HashMap::default(),
        }
    }

    /// Returns the functions in a frame, the innermost last. Code that no earlier frame had is counted in `counts` as the iterator
    /// reaches it. Native code is one function: what is inlined into it counts for it.
    pub fn count_functions_of(&mut self, frame: &Frame) -> impl Iterator<Item = IdentityIndex> {
        let outer = self.outer_function(frame);
        let inlined = match (frame.module, frame.lines.split_last()) {
            (None, Some((_outer, inlined))) => inlined,
            _ => &[],
        };
        let outermost_first = inlined.iter().rev();
        let code = frame.code;
        std::iter::once(outer)
            .chain(outermost_first.map(move |line| self.inlined_function(code, line.function, outer)))
    }

    /// Returns the function that a frame's code was compiled for.
    fn outer_function(&mut self, frame: &Frame) -> IdentityIndex {
        if let Some(&known) = self.of_codes.get(&frame.code) {
            return known;
        }
        let (identity, size) = self.identity_of_code(frame);
        let index = self.count_code(identity, size);
        self.of_codes.insert(frame.code, index);
        index
    }

    /// Returns a function that is inlined into `code`, whose own function is `outer`.
    fn inlined_function(
        &mut self,
        code: FrameCode,
        function: tables::NamedFunctionIndex,
        outer: IdentityIndex,
    ) -> IdentityIndex {
        let key = (code, function);
        if let Some(&known) = self.of_inlined.get(&key) {
            return known;
        }
        let identity =
            self.identity_of_inlined(&self.tables.functions[function], &self.identities.all[outer]);
        let index = self.count_code(identity, None);
        self.of_inlined.insert(key, index);
        index
    }

    /// Counts code for an identity.
    fn count_code(&mut self, identity: FunctionIdentity, size: Option<u64>) -> IdentityIndex {
        let index = self.identities.of(identity);
        if self.counts.row(index).is_none() {
            self.counts.push(CodeCounts::default());
        }
        let counts = &mut self.counts[index];
        counts.functions = counts.functions.saturating_add(1);
        counts.largest = counts.largest.max(size);
        index
    }

    /// Returns the identity of a function that is inlined into another one.
    fn identity_of_inlined(
        &self,
        function: &tables::NamedFunction,
        outer: &FunctionIdentity,
    ) -> FunctionIdentity {
        let file = function.file.map(|file| &*self.tables.files[file].path);
        let location = file.map(|path| SourceLocation {
            path: path.as_bytes(),
            line: function.line,
            column: function.column,
        });
        let is_anonymous =
            location.is_some_and(|location| name_style::anonymous(location) == function.name.as_bytes());
        let own = if is_anonymous { "" } else { &*function.name };
        FunctionIdentity {
            kind: outer.kind,
            name: self
                .style
                .name_of_inlined(own.as_bytes(), location, outer.name.as_bytes()),
            tier: outer.tier.clone(),
            module: None,
            runtime: outer.runtime,
            file: file.map(str::to_owned),
            line: Some(function.line).filter(|&line| line > 0),
        }
    }

    /// Returns the identity of code, and its size in bytes.
    fn identity_of_code(&self, frame: &Frame) -> (FunctionIdentity, Option<u64>) {
        let modules = self.symbols.modules;
        let found = match frame.code {
            FrameCode::Function(id) => self.identity_of_function(id),
            FrameCode::PerfMapSymbol(id) => symbol_of(&self.recording.maps, id).map(|symbol| {
                let identity = self.jit_identity(symbol.name, || None, symbol.tier());
                (identity, Some(symbol.range.size()))
            }),
            FrameCode::UnnamedJit => Some((
                FunctionIdentity::of(CodeOrigin::Jit, "[JIT code without a name]"),
                None,
            )),
            FrameCode::Native { module, .. } => frame.symbol.map(|symbol| {
                let symbol = &self.tables.symbols[symbol];
                let name = symbol.name.clone();
                let identity = if modules.has_jit_code(module) {
                    FunctionIdentity {
                        tier: frame.tier.map(|tier| self.tables.tiers[tier].clone()),
                        ..FunctionIdentity::of(CodeOrigin::Jit, name)
                    }
                } else {
                    FunctionIdentity {
                        module: Some(modules.path(module)),
                        ..FunctionIdentity::of(CodeOrigin::Native, name)
                    }
                };
                (identity, symbol.size)
            }),
            FrameCode::Module(module) => {
                let mut identity = FunctionIdentity::of(CodeOrigin::Module, modules.name(module));
                identity.module = Some(modules.path(module));
                Some((identity, None))
            }
            FrameCode::Kernel(symbol) => self.symbols.kernel.name(symbol).map(|name| {
                (
                    FunctionIdentity::of(CodeOrigin::Kernel, printable(name.as_bytes())),
                    None,
                )
            }),
            FrameCode::KernelModule(module) => {
                let name = module.map_or_else(|| "[kernel]".to_owned(), |module| modules.name(module));
                Some((FunctionIdentity::of(CodeOrigin::Kernel, name), None))
            }
            FrameCode::Unknown => None,
        };
        found.unwrap_or_else(|| (FunctionIdentity::of(CodeOrigin::Unknown, "[unknown]"), None))
    }

    /// Returns the identity of JIT code that the runtime calls `recorded`: with the same name as in the objects. `declared`
    /// returns the function's name and location beside that name.
    fn jit_identity<'p>(
        &self,
        recorded: &'a [u8],
        declared: impl FnOnce() -> Option<NameParts<'p>>,
        tier: Option<&[u8]>,
    ) -> FunctionIdentity {
        let name = self.names_and_lines.name(recorded);
        let styled = self.style.apply_declared(name.clone(), declared, tier);
        let mut identity = FunctionIdentity::of(CodeOrigin::Jit, printable(&styled));
        identity.tier = tier.map(printable);
        identity.set_location(&name);
        identity
    }

    /// Returns the identity of a function of a runtime's file, and its size in bytes; `None` if its part of the file is gone.
    fn identity_of_function(&self, id: FunctionId) -> Option<(FunctionIdentity, Option<u64>)> {
        let files = &self.recording.runtime_files.used;
        let recorded = function_of(files, id)?;
        let declared = || recorded.declaration();
        let mut identity = self.jit_identity(recorded.name, declared, recorded.tier());
        identity.runtime = self.runtimes[id.file];
        if identity.file.is_none()
            && let Some(info) = recorded.sources().info
            && let Some(function) = info.functions.first()
            && let Some(file) = function.file.and_then(|file| info.files.get(file as usize))
        {
            identity.file = Some(printable(&file.path));
            identity.line = Some(function.line).filter(|&line| line > 0);
        }
        Some((identity, Some(recorded.range.size())))
    }
}
