//! Runtimes in a profile's processes, and the options that make them log their code.

use std::collections::BTreeMap;

use crate::bytes::base_name;
use crate::code::process::{Processes, SpaceId};
use crate::diagnostics::{Diagnostic, Issue};
use crate::hash::HashSet;
use crate::perf::Profile;
use crate::perf::event::Mmap;
use crate::perf::record;
use crate::units::Pid;

/// A runtime with a JIT compiler.
#[derive(Debug)]
struct Runtime {
    name: &'static str,
    /// Prefixes of the names of its programs and libraries.
    files: &'static [&'static str],
    /// Command line or setting that makes it log its code.
    how: &'static str,
    /// How to record stacks with its functions, if frame pointers are not enough.
    stacks: Option<&'static str>,
}

/// Known runtimes. The options are from their manuals. All were tested, except those of SpiderMonkey, Numba,
/// OpenJ9, .NET, Ruby, Julia, ROOT and MoarVM.
static RUNTIMES: [Runtime; 24] = [
    Runtime {
        name: "Node.js",
        files: &["node", "nodejs"],
        how: "node --perf-prof --interpreted-frames-native-stack app.js, with --perf-prof-unwinding-info as well for \
              perf record --call-graph dwarf",
        stacks: None,
    },
    Runtime {
        name: "Deno",
        files: &["deno"],
        how: "deno run --v8-flags=--perf-prof app.ts",
        stacks: None,
    },
    Runtime {
        name: "Chromium",
        files: &["chrome", "chromium"],
        how: "chromium --no-sandbox --js-flags=--perf-prof",
        stacks: None,
    },
    Runtime {
        name: "Bun",
        files: &["bun"],
        how: "BUN_JSC_useJITDump=1 BUN_JSC_jitDumpDirectory=/tmp bun app.ts",
        stacks: None,
    },
    Runtime {
        name: "JavaScriptCore",
        files: &["jsc", "libjavascriptcoregtk", "libJavaScriptCore"],
        how: "JSC_useJITDump=1 JSC_jitDumpDirectory=/tmp jsc app.js",
        stacks: None,
    },
    Runtime {
        name: "SpiderMonkey",
        files: &["firefox", "libxul.so", "libmozjs"],
        how: "IONPERF=src PERF_SPEW_DIR=/tmp firefox, in nightly builds only",
        stacks: None,
    },
    Runtime {
        name: "CPython",
        files: &["python3", "libpython3"],
        how: "python3.13 -X perf_jit app.py, recorded with --call-graph dwarf, and jitinject --unwind; python3.12 -X perf app.py for names only",
        stacks: Some(
            "its interpreter needs copies of stacks: python3.13 -X perf_jit app.py, recorded with --call-graph dwarf, and jitinject --unwind",
        ),
    },
    Runtime {
        name: "Numba",
        files: &["libllvmlite"],
        how: "NUMBA_ENABLE_PROFILING=1 python3 app.py, with an llvmlite that is built with perf support, which the wheels are not",
        stacks: None,
    },
    Runtime {
        name: "PHP",
        files: &["php", "libphp", "opcache.so"],
        how: "php -d opcache.enable_cli=1 -d opcache.jit=tracing -d opcache.jit_buffer_size=64M -d opcache.jit_debug=32 \
              -d opcache.file_update_protection=0 app.php",
        stacks: None,
    },
    Runtime {
        name: "Erlang/OTP",
        files: &["beam"],
        how: "erl +JPperf true",
        stacks: None,
    },
    Runtime {
        name: "Java",
        files: &["java", "libjvm.so"],
        how: "java -XX:+PreserveFramePointer -agentpath:/path/to/libperf-jvmti.so App, with the absolute path of the agent, \
              which is built from tools/perf/jvmti of the kernel's sources; for names only, java \
              -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit App (17 and later)",
        stacks: None,
    },
    Runtime {
        name: "OpenJ9",
        files: &["libj9jit", "libj9vm"],
        how: "java -XX:+PerfTool App, for names only",
        stacks: None,
    },
    Runtime {
        name: ".NET",
        files: &["dotnet", "libcoreclr.so"],
        how: "DOTNET_PerfMapEnabled=1 DOTNET_EnableWriteXorExecute=0 dotnet app.dll, with DOTNET_PerfMapStubGranularity=2 as \
              well for .NET 10, whose jitdump ends in its second record without it",
        stacks: None,
    },
    Runtime {
        name: "Mono",
        files: &["mono", "libmonosgen"],
        how: "mono --jitmap app.exe for names only; mono --profile=log:nodefaults,jit,output=app.mlpd app.exe, and \
              jitinject --mono-log app.mlpd",
        stacks: None,
    },
    Runtime {
        name: "Ruby",
        files: &["ruby", "libruby"],
        how: "ruby --yjit --yjit-perf app.rb (3.3 and later), for names only",
        stacks: None,
    },
    Runtime {
        name: "Julia",
        files: &["julia", "libjulia"],
        how: "ENABLE_JITPROFILING=1 julia app.jl",
        stacks: None,
    },
    Runtime {
        name: "LuaJIT",
        files: &["luajit", "libluajit"],
        how: "it has no option for this; only one built with -DLUAJIT_USE_PERFTOOLS writes a perf map",
        stacks: None,
    },
    Runtime {
        name: "PostgreSQL",
        files: &["postgres", "llvmjit.so"],
        how: "jit_profiling_support = on in postgresql.conf",
        stacks: None,
    },
    Runtime {
        name: "LLVM",
        files: &["lli", "libLLVM"],
        how: "lli -jit-kind=mcjit app.ll; a program of your own registers createPerfJITEventListener(), or ORC's PerfSupportPlugin",
        stacks: None,
    },
    Runtime {
        name: "ROOT",
        files: &["libCling"],
        how: "CLING_PROFILE=1 root app.C",
        stacks: None,
    },
    Runtime {
        name: "oneDNN",
        files: &["libdnnl", "libmkldnn"],
        how: "ONEDNN_JIT_PROFILE=6 app",
        stacks: None,
    },
    Runtime {
        name: "Wasmtime",
        files: &["wasmtime"],
        how: "wasmtime run --profile=jitdump app.wasm",
        stacks: None,
    },
    Runtime {
        name: "QEMU",
        files: &["qemu-"],
        how: "qemu-x86_64 -jitdump app (8.1 and later)",
        stacks: None,
    },
    Runtime {
        name: "MoarVM",
        files: &["moar", "libmoar"],
        how: "MVM_JIT_PERF_DUMP=1 raku app.raku, for names only",
        stacks: None,
    },
];

/// Returns how to make the runtimes in the processes `pids` log their code: one line for each runtime, in the
/// order of [`RUNTIMES`].
///
/// The files of a process are those that it or the processes that it was forked from have mapped.
pub fn how_to_enable(profile: &Profile<'_>, processes: &Processes, pids: &HashSet<Pid>) -> Vec<Diagnostic> {
    let spaces = pids.iter().flat_map(|&pid| processes.spaces_of(pid));
    let ancestors = spaces.flat_map(|(id, _)| processes.ancestors(id));
    let mut pids = pids.clone();
    pids.extend(ancestors.map(|(_, space)| space.pid));
    let maps = profile
        .records()
        .filter(|record| matches!(record.kind, record::MMAP | record::MMAP2))
        .filter_map(|record| Mmap::parse(&record, profile.endian))
        .filter(|map| pids.contains(&map.pid));
    let mut names = HashSet::default();
    names.extend(maps.map(|map| base_name(map.name)));
    let is_run = |runtime: &&Runtime| names.iter().any(|name| runtime.has(name));
    let run = RUNTIMES.iter().filter(is_run);
    run.map(|runtime| {
        let enable = Diagnostic::new(Issue::EnableRuntime).with("runtime", runtime.name);
        enable.with("how", runtime.how)
    })
    .collect()
}

/// Returns advice for runtimes whose functions are missing from most recorded stacks. `counts` has address spaces with
/// their number of samples, and how many of them have JIT code in their stack.
pub fn missing_in_stacks(
    profile: &Profile<'_>,
    processes: &Processes,
    counts: &[(SpaceId, u64, u64)],
) -> Vec<Diagnostic> {
    /// Fewer samples show nothing.
    const MIN_SAMPLES: u64 = 20;
    let mut by_runtime: BTreeMap<&'static str, (u64, u64, &'static str)> = BTreeMap::new();
    for &(space, samples, with) in counts {
        let mut runtimes = runtimes_of(profile, processes, space);
        let found = runtimes.find_map(|runtime| Some((runtime.name, runtime.stacks?)));
        if let Some((name, how)) = found {
            let (all, all_with, _) = by_runtime.entry(name).or_insert((0, 0, how));
            *all += samples;
            *all_with += with;
        }
    }
    let missing = by_runtime
        .into_iter()
        .filter(|&(_, (samples, with, _))| samples >= MIN_SAMPLES && with < samples / 2);
    missing
        .map(|(name, (samples, with, how))| {
            let missing = Diagnostic::new(Issue::FramesNotRecorded).with("runtime", name);
            missing
                .with("found", with)
                .with("samples", samples)
                .with("how", how)
        })
        .collect()
}

/// Returns the name of the runtime of a process: of the last program that it executed.
pub fn runtime_name(profile: &Profile<'_>, processes: &Processes, pid: Pid) -> Option<&'static str> {
    let spaces = processes.spaces_of(pid).map(|(space, _)| space);
    let found = spaces.filter_map(|space| runtimes_of(profile, processes, space).next());
    found.last().map(|runtime| runtime.name)
}

/// Returns the runtimes of the files that an address space or those that it was forked from have mapped.
fn runtimes_of<'p>(
    profile: &'p Profile<'_>,
    processes: &'p Processes,
    space: SpaceId,
) -> impl Iterator<Item = &'static Runtime> + 'p {
    let ancestors = processes.ancestors(space).map(|(_, space)| space);
    let spaces = std::iter::once(processes.space(space)).chain(ancestors);
    spaces.flat_map(|space| &space.maps).filter_map(|map| {
        let record = profile.records_from(map.record).next()?;
        let name = Mmap::parse(&record, profile.endian)?.name;
        runtime_of_file(base_name(name))
    })
}

/// Returns the runtime that a program or library is part of.
fn runtime_of_file(name: &[u8]) -> Option<&'static Runtime> {
    RUNTIMES.iter().find(|runtime| runtime.has(name))
}

impl Runtime {
    /// Whether a program or library is part of the runtime. A version may follow the prefix, but no other
    /// word.
    fn has(&self, name: &[u8]) -> bool {
        self.files.iter().any(|file| is_version_of(name, file))
    }
}

/// Whether a file has a name, followed by a version or nothing. After a name that ends with a hyphen, anything may
/// follow.
pub fn is_version_of(file: &[u8], name: &str) -> bool {
    let rest = file.strip_prefix(name.as_bytes());
    rest.is_some_and(|rest| name.ends_with('-') || !rest.first().is_some_and(u8::is_ascii_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_recognized_by_their_files() {
        for (file, expected) in [
            ("node", Some("Node.js")),
            ("node20", Some("Node.js")),
            ("nodeconf", None),
            ("python3.13", Some("CPython")),
            ("libpython3.13.so.1.0", Some("CPython")),
            ("beam.smp", Some("Erlang/OTP")),
            ("php8.2", Some("PHP")),
            ("libjvm.so", Some("Java")),
            ("javac", None),
            ("libmonosgen-2.0.so.1", Some("Mono")),
            ("monitor", None),
            ("libLLVM-14.so.1", Some("LLVM")),
            ("qemu-x86_64", Some("QEMU")),
            ("luajit-2.1.0-beta3", Some("LuaJIT")),
            ("libdnnl.so.3", Some("oneDNN")),
            ("libj9jit29.so", Some("OpenJ9")),
            ("libc.so.6", None),
        ] {
            let found = runtime_of_file(file.as_bytes());
            assert_eq!(found.map(|runtime| runtime.name), expected, "{file}");
        }
    }
}
