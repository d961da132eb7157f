//! The walk over all samples that builds the call tree.

use crate::attribution::call_tree::{CallTree, Weight};
use crate::attribution::frame::Frame;
use crate::attribution::kernel_symbols::KernelSymbols;
use crate::code::process::SpaceId;
use crate::code::profile_index::TimeMarks;
use crate::code::recent::Recent;
use crate::code::samples::{Located, SampleFields, SampleVisitor};
use crate::code::selection::{SampledCode, Selector};
use crate::code::timeline::Lookup;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::index_of;
use crate::native::modules::Modules;
use crate::native::symbols::NativeSymbols;
use crate::perf::record;
use crate::perf::sample::ChainEntry;
use crate::units::{Address, Pid, Tid, Time};

/// Everything that names the frames of samples.
#[derive(Debug)]
pub struct Symbols<'a> {
    /// JIT code.
    pub selector: &'a Selector<'a>,
    /// Mapped modules.
    pub modules: &'a Modules,
    /// Symbols of the modules.
    pub native: &'a NativeSymbols<'a>,
    /// Symbols of the kernel.
    pub kernel: &'a KernelSymbols,
}

/// Samples by stack, and by event and thread.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Samples by stack.
    pub tree: CallTree,
    /// Number of samples by thread and index of the event.
    pub threads: HashMap<(Option<Pid>, Option<Tid>, u32), u64>,
}

impl Counts {
    fn merge(&mut self, later: Self) {
        self.tree.merge(&later.tree);
        for (key, samples) in later.threads {
            *self.threads.entry(key).or_default() += samples;
        }
    }
}

impl Symbols<'_> {
    /// Counts all samples.
    pub fn count(&self, marks: &TimeMarks, end: u64) -> Counts {
        let mut counts = Counts::default();
        let start = || Walk {
            symbols: self,
            counts: Counts::default(),
            recent: Recent::default(),
            stack: Vec::new(),
        };
        let merge = |found| counts.merge(found);
        self.selector.samples().visit(marks, end, start, merge, |_| ());
        counts
    }
}

/// State while reading one chunk of the records.
struct Walk<'a> {
    symbols: &'a Symbols<'a>,
    counts: Counts,
    recent: Recent,
    /// Frames of the current sample, from the sampled function to the outermost.
    stack: Vec<Frame>,
}

/// Part of the machine that an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Kernel,
    User,
    /// A guest or the hypervisor.
    Other,
}

impl Mode {
    /// Mode in a record's header.
    fn of_record(cpu_mode: u16) -> Self {
        match cpu_mode {
            record::MISC_KERNEL => Self::Kernel,
            record::MISC_USER => Self::User,
            _ => Self::Other,
        }
    }

    /// Mode that a marker in a call chain starts (`enum perf_callchain_context`).
    fn of_marker(marker: u64) -> Self {
        const KERNEL: u64 = -128i64 as u64;
        const USER: u64 = -512i64 as u64;
        match marker {
            KERNEL => Self::Kernel,
            USER => Self::User,
            _ => Self::Other,
        }
    }
}

impl SampleVisitor for Walk<'_> {
    type Found = Counts;

    fn finish(self) -> Counts {
        self.counts
    }

    fn sample(&mut self, located: &Located<SampleFields<'_>>) {
        let SampleFields { record, sample } = &located.content;
        let profile = self.symbols.selector.profile;
        let event = profile.attrs.index_of(record, profile.endian);
        let fixed = profile.attrs.all().get(event).and_then(|attr| attr.fixed_period);
        let weight = Weight {
            samples: 1,
            period: sample.period.or(fixed).unwrap_or(1),
        };
        let event = index_of(event);
        *self
            .counts
            .threads
            .entry((located.pid, sample.tid, event))
            .or_default() += 1;
        self.stack.clear();
        let time = located.lookup_time();
        let mut mode = Mode::of_record(record.cpu_mode());
        if let Some(ip) = sample.ip {
            let leaf = self.frame(mode, located.space, ip, time, true);
            self.stack.push(leaf);
        }
        let mut is_first = true;
        for entry in sample.chain_entries() {
            match entry {
                ChainEntry::Marker(marker) => mode = Mode::of_marker(marker),
                // The first address is that of the sample.
                ChainEntry::Address(address)
                    if std::mem::take(&mut is_first) && Some(address) == sample.ip => {}
                ChainEntry::Address(address) => {
                    // A return address may be the first one after the code of the caller.
                    let call = Address(address.0.saturating_sub(1));
                    let frame = self.frame(mode, located.space, call, time, false);
                    self.stack.push(frame);
                }
                ChainEntry::Cookie => {}
            }
        }
        let stack = self.stack.iter().rev().copied();
        self.counts.tree.add(event, stack, weight);
    }
}

impl Walk<'_> {
    fn frame(
        &mut self,
        mode: Mode,
        space: Option<SpaceId>,
        address: Address,
        time: Time,
        is_leaf: bool,
    ) -> Frame {
        match (mode, space) {
            (Mode::Kernel, _) => self.kernel_frame(address),
            (Mode::User, Some(space)) => self.user_frame(space, address, time, is_leaf),
            _ => Frame::Unknown,
        }
    }

    fn kernel_frame(&self, address: Address) -> Frame {
        match self.symbols.kernel.at(address) {
            Some(symbol) => Frame::Kernel(symbol),
            None => Frame::KernelModule(self.symbols.modules.in_kernel(address)),
        }
    }

    fn user_frame(&mut self, space: SpaceId, address: Address, time: Time, is_leaf: bool) -> Frame {
        let selector = self.symbols.selector;
        let (lookup, _) = self.recent.lookup(selector.timeline, space, address, time);
        let code = match lookup {
            Lookup::File => None,
            // Words that unwinding took for return addresses are in no memory that is executed.
            Lookup::Unmapped if !is_leaf => None,
            lookup => selector.classify_ip(space, address, time, lookup),
        };
        match code {
            Some(SampledCode::Function(at)) => Frame::Function(selector.timeline.mappings()[at].function),
            Some(SampledCode::Symbol(symbol)) => Frame::PerfMapSymbol(symbol.id),
            Some(_) => Frame::UnnamedJit,
            None => self.native_frame(space, address, time),
        }
    }

    fn native_frame(&self, space: SpaceId, address: Address, time: Time) -> Frame {
        let Some(mapped) = self.symbols.modules.at(space, address, time) else {
            return Frame::Unknown;
        };
        match self.symbols.native.at(mapped.module, mapped.file_offset(address)) {
            Some(symbol) => Frame::Native {
                module: mapped.module,
                symbol,
            },
            None => Frame::Module(mapped.module),
        }
    }
}
