//! Numbers of samples, by what is found at the sampled address and in the stack.

/// Numbers of samples, by what is found at the sampled address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SampleCounts {
    /// All samples.
    pub total: u64,
    /// Samples in a known function.
    pub named: u64,
    /// Samples in [`SampleCounts::named`] whose function is named only by a perf map.
    pub named_by_map: u64,
    /// Samples in a known function that would be in another one at the limits of the clock uncertainty.
    pub doubtful: u64,
    /// Samples in JIT memory at an address that gets a function only later.
    pub before_load: u64,
    /// Samples in JIT memory of a process whose dump was read, at an address that the dump does not have.
    pub not_in_dump: u64,
    /// Samples in JIT memory of a process whose dump is lost or unusable.
    pub dump_unusable: u64,
    /// Samples in JIT memory of a process without a dump.
    pub no_dump: u64,
    /// Samples with a known function anywhere in their recorded call chain.
    pub with_named_frame: u64,
    /// JIT code in whole stacks.
    pub stacks: StackCounts,
    /// Samples that end before their last field.
    pub cut: u64,
}

impl SampleCounts {
    /// Adds the counts of another part of the samples.
    pub(super) fn add(&mut self, other: &Self) {
        self.stacks.add(&other.stacks);
        // All fields, so that none is forgotten.
        *self = Self {
            total: self.total + other.total,
            named: self.named + other.named,
            named_by_map: self.named_by_map + other.named_by_map,
            doubtful: self.doubtful + other.doubtful,
            before_load: self.before_load + other.before_load,
            not_in_dump: self.not_in_dump + other.not_in_dump,
            dump_unusable: self.dump_unusable + other.dump_unusable,
            no_dump: self.no_dump + other.no_dump,
            with_named_frame: self.with_named_frame + other.with_named_frame,
            stacks: self.stacks,
            cut: self.cut + other.cut,
        };
    }

    /// Samples in JIT code, named or not.
    pub fn jit(&self) -> u64 {
        self.named + self.unnamed()
    }

    /// Samples in JIT code without a name, or without a certain one.
    pub fn unnamed(&self) -> u64 {
        self.doubtful + self.before_load + self.not_in_dump + self.dump_unusable + self.no_dump
    }

    /// Share of the samples in JIT code that have a name, in percent; 100 if there are no such samples.
    pub fn named_percent(&self) -> f64 {
        percent(self.named, self.jit())
    }
}

/// JIT code in the sampled functions and in their recorded callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackCounts {
    /// Samples with JIT code anywhere in their stack.
    pub samples: u64,
    /// Frames in JIT code.
    pub frames: u64,
    /// Frames with a name.
    pub named: u64,
}

impl StackCounts {
    /// Adds the frames of one sample.
    pub fn add_sample(&mut self, frames: FrameCounts) {
        self.samples += u64::from(frames.jit > 0);
        self.frames += frames.jit;
        self.named += frames.named;
    }

    /// Adds other samples.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.frames += other.frames;
        self.named += other.named;
    }

    /// Share of the frames in JIT code that have a name, in percent; 100 if there are no such frames.
    pub fn named_percent(&self) -> f64 {
        percent(self.named, self.frames)
    }
}

/// Returns a part in percent; 100 if all is nothing.
fn percent(part: u64, all: u64) -> f64 {
    match all {
        0 => 100.0,
        all => part as f64 * 100.0 / all as f64,
    }
}

/// Frames in JIT code of one sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCounts {
    /// All of them.
    pub jit: u64,
    /// Those with a name.
    pub named: u64,
}

impl FrameCounts {
    /// Adds a frame in JIT code.
    pub fn add(&mut self, is_named: bool) {
        self.jit += 1;
        self.named += u64::from(is_named);
    }

    /// Adds a frame. `is_named` is whether it has a name, if it is in JIT code.
    #[inline]
    pub(super) fn extend(&mut self, is_named: Option<bool>) {
        self.jit += u64::from(is_named.is_some());
        self.named += u64::from(is_named == Some(true));
    }
}

/// Numbers of samples of one address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceCounts {
    /// All samples.
    pub samples: u32,
    /// Samples with JIT code anywhere in their recorded stack.
    pub with_jit_frame: u32,
    /// See [`SampleCounts::before_load`].
    pub before_load: u32,
    /// See [`SampleCounts::not_in_dump`].
    pub not_in_dump: u32,
    /// See [`SampleCounts::dump_unusable`].
    pub dump_unusable: u32,
    /// See [`SampleCounts::no_dump`].
    pub no_dump: u32,
}

impl SpaceCounts {
    /// Adds the counts of another part of the samples.
    pub(super) fn add(&mut self, other: &Self) {
        *self = Self {
            samples: self.samples.saturating_add(other.samples),
            with_jit_frame: self.with_jit_frame.saturating_add(other.with_jit_frame),
            before_load: self.before_load.saturating_add(other.before_load),
            not_in_dump: self.not_in_dump.saturating_add(other.not_in_dump),
            dump_unusable: self.dump_unusable.saturating_add(other.dump_unusable),
            no_dump: self.no_dump.saturating_add(other.no_dump),
        };
    }

    /// Whether any samples in JIT code have no name.
    pub fn has_unnamed(&self) -> bool {
        [
            self.before_load,
            self.not_in_dump,
            self.dump_unusable,
            self.no_dump,
        ] != [0; 4]
    }
}
