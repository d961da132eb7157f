//! What names the frames of a recording outside of its JIT code.

use crate::code::selection::Selector;
use crate::frames::native::files::NativeFiles;
use crate::frames::native::modules::Modules;
use crate::frames::native::symbols::NativeSymbols;
use crate::frames::stream::kept_paths::KeptPaths;
use crate::frames::stream::kernel_symbols::KernelSymbols;
use crate::frames::stream::native_lines::NativeLines;
use crate::frames::stream::walk::FrameSymbols;
use crate::load::{LoadOptions, Recording};
use crate::perf::feature;
use crate::perf::process_records::KernelMap;
use crate::perf::record::Role;

/// What names code of executables, libraries and the kernel.
pub struct NativeNames {
    /// Mapped modules.
    modules: Modules,
    files: NativeFiles,
    kernel: KernelSymbols,
    kept_paths: KeptPaths,
}

impl NativeNames {
    /// Finds it.
    pub fn of(options: &LoadOptions, recording: &Recording<'_>) -> Self {
        let (profile, index) = (&recording.profile.profile, &recording.profile.index);
        let records = index.kept.iter(profile.endian);
        let mappings = records.filter(|record| Role::of(record.kind) == Role::Mapping);
        let kernel_maps: Vec<KernelMap<'_>> = mappings
            .filter_map(|record| KernelMap::parse(&record, profile.endian))
            .collect();
        let is_sampled = |space| index.has_samples(space);
        Self {
            modules: Modules::new(&recording.profile, &kernel_maps, is_sampled),
            files: NativeFiles::new(options),
            kernel: kernel_symbols(recording, &kernel_maps, options)
                .with_reported(index.kept.iter(profile.endian), profile),
            kept_paths: KeptPaths::new(options),
        }
    }

    /// Prepares reading the lines of modules.
    pub fn lines(&self) -> NativeLines<'_> {
        NativeLines::new(&self.modules, &self.files)
    }

    /// Returns everything that names frames. Symbols of modules are not read yet.
    pub fn with<'s>(&'s self, selector: &'s Selector<'s>) -> FrameSymbols<'s> {
        FrameSymbols {
            selector,
            modules: &self.modules,
            native: NativeSymbols::new(&self.modules, &self.files),
            kernel: &self.kernel,
            kept_paths: &self.kept_paths,
        }
    }
}

/// Finds the symbols of the kernel that the profile was recorded on.
fn kernel_symbols(
    recording: &Recording<'_>,
    kernel_maps: &[KernelMap<'_>],
    options: &LoadOptions,
) -> KernelSymbols {
    let profile = &recording.profile.profile;
    let Some(kernel) = kernel_maps.iter().find(|map| map.name == b"[kernel.kallsyms]") else {
        return KernelSymbols::default();
    };
    let listed = profile.build_ids().find(|entry| entry.name == kernel.name);
    let build_id = kernel.build_id.or(listed.map(|entry| entry.build_id));
    let release = profile.feature(feature::OS_RELEASE);
    let release = release.and_then(|content| feature::read_string(content, profile.endian));
    KernelSymbols::find(kernel, build_id, release, &recording.input.kernel_copies, options)
}
