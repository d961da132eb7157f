//! Functions of the frames in a call tree: their names, and the samples in each.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;

use jitdump::names::NameParts;
use jitdump::{names, printable};

use crate::code::timeline::{FileIndex, FunctionId};
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::frames::attribution::call_tree::{Node, NodeIndex, Weight};
use crate::frames::attribution::frame::Frame;
use crate::frames::attribution::walk::Symbols;
use crate::frames::source_files::v8_functions::V8Functions;
use crate::load::{Recording, UsedFile, function_of, runtime_name, symbol_of};
use crate::results::name_style::NameStyle;
use crate::results::summary::event_counts::EventCounts;
use crate::results::summary::profile::{FunctionKind, FunctionProfile};

/// Number of callers listed for each function.
const CALLERS: usize = 3;

table_index! {
    /// Index of a function in the summary.
    FunctionIndex
}

/// Functions of a call tree, and the function of each node.
#[derive(Debug)]
pub struct Functions {
    /// All functions, those with most samples of their own first.
    pub all: IndexedTable<FunctionIndex, FunctionProfile>,
    /// Index of the function of each node.
    pub of_nodes: IndexedTable<NodeIndex, FunctionIndex>,
    /// Number of samples of each node and all below it.
    totals: IndexedTable<NodeIndex, u64>,
}

/// Samples of one event in a function.
#[derive(Clone, Copy, Default)]
struct FunctionSamples {
    /// In its own code.
    own: Weight,
    /// Number of those in it and in functions that it calls.
    total: u64,
}

/// What functions that are counted together have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Identity {
    kind: FunctionKind,
    name: String,
    tier: Option<String>,
    module: Option<String>,
    runtime: Option<&'static str>,
    file: Option<String>,
    line: Option<u32>,
}

impl Functions {
    /// Names the frames of a tree and adds up their samples. `events` is the number of events.
    pub fn new(
        recording: &Recording<'_>,
        symbols: &Symbols<'_>,
        v8_functions: &V8Functions<'_>,
        names: &NameStyle,
        nodes: &IndexedTable<NodeIndex, Node>,
        events: usize,
    ) -> Self {
        let namer = Namer {
            recording,
            symbols,
            v8_functions,
            names,
            runtimes: recording.sources.used.map(|used| runtime_of(recording, used)),
        };
        let frames: HashSet<Frame> = nodes.iter().map(|node| node.frame).collect();
        let named: BTreeMap<Frame, (Identity, Option<u64>)> = frames
            .into_iter()
            .map(|frame| (frame, namer.name(frame)))
            .collect();
        let mut groups: BTreeMap<&Identity, Vec<Frame>> = BTreeMap::new();
        for (&frame, (identity, _)) in &named {
            groups.entry(identity).or_default().push(frame);
        }
        let mut of_frames: HashMap<Frame, FunctionIndex> = HashMap::default();
        let mut all = IndexedTable::default();
        for (identity, frames) in groups {
            let sizes = frames.iter().filter_map(|frame| named.get(frame)?.1);
            let function = all.push(identity.profile(frames.len() as u64, sizes.max(), events));
            of_frames.extend(frames.into_iter().map(|frame| (frame, function)));
        }
        let mut functions = Self {
            of_nodes: nodes
                .iter()
                .filter_map(|node| of_frames.get(&node.frame).copied())
                .collect(),
            totals: totals(nodes),
            all,
        };
        functions.count(nodes);
        functions.sort();
        functions
    }

    /// Adds up the samples of each function.
    fn count(&mut self, nodes: &IndexedTable<NodeIndex, Node>) {
        let mut callers: HashMap<(FunctionIndex, FunctionIndex), u64> = HashMap::default();
        let mut samples: HashMap<(FunctionIndex, u32), FunctionSamples> = HashMap::default();
        for index in outermost(nodes, &self.of_nodes) {
            let (node, function, total) = (&nodes[index], self.of_nodes[index], self.totals[index]);
            let of_event = samples.entry((function, node.event)).or_default();
            of_event.total = of_event.total.saturating_add(total);
            if let Some(caller) = node.caller.filter(|_| node.event == 0) {
                *callers.entry((function, self.of_nodes[caller])).or_default() += total;
            }
        }
        for (index, node) in nodes.enumerate().filter(|(_, node)| node.own.samples > 0) {
            let key = (self.of_nodes[index], node.event);
            samples.entry(key).or_default().own.add(node.own);
        }
        let mut samples: Vec<_> = samples.into_iter().collect();
        samples.sort_unstable_by_key(|&(key, _)| key);
        for ((function, event), FunctionSamples { own, total }) in samples {
            let function = &mut self.all[function];
            function.own.add(event, own.samples);
            function.total.add(event, total);
            function.self_period.add(event, own.period);
        }
        let mut callers: Vec<_> = callers.into_iter().filter(|&(_, samples)| samples > 0).collect();
        callers.sort_unstable_by_key(|&((function, caller), samples)| (function, Reverse(samples), caller));
        for ((function, caller), samples) in callers {
            let callers = &mut self.all[function].callers;
            if callers.len() < CALLERS {
                callers.push((caller.0, samples));
            }
        }
    }

    /// Sorts the functions by their own samples, then by all.
    fn sort(&mut self) {
        let mut renumbered = self.all.map(|_| FunctionIndex(0));
        let indices: Vec<FunctionIndex> = self.all.enumerate().map(|(index, _)| index).collect();
        let mut sorted: Vec<_> = indices.into_iter().zip(mem::take(&mut self.all)).collect();
        sorted.sort_by(|(_, one), (_, other)| (&other.own, &other.total).cmp(&(&one.own, &one.total)));
        for (old, function) in sorted {
            renumbered[old] = self.all.push(function);
        }
        for function in &mut self.of_nodes {
            *function = renumbered[*function];
        }
        for function in &mut self.all {
            for (caller, _) in &mut function.callers {
                *caller = renumbered[FunctionIndex(*caller)].0;
            }
        }
    }
}

impl Identity {
    fn of(kind: FunctionKind, name: impl Into<String>) -> Self {
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

    fn profile(&self, functions: u64, size: Option<u64>, events: usize) -> FunctionProfile {
        let this = self.clone();
        FunctionProfile {
            name: this.name,
            kind: this.kind,
            runtime: this.runtime.map(Cow::Borrowed),
            file: this.file,
            line: this.line,
            tier: this.tier,
            module: this.module,
            functions,
            size,
            own: EventCounts::zero(events),
            total: EventCounts::zero(events),
            self_period: EventCounts::zero(events),
            callers: Vec::new(),
        }
    }
}

/// Returns the runtime that wrote a file.
fn runtime_of(recording: &Recording<'_>, used: &UsedFile<'_>) -> Option<&'static str> {
    let mut pids = used.found.pids.iter();
    pids.find_map(|&pid| runtime_name(&recording.profile, pid))
}

/// Names frames.
struct Namer<'a> {
    recording: &'a Recording<'a>,
    symbols: &'a Symbols<'a>,
    v8_functions: &'a V8Functions<'a>,
    /// Form of the names of JIT code.
    names: &'a NameStyle,
    /// Runtime of each file with code.
    runtimes: IndexedTable<FileIndex, Option<&'static str>>,
}

impl<'a> Namer<'a> {
    /// Returns the identity of the function of a frame, and its size in bytes.
    fn name(&self, frame: Frame) -> (Identity, Option<u64>) {
        let modules = self.symbols.modules;
        let found = match frame {
            Frame::Function(id) => self.jit_function(id),
            Frame::PerfMapSymbol(id) => symbol_of(&self.recording.maps, id).map(|symbol| {
                let identity = self.jit_identity(symbol.name, || None, symbol.tier());
                (identity, Some(symbol.range.size()))
            }),
            Frame::UnnamedJit => Some((Identity::of(FunctionKind::Jit, "[JIT code without a name]"), None)),
            Frame::Native { module, symbol } => {
                self.symbols.native.symbol(module, symbol).map(|(name, size)| {
                    let mut identity = Identity::of(FunctionKind::Native, printable(name.as_bytes()));
                    identity.module = Some(modules.path(module));
                    (identity, Some(size))
                })
            }
            Frame::Module(module) => {
                let mut identity = Identity::of(FunctionKind::Module, modules.name(module));
                identity.module = Some(modules.path(module));
                Some((identity, None))
            }
            Frame::Kernel(symbol) => self.symbols.kernel.name(symbol).map(|name| {
                (
                    Identity::of(FunctionKind::Kernel, printable(name.as_bytes())),
                    None,
                )
            }),
            Frame::KernelModule(module) => {
                let name = module.map_or_else(|| "[kernel]".to_owned(), |module| modules.name(module));
                Some((Identity::of(FunctionKind::Kernel, name), None))
            }
            Frame::Unknown => None,
        };
        found.unwrap_or_else(|| (Identity::of(FunctionKind::Unknown, "[unknown]"), None))
    }

    /// Returns the identity of JIT code that the runtime calls `recorded`: with the same name as in the objects. `declared`
    /// returns the function's name and location beside that name.
    fn jit_identity<'p>(
        &self,
        recorded: &'a [u8],
        declared: impl FnOnce() -> Option<NameParts<'p>>,
        tier: Option<&[u8]>,
    ) -> Identity {
        let name = self.v8_functions.name(recorded);
        let styled = self.names.apply_declared(name.clone(), declared, tier);
        let mut identity = Identity::of(FunctionKind::Jit, printable(&styled));
        identity.tier = tier.map(printable);
        identity.set_location(&name);
        identity
    }

    fn jit_function(&self, id: FunctionId) -> Option<(Identity, Option<u64>)> {
        let files = &self.recording.sources.used;
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

impl Identity {
    /// Sets the source location that a name contains, if it does.
    fn set_location(&mut self, name: &[u8]) {
        if let Some(location) = names::source_locations(name).first() {
            self.file = Some(printable(location.path));
            self.line = Some(location.line).filter(|&line| line > 0);
        }
    }
}

/// Returns the number of samples of each node and all below it.
fn totals(nodes: &IndexedTable<NodeIndex, Node>) -> IndexedTable<NodeIndex, u64> {
    let mut totals = nodes.map(|node| node.own.samples);
    for (index, node) in nodes.enumerate().rev() {
        if let Some(caller) = node.caller {
            totals[caller] = totals[caller].saturating_add(totals[index]);
        }
    }
    totals
}

/// Returns the nodes whose function is not among their callers already: recursive functions count once.
fn outermost(
    nodes: &IndexedTable<NodeIndex, Node>,
    of_nodes: &IndexedTable<NodeIndex, FunctionIndex>,
) -> Vec<NodeIndex> {
    // The last callee of each node, and the callee before each one.
    let mut last_callees = nodes.map(|_| None);
    let mut before = nodes.map(|_| None);
    let mut pending = Vec::new();
    for (index, node) in nodes.enumerate() {
        match node.caller {
            Some(caller) => before[index] = last_callees[caller].replace(index),
            None => pending.push((index, false)),
        }
    }
    // Number of times that each function is among the callers of the current node.
    let mut active: HashMap<FunctionIndex, u32> = HashMap::default();
    let mut found = Vec::new();
    while let Some((index, is_done)) = pending.pop() {
        let depth = active.entry(of_nodes[index]).or_default();
        if is_done {
            *depth -= 1;
            continue;
        }
        if *depth == 0 {
            found.push(index);
        }
        *depth += 1;
        pending.push((index, true));
        let callees = std::iter::successors(last_callees[index], |&callee| before[callee]);
        pending.extend(callees.map(|callee| (callee, false)));
    }
    found
}
