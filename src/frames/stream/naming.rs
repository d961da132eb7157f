//! Names, lines and inlined calls of the places in stacks.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jitdump::debug_info::{DebugInfo, SourceFile};
use jitdump::{Address, AddressRange, names, printable};

use crate::bytes::hex_digits;
use crate::code::perf_map_symbols::SymbolId;
use crate::code::timeline::FunctionId;
use crate::collections::hash::{HashMap, HashSet};
use crate::elf::symbols::DecodedNames;
use crate::frames::native::modules;
use crate::frames::source_files::names_and_lines::NamesAndLines;
use crate::frames::source_files::{SourceName, shown_path, text_to_write};
use crate::frames::stream::frame::{FrameAddress, FrameCode};
use crate::frames::stream::kept_paths::OriginalPaths;
use crate::frames::stream::kinds::{self, Kind};
use crate::frames::stream::lines::{DebugInfoWithFiles, FunctionLines, NOBODY, RecordedLines, chains};
use crate::frames::stream::native_lines::NativeLines;
use crate::frames::stream::tables::{
    File, Frame, Line, Location, NamedFunction, NamedFunctionIndex, NamedModule, NamedModuleIndex,
    SourceFileIndex, Symbol, SymbolIndex, Tables, TierIndex,
};
use crate::frames::stream::walk::FrameSymbols;
use crate::load::{Recording, function_of, symbol_of};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::name_style::{ANONYMOUS, NameStyle};

/// Names places. There is a frame for each, in the same order.
pub struct Namer<'a> {
    /// The profile with the code of its processes.
    pub recording: &'a Recording<'a>,
    pub(super) symbols: &'a FrameSymbols<'a>,
    /// Names and lines of functions.
    pub names_and_lines: &'a NamesAndLines<'a>,
    track: Option<&'a [u8]>,
    pub(super) native_lines: Option<&'a NativeLines<'a>>,
    /// What was named so far.
    pub tables: Tables,
    /// The symbol of each code.
    pub(super) codes: HashMap<FrameCode, SymbolIndex>,
    functions: HashMap<NamedFunction, NamedFunctionIndex>,
    files: HashMap<(u32, Vec<u8>), SourceFileIndex>,
    modules: HashMap<modules::ModuleIndex, NamedModuleIndex>,
    tiers: HashMap<Vec<u8>, TierIndex>,
    /// Names of native functions that are inlined: many functions contain the same.
    inlined: DecodedNames,
    /// Paths of copied source files, by directory of objects.
    originals: HashMap<PathBuf, OriginalPaths>,
}

/// What the places of one function have in common.
struct Named<'a> {
    kind: Kind,
    module: Option<NamedModuleIndex>,
    symbol: Option<SymbolIndex>,
    tier: Option<TierIndex>,
    /// The function that has the symbol.
    function: NamedFunctionIndex,
    /// Address of offset 0.
    start: u64,
    /// Module whose file offsets are to be converted to addresses.
    linked: Option<modules::ModuleIndex>,
    lines: Option<FunctionLines<'a>>,
}

impl Named<'_> {
    /// What has neither a symbol nor lines.
    fn of(kind: Kind, module: Option<NamedModuleIndex>, function: NamedFunctionIndex) -> Self {
        Self {
            kind,
            module,
            symbol: None,
            tier: None,
            function,
            start: 0,
            linked: None,
            lines: None,
        }
    }
}

impl<'a> Namer<'a> {
    /// Starts. Lines are those of `track` for functions that have it, and of `native_lines` for native code.
    pub fn new(
        recording: &'a Recording<'a>,
        symbols: &'a FrameSymbols<'a>,
        names_and_lines: &'a NamesAndLines<'a>,
        track: Option<&'a [u8]>,
        native_lines: Option<&'a NativeLines<'a>>,
    ) -> Self {
        Self {
            recording,
            symbols,
            names_and_lines,
            track,
            native_lines,
            tables: Tables::default(),
            codes: HashMap::default(),
            functions: HashMap::default(),
            files: HashMap::default(),
            modules: HashMap::default(),
            tiers: HashMap::default(),
            inlined: DecodedNames::default(),
            originals: HashMap::default(),
        }
    }

    /// Adds a frame for each place. They must be sorted, so that those of a module and of a function follow each other.
    pub fn add_all(&mut self, places: &[FrameAddress]) {
        for of_module in places.chunk_by(|one, next| one.module() == next.module()) {
            let functions = of_module.chunk_by(|one, next| one.code == next.code);
            let module = of_module.first().and_then(FrameAddress::module);
            let lines = module.zip(self.native_lines);
            let read = lines.and_then(|(module, lines)| {
                let ranges = functions.clone().filter_map(|of| {
                    let symbol = of.first()?.native_symbol()?;
                    Some((self.symbols.native.range(module, symbol)?, symbol))
                });
                // Symbols of a debug file come before those of the module's own file.
                let mut ranges: Vec<(AddressRange, u32)> = ranges.collect();
                ranges.sort_by_key(|(range, _)| range.start);
                let (ranges, symbols): (Vec<AddressRange>, Vec<u32>) = ranges.into_iter().unzip();
                Some((lines, symbols, lines.read(module, ranges)?))
            });
            let mut infos: HashMap<u32, RecordedLines<'_>> = match &read {
                Some((lines, symbols, read)) => symbols.iter().copied().zip(lines.functions(read)).collect(),
                None => HashMap::default(),
            };
            for of_function in functions {
                let Some(first) = of_function.first() else {
                    continue;
                };
                let native = first.native_symbol().and_then(|symbol| infos.remove(&symbol));
                let offsets: Vec<u64> = of_function.iter().map(|place| place.offset).collect();
                for frame in self.frames(first.code, &offsets, native) {
                    self.tables.frames.push(frame);
                }
            }
        }
    }

    /// Returns the frames at sorted offsets of one function, as in [`FrameAddress::offset`]. `native` are its lines if it is
    /// native code.
    fn frames<'l>(
        &mut self,
        code: FrameCode,
        offsets: &[u64],
        native: Option<RecordedLines<'l>>,
    ) -> Vec<Frame>
    where
        'a: 'l,
    {
        let named = self.name(code, native);
        let addresses = offsets.iter().map(|&offset| self.address(&named, offset));
        self.frames_at(code, &named, addresses.collect())
    }

    /// Returns the functions and lines at sorted offsets in the code of one function. `native` are its lines if it is native
    /// code.
    pub(super) fn lines_in<'l>(
        &mut self,
        code: FrameCode,
        offsets: &[u64],
        native: Option<RecordedLines<'l>>,
    ) -> Vec<Arc<[Line]>>
    where
        'a: 'l,
    {
        let named = self.name(code, native);
        let addresses = offsets.iter().map(|&offset| named.start.saturating_add(offset));
        let frames = self.frames_at(code, &named, addresses.collect()).into_iter();
        frames.map(|frame| frame.lines).collect()
    }

    /// Returns the frames at sorted addresses in one function.
    fn frames_at(&self, code: FrameCode, named: &Named<'_>, addresses: Vec<u64>) -> Vec<Frame> {
        let offset = |&address: &u64| u32::try_from(address.saturating_sub(named.start)).unwrap_or(u32::MAX);
        let lines = named.lines.as_ref();
        let originals = chains(lines.map(|lines| &lines.places), addresses.iter().map(offset));
        let generated = lines.and_then(|lines| lines.generated.as_ref());
        let generated = chains(generated, addresses.iter().map(offset));
        // Crafted files could have many addresses at one line, with many inlined calls.
        let mut known: HashSet<Arc<[Line]>> = HashSet::default();
        let mut frames = Vec::with_capacity(addresses.len());
        for ((&address, original), generated) in addresses.iter().zip(originals).zip(generated) {
            let read = lines.and_then(|lines| lines.of_chain(&original, &generated));
            let own = read.unwrap_or_else(|| self.without_lines(named.function));
            let shared = match known.get(&own) {
                Some(known) => known.clone(),
                None => {
                    known.insert(own.clone());
                    own
                }
            };
            frames.push(Frame {
                code,
                kind: named.kind,
                module: named.module,
                address,
                symbol: named.symbol,
                tier: named.tier,
                lines: shared,
            });
        }
        frames
    }

    /// Returns the address of an offset in a function.
    fn address(&self, named: &Named<'_>, offset: u64) -> u64 {
        match named.linked {
            Some(module) => {
                let linked = self.symbols.native.linked_address(module, offset);
                linked.map_or(offset, |Address(address)| address)
            }
            None => named.start.saturating_add(offset),
        }
    }

    /// Returns the only line of code whose lines are not known: that of its function.
    fn without_lines(&self, function: NamedFunctionIndex) -> Arc<[Line]> {
        let declared = &self.tables.functions[function];
        let generated = declared.generated.map(|generated| Location {
            line: 0,
            column: 0,
            ..generated
        });
        Arc::new([Line {
            function,
            file: declared.file,
            line: 0,
            column: 0,
            generated,
        }])
    }

    /// Names some code. The lines of native code were read before.
    fn name<'l>(&mut self, code: FrameCode, native: Option<RecordedLines<'l>>) -> Named<'l>
    where
        'a: 'l,
    {
        let found = match code {
            FrameCode::Function(id) => self.jit_function(code, id),
            FrameCode::PerfMapSymbol(id) => self.named_perf_map_symbol(code, id),
            FrameCode::UnnamedJit => {
                Some(self.unnamed(Kind::Language, "[JIT code without a name]".to_owned(), None))
            }
            FrameCode::Native { module, symbol } => self.native(code, module, symbol, native),
            FrameCode::Module(module) => {
                let name = self.symbols.modules.name(module);
                let own = self.index_of_module(module);
                let named = self.unnamed(Kind::Native, name, Some(own));
                Some(Named {
                    linked: Some(module),
                    ..named
                })
            }
            FrameCode::Kernel(symbol) => self.named_kernel_symbol(code, symbol),
            FrameCode::KernelModule(module) => {
                let name = module.map_or("[kernel]".to_owned(), |module| self.symbols.modules.name(module));
                let module = module.map(|module| self.index_of_module(module));
                Some(self.unnamed(Kind::Kernel, name, module))
            }
            FrameCode::Unknown => None,
        };
        found.unwrap_or_else(|| self.unnamed(Kind::Unknown, "[unknown]".to_owned(), None))
    }

    /// Code without a symbol.
    fn unnamed(&mut self, kind: Kind, name: String, module: Option<NamedModuleIndex>) -> Named<'a> {
        let function = self.index_of_function(NamedFunction {
            is_named: false,
            ..NamedFunction::new(kind, name, module)
        });
        Named::of(kind, module, function)
    }

    /// Names a function of a runtime's file, with its lines; `None` if it cannot be read.
    fn jit_function(&mut self, code: FrameCode, id: FunctionId) -> Option<Named<'a>> {
        let files = &self.recording.runtime_files.used;
        let jitted = function_of(files, id)?;
        let used = &files[id.file];
        let owner = used.found.file.origin().owner;
        let name = self.names_and_lines.name(jitted.name);
        let declared = || jitted.declaration();
        let plain = NameStyle::Plain.apply_declared(name.clone(), declared, jitted.tier());
        let (info, _) = self.names_and_lines.lines_of(id, &jitted, self.track);
        let has_lines = info.is_some();
        let info = info.or_else(|| self.names_and_lines.declaration(jitted.name));
        let is_mapped = |info: &DebugInfo<'_>| info.files.iter().any(|file| file.script.is_some());
        let generated = info.as_ref().filter(|info| is_mapped(info)).and_then(|_| {
            if has_lines {
                self.names_and_lines.generated_lines_of(id, &jitted).0
            } else {
                names::declaration(jitted.name)
            }
        });
        let mut function = self.declared(jitted.name, &name, &plain, owner);
        let symbol = self.add_symbol(
            code,
            printable(&name),
            jitted.range.start.0,
            Some(jitted.range.size()),
        );
        let recorded = info.map(|info| RecordedLines {
            info,
            generated,
            owner,
        });
        let lines = recorded.map(|recorded| self.add_lines(recorded, &mut function));
        let tier = jitted.tier().map(|tier| self.index_of_tier(tier));
        Some(Named {
            kind: function.kind,
            module: None,
            symbol: Some(symbol),
            tier,
            function: match &lines {
                Some(lines) => *lines.functions.first()?,
                None => self.index_of_function(function),
            },
            start: jitted.range.start.0,
            linked: None,
            lines,
        })
    }

    /// Names code of a perf map.
    fn named_perf_map_symbol(&mut self, code: FrameCode, id: SymbolId) -> Option<Named<'a>> {
        let symbol = symbol_of(&self.recording.maps, id)?;
        let name = self.names_and_lines.name(symbol.name);
        let plain = NameStyle::Plain.apply_declared(name.clone(), || None, symbol.tier());
        let function = self.declared(symbol.name, &name, &plain, NOBODY);
        let kind = function.kind;
        let function = self.index_of_function(function);
        let tier = symbol.tier().map(|tier| self.index_of_tier(tier));
        let symbol = self.add_symbol(
            code,
            printable(&name),
            symbol.range.start.0,
            Some(symbol.range.size()),
        );
        Some(Named {
            symbol: Some(symbol),
            tier,
            ..Named::of(kind, None, function)
        })
    }

    /// Returns a function of a runtime, with the location in the name of its code, and in its recorded name if that is another.
    fn declared(&mut self, recorded: &[u8], name: &[u8], plain: &[u8], owner: u32) -> NamedFunction {
        let location = self.location(name, owner);
        let is_mapped = name != recorded;
        let generated = is_mapped.then(|| self.location(recorded, owner));
        NamedFunction {
            file: location.map(|location| location.file),
            line: location.map_or(0, |location| location.line),
            column: location.map_or(0, |location| location.column),
            generated: generated.flatten(),
            ..NamedFunction::new(kinds::of_jit(recorded), printable(plain), None)
        }
    }

    /// Returns the location in a name.
    fn location(&mut self, name: &[u8], owner: u32) -> Option<Location> {
        let location = names::source_locations(name).first().copied()?;
        Some(Location {
            file: self.index_of_file(&SourceFile::from(location.path), owner),
            line: location.line,
            column: location.column,
        })
    }

    /// Adds the files of debug information.
    fn places<'l>(&mut self, info: DebugInfo<'l>, owner: u32) -> DebugInfoWithFiles<'l> {
        let files = info.files.iter();
        let files = files.map(|file| (!file.path.is_empty()).then(|| self.index_of_file(file, owner)));
        DebugInfoWithFiles {
            files: files.collect(),
            info,
        }
    }

    /// Adds the functions and files of debug information. `own` is the function itself, which gets its place from there if its
    /// name has none.
    fn add_lines<'l>(&mut self, recorded: RecordedLines<'l>, own: &mut NamedFunction) -> FunctionLines<'l> {
        let places = self.places(recorded.info, recorded.owner);
        let generated = recorded.generated.map(|info| self.places(info, recorded.owner));
        let is_native = own.module.is_some();
        let inlined = &mut self.inlined;
        let functions = places.info.functions.iter().enumerate().map(|(at, function)| {
            let file = places.file(function.file);
            let generated = generated.as_ref().and_then(|generated| generated.declaration(at));
            if at == 0 {
                if own.file.is_none() {
                    (own.file, own.line, own.column) = (file, function.line, function.column);
                }
                own.generated = own.generated.or(generated);
                return own.clone();
            }
            let location = function
                .file
                .and_then(|file| places.info.files.get(file as usize));
            let location = location.map(|file| names::SourceLocation {
                path: &file.path,
                line: function.line,
                column: function.column,
            });
            let name = if is_native {
                inlined.decoded(function.name)
            } else {
                printable(&NameStyle::Plain.apply_to_inlined(function.name, location))
            };
            NamedFunction {
                kind: own.kind,
                is_named: !name.is_empty(),
                name: if name.is_empty() {
                    ANONYMOUS.to_owned()
                } else {
                    name
                },
                module: own.module,
                file,
                line: function.line,
                column: function.column,
                generated,
            }
        });
        let functions: Vec<NamedFunction> = functions.collect();
        let functions = functions
            .into_iter()
            .map(|function| self.index_of_function(function));
        FunctionLines {
            functions: functions.collect(),
            places,
            generated,
        }
    }

    /// Names a symbol of an executable or library, with its lines, if any were `found`.
    fn native<'l>(
        &mut self,
        code: FrameCode,
        module: modules::ModuleIndex,
        symbol: u32,
        mut found: Option<RecordedLines<'l>>,
    ) -> Option<Named<'l>> {
        let native = &self.symbols.native;
        let (name, range) = native.symbol(module, symbol)?;
        let is_jit = self.symbols.modules.has_jit_code(module);
        let own = self.index_of_module(module);
        let start = range.start.0;
        let symbol = self.add_symbol(code, printable(name.as_bytes()), start, Some(range.size()));
        let (mut function, tier) = if is_jit {
            let name = name.as_bytes();
            let tier = names::tier(name).map(str::as_bytes);
            let plain = NameStyle::Plain.apply_declared(name.into(), || None, tier);
            let mut function = self.declared(name, name, &plain, NOBODY);
            if let Some(RecordedLines { info, .. }) = &mut found {
                self.restore_paths(module, info);
                // Options, and URLs, give lines and inlined calls another path than the name has.
                if declared_line(info) == Some(function.line) {
                    function.file = None;
                }
            }
            (function, tier.map(|tier| self.index_of_tier(tier)))
        } else {
            let (kind, name) = (kinds::of_native(&name), printable(name.as_bytes()));
            (NamedFunction::new(kind, name, Some(own)), None)
        };
        let lines = found.map(|recorded| self.add_lines(recorded, &mut function));
        Some(Named {
            kind: function.kind,
            module: Some(own),
            symbol: Some(symbol),
            tier,
            function: match &lines {
                Some(lines) => *lines.functions.first()?,
                None => self.index_of_function(function),
            },
            start,
            linked: Some(module),
            lines,
        })
    }

    /// Gives source files that were copied beside an object the paths that they had.
    fn restore_paths(&mut self, module: modules::ModuleIndex, info: &mut DebugInfo<'_>) {
        let (symbols, diagnostics) = (self.symbols, &mut self.tables.diagnostics);
        let object = Path::new(OsStr::from_bytes(&symbols.modules.all[module].path));
        let Some(objects) = object.parent() else {
            return;
        };
        for file in &mut info.files {
            if !Path::new(OsStr::from_bytes(&file.path)).starts_with(objects) {
                continue;
            }
            let originals = self.originals.entry(objects.to_owned()).or_insert_with(|| {
                let read = symbols.kept_paths.of(objects);
                if read.unread > 0 {
                    diagnostics.push(Diagnostic::new(Issue::SourceListUnread).times(read.unread));
                }
                read
            });
            if let Some(original) = originals.of(&file.path) {
                file.path = Cow::Owned(original.as_bytes().to_vec());
            }
        }
    }

    /// Names code of the kernel.
    fn named_kernel_symbol(&mut self, code: FrameCode, symbol: u32) -> Option<Named<'a>> {
        let name = printable(self.symbols.kernel.name(symbol)?.as_bytes());
        let start = self.symbols.kernel.start(symbol)?;
        let module = self.symbols.modules.in_kernel(start);
        let module = module.map(|module| self.index_of_module(module));
        let kind = kinds::of_kernel(&name);
        let symbol = self.add_symbol(code, name.clone(), start.0, None);
        let function = self.index_of_function(NamedFunction::new(kind, name, module));
        Some(Named {
            symbol: Some(symbol),
            ..Named::of(kind, module, function)
        })
    }

    /// Adds the symbol of a code, once.
    fn add_symbol(&mut self, code: FrameCode, name: String, address: u64, size: Option<u64>) -> SymbolIndex {
        let symbols = &mut self.tables.symbols;
        let symbol = Symbol { name, address, size };
        *self.codes.entry(code).or_insert_with(|| symbols.push(symbol))
    }

    /// Returns the index of a function, which is new if it has none yet.
    fn index_of_function(&mut self, mut function: NamedFunction) -> NamedFunctionIndex {
        // A function may be in several generated files.
        let generated = function.generated.take();
        if let Some(&known) = self.functions.get(&function) {
            return known;
        }
        let index = self.tables.functions.push(NamedFunction {
            generated,
            ..function.clone()
        });
        self.functions.insert(function, index);
        index
    }

    /// Returns the index of a source file of `owner`, which is added if it is new. The first text and script of a path stay.
    fn index_of_file(&mut self, file: &SourceFile<'_>, owner: u32) -> SourceFileIndex {
        let text = text_to_write(file, owner);
        // The file of a script is the same, whoever names it.
        let key = (owner, file.path.to_vec());
        if let Some(&known) = self.files.get(&key) {
            let known_file = &mut self.tables.files[known];
            known_file.text = known_file.text.take().or_else(|| text.map(<[u8]>::to_vec));
            let script = known_file.name.script.take();
            known_file.name.script = script.or_else(|| file.script.as_deref().map(<[u8]>::to_vec));
            return known;
        }
        let index = self.tables.files.push(File {
            path: shown_path(&file.path),
            name: SourceName::new(owner, file),
            text: text.map(<[u8]>::to_vec),
        });
        self.files.insert(key, index);
        index
    }

    /// Returns the index of a module, which is added if it is new.
    fn index_of_module(&mut self, module: modules::ModuleIndex) -> NamedModuleIndex {
        let (all, native) = (self.symbols.modules, &self.symbols.native);
        let modules = &mut self.tables.modules;
        *self.modules.entry(module).or_insert_with(|| {
            modules.push(NamedModule {
                path: all.path(module),
                name: all.name(module),
                build_id: native.build_id(module).map(hex_digits),
                has_file: native.has_file(module),
            })
        })
    }

    fn index_of_tier(&mut self, tier: &[u8]) -> TierIndex {
        let tiers = &mut self.tables.tiers;
        let known = self.tiers.entry(tier.to_vec());
        *known.or_insert_with_key(|tier| tiers.push(printable(tier)))
    }
}

/// Returns the line of the declaration of a function, if its file is known.
fn declared_line(info: &DebugInfo<'_>) -> Option<u32> {
    let function = info.functions.first()?;
    let file = info.files.get(function.file? as usize)?;
    (!file.path.is_empty()).then_some(function.line)
}
