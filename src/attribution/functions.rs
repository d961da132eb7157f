//! Functions of the frames in a call tree: their names, and the samples in each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::attribution::call_tree::{Node, Weight};
use crate::attribution::frame::Frame;
use crate::attribution::walk::Symbols;
use crate::bytes::printable;
use crate::code::timeline::FunctionId;
use crate::hash::HashMap;
use crate::load::{Recording, function_of, symbol_of};
use crate::runtime::names;
use crate::summary::profile::{FunctionKind, FunctionProfile};
use crate::units::Pid;

/// Number of callers listed for each function.
const CALLERS: usize = 3;

/// Functions of a call tree, and the function of each node.
#[derive(Debug)]
pub struct Functions {
    /// All functions, those with most samples of their own first.
    pub all: Vec<FunctionProfile>,
    /// Index of the function of each node.
    pub of_nodes: Vec<u32>,
    /// Samples of each node and all below it.
    pub totals: Vec<Weight>,
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
        runtimes: &HashMap<Pid, &'static str>,
        nodes: &[Node],
        events: usize,
    ) -> Self {
        let namer = Namer {
            recording,
            symbols,
            runtimes,
        };
        let mut sizes: BTreeMap<Frame, Option<u64>> = nodes.iter().map(|node| (node.frame, None)).collect();
        let mut identities: HashMap<Frame, Identity> = HashMap::default();
        for (&frame, size) in &mut sizes {
            let (identity, bytes) = namer.name(frame);
            *size = bytes;
            identities.insert(frame, identity);
        }
        // Sorted by name first, so that the result does not depend on the order of a table.
        let mut groups: BTreeMap<&Identity, Vec<Frame>> = BTreeMap::new();
        for frame in sizes.keys() {
            if let Some(identity) = identities.get(frame) {
                groups.entry(identity).or_default().push(*frame);
            }
        }
        let mut of_frames: HashMap<Frame, u32> = HashMap::default();
        let mut all = Vec::with_capacity(groups.len());
        for (index, (identity, frames)) in (0u32..).zip(groups) {
            of_frames.extend(frames.iter().map(|&frame| (frame, index)));
            let size = frames
                .iter()
                .filter_map(|frame| sizes.get(frame).copied().flatten())
                .max();
            all.push(identity.profile(frames.len() as u64, size, events));
        }
        let of_nodes: Vec<u32> = nodes
            .iter()
            .filter_map(|node| of_frames.get(&node.frame).copied())
            .collect();
        let totals = totals(nodes);
        let mut functions = Self {
            all,
            of_nodes,
            totals,
        };
        functions.count(nodes);
        functions.sort();
        functions
    }

    /// Adds up the samples of each function.
    fn count(&mut self, nodes: &[Node]) {
        let mut callers: HashMap<(u32, u32), u64> = HashMap::default();
        for index in outermost(nodes, &self.of_nodes) {
            let (Some(node), Some(&function), Some(total)) =
                (nodes.get(index), self.of_nodes.get(index), self.totals.get(index))
            else {
                continue;
            };
            if let Some(function) = self.all.get_mut(function as usize) {
                add(&mut function.total, node.event, total.samples);
            }
            let caller = node.caller.and_then(|caller| self.of_nodes.get(caller as usize));
            if let Some(&caller) = caller.filter(|_| node.event == 0) {
                *callers.entry((function, caller)).or_default() += total.samples;
            }
        }
        for (node, &function) in nodes.iter().zip(&self.of_nodes) {
            if let Some(function) = self.all.get_mut(function as usize) {
                add(&mut function.own, node.event, node.own.samples);
                add(&mut function.self_period, node.event, node.own.period);
            }
        }
        let mut callers: Vec<((u32, u32), u64)> = callers.into_iter().collect();
        callers.sort_unstable_by_key(|&((function, caller), samples)| (function, Reverse(samples), caller));
        for ((function, caller), samples) in callers {
            if let Some(function) = self.all.get_mut(function as usize)
                && function.callers.len() < CALLERS
                && samples > 0
            {
                function.callers.push((caller, samples));
            }
        }
    }

    /// Sorts the functions by their own samples.
    fn sort(&mut self) {
        let key =
            |function: &FunctionProfile| (Reverse(function.own.clone()), Reverse(function.total.clone()));
        let mut order: Vec<u32> = (0u32..).take(self.all.len()).collect();
        order.sort_by_cached_key(|&index| self.all.get(index as usize).map(key));
        let mut new_index = vec![0u32; order.len()];
        for (new, &old) in (0u32..).zip(&order) {
            if let Some(index) = new_index.get_mut(old as usize) {
                *index = new;
            }
        }
        let renumber = |index: &mut u32| *index = new_index.get(*index as usize).copied().unwrap_or_default();
        self.of_nodes.iter_mut().for_each(renumber);
        for function in &mut self.all {
            function
                .callers
                .iter_mut()
                .for_each(|(caller, _)| renumber(caller));
        }
        let mut old: Vec<Option<FunctionProfile>> =
            std::mem::take(&mut self.all).into_iter().map(Some).collect();
        self.all = order
            .iter()
            .filter_map(|&index| old.get_mut(index as usize)?.take())
            .collect();
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
            runtime: this.runtime,
            file: this.file,
            line: this.line,
            tier: this.tier,
            module: this.module,
            functions,
            size,
            own: vec![0; events],
            total: vec![0; events],
            self_period: vec![0; events],
            callers: Vec::new(),
        }
    }
}

/// Names frames.
struct Namer<'a> {
    recording: &'a Recording<'a>,
    symbols: &'a Symbols<'a>,
    runtimes: &'a HashMap<Pid, &'static str>,
}

impl Namer<'_> {
    /// Returns the identity of the function of a frame, and its size in bytes.
    fn name(&self, frame: Frame) -> (Identity, Option<u64>) {
        let modules = self.symbols.modules;
        let found = match frame {
            Frame::Function(id) => self.jit_function(id),
            Frame::PerfMapSymbol(id) => symbol_of(&self.recording.maps, id).map(|symbol| {
                let mut identity = Identity::of(FunctionKind::Jit, printable(symbol.name));
                identity.tier = symbol.tier().map(printable);
                identity.set_location(symbol.name);
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
                Some((Identity::of(FunctionKind::Module, name), None))
            }
            Frame::Unknown => None,
        };
        found.unwrap_or_else(|| (Identity::of(FunctionKind::Unknown, "[unknown]"), None))
    }

    fn jit_function(&self, id: FunctionId) -> Option<(Identity, Option<u64>)> {
        let files = &self.recording.sources.used;
        let view = function_of(files, id)?;
        let used = files.get(id.file as usize)?;
        let mut identity = Identity::of(FunctionKind::Jit, printable(view.name));
        identity.tier = view.tier().map(printable);
        identity.runtime = used
            .found
            .pids
            .iter()
            .find_map(|pid| self.runtimes.get(pid).copied());
        identity.set_location(view.name);
        if identity.file.is_none()
            && let Some(info) = used.code.sources(&view).info
            && let Some(function) = info.functions.first()
            && let Some(file) = function.file.and_then(|file| info.files.get(file as usize))
        {
            identity.file = Some(printable(&file.path));
            identity.line = Some(function.line).filter(|&line| line > 0);
        }
        Some((identity, Some(view.range.size())))
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

fn add(counts: &mut [u64], event: u32, samples: u64) {
    if let Some(count) = counts.get_mut(event as usize) {
        *count = count.saturating_add(samples);
    }
}

/// Returns the samples of each node and all below it.
fn totals(nodes: &[Node]) -> Vec<Weight> {
    let mut totals: Vec<Weight> = nodes.iter().map(|node| node.own).collect();
    for (index, node) in nodes.iter().enumerate().rev() {
        let below = totals.get(index).copied().unwrap_or_default();
        let caller = node.caller.and_then(|caller| totals.get_mut(caller as usize));
        if let Some(caller) = caller {
            caller.add(below);
        }
    }
    totals
}

/// Returns the indices of the nodes whose function is not in their callers already: recursive functions count once.
fn outermost(nodes: &[Node], of_nodes: &[u32]) -> Vec<usize> {
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    let mut pending: Vec<(u32, bool)> = Vec::new();
    for (index, node) in (0u32..).zip(nodes) {
        match node.caller.and_then(|caller| children.get_mut(caller as usize)) {
            Some(children) => children.push(index),
            None => pending.push((index, false)),
        }
    }
    let mut active: HashMap<(u32, u32), u32> = HashMap::default();
    let mut found = Vec::new();
    while let Some((index, is_done)) = pending.pop() {
        let at = index as usize;
        let (Some(node), Some(&function)) = (nodes.get(at), of_nodes.get(at)) else {
            continue;
        };
        let depth = active.entry((node.event, function)).or_default();
        if is_done {
            *depth -= 1;
            continue;
        }
        if *depth == 0 {
            found.push(at);
        }
        *depth += 1;
        pending.push((index, true));
        pending.extend(
            children
                .get(at)
                .into_iter()
                .flatten()
                .map(|&child| (child, false)),
        );
    }
    found.sort_unstable();
    found
}
