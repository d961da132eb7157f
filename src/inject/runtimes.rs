//! Runtimes that a profile's processes run, and how each is asked to tell of its code.

use rustc_hash::FxHashSet;

use crate::bytes::base_name;
use crate::perf::Profile;
use crate::perf::event::Mmap;
use crate::perf::record;
use crate::units::Pid;

/// A runtime that can tell of its code.
#[derive(Debug)]
struct Runtime {
    name: &'static str,
    /// What the names of its programs and libraries start with.
    files: &'static [&'static str],
    /// What to type.
    how: &'static str,
}

/// Those that are known. Their options are from their own manuals and tried with the recordings of the tests, but for
/// .NET's.
const RUNTIMES: [Runtime; 15] = [
    Runtime {
        name: "Node.js",
        files: &["node", "nodejs"],
        how: "node --perf-prof app.js, with --perf-prof-unwinding-info as well for perf record --call-graph dwarf",
    },
    Runtime {
        name: "Deno",
        files: &["deno"],
        how: "deno run --v8-flags=--perf-prof app.ts",
    },
    Runtime {
        name: "Chromium",
        files: &["chrome", "chromium"],
        how: "chromium --no-sandbox --js-flags=--perf-prof",
    },
    Runtime {
        name: "Bun",
        files: &["bun"],
        how: "BUN_JSC_useJITDump=1 BUN_JSC_jitDumpDirectory=/tmp bun app.ts",
    },
    Runtime {
        name: "JavaScriptCore",
        files: &["jsc", "libjavascriptcoregtk", "libJavaScriptCore"],
        how: "JSC_useJITDump=1 JSC_jitDumpDirectory=/tmp jsc app.js",
    },
    Runtime {
        name: "CPython",
        files: &["python3", "libpython3"],
        how: "python3.13 -X perf_jit app.py (3.12 has -X perf, which tells names and no more)",
    },
    Runtime {
        name: "PHP",
        files: &["php", "libphp", "opcache.so"],
        how: "php -d opcache.enable_cli=1 -d opcache.jit=tracing -d opcache.jit_buffer_size=64M -d opcache.jit_debug=32 app.php",
    },
    Runtime {
        name: "Erlang/OTP",
        files: &["beam"],
        how: "erl +JPperf true",
    },
    Runtime {
        name: "Java",
        files: &["java", "libjvm.so"],
        how: "java -XX:+PreserveFramePointer -agentpath:/path/to/libperf-jvmti.so App (the agent is in tools/perf/jvmti of \
              the kernel's sources)",
    },
    Runtime {
        name: ".NET",
        files: &["dotnet", "libcoreclr.so"],
        how: "DOTNET_PerfMapEnabled=1 dotnet app.dll",
    },
    Runtime {
        name: "Mono",
        files: &["mono", "libmonosgen"],
        how: "mono --jitmap app.exe for names; mono --profile=log:nodefaults,jit,output=app.mlpd app.exe, and \
              jitinject --mono-log app.mlpd",
    },
    Runtime {
        name: "PostgreSQL",
        files: &["postgres", "llvmjit.so"],
        how: "jit_profiling_support = on in postgresql.conf",
    },
    Runtime {
        name: "LLVM",
        files: &["lli", "libLLVM"],
        how: "lli -jit-kind=mcjit app.ll; a program of your own registers createPerfJITEventListener(), or ORC's PerfSupportPlugin",
    },
    Runtime {
        name: "Wasmtime",
        files: &["wasmtime"],
        how: "wasmtime run --profile=jitdump app.wasm",
    },
    Runtime {
        name: "QEMU",
        files: &["qemu-"],
        how: "qemu-x86_64 -jitdump app",
    },
];

/// How to ask the runtimes of those processes that nothing is known of, one line each; all runtimes where none is seen.
/// Of those in `told`, something is.
pub fn how_to_ask(profile: &Profile<'_>, told: &FxHashSet<Pid>) -> Vec<String> {
    let maps = profile
        .records()
        .filter(|record| matches!(record.kind, record::MMAP | record::MMAP2))
        .filter_map(|record| Mmap::parse(&record, profile.order))
        .filter(|map| !told.contains(&map.pid));
    let mut names = FxHashSet::default();
    names.extend(maps.map(|map| base_name(map.name)));
    let is_seen = |runtime: &&Runtime| names.iter().any(|name| runtime.has(name));
    let mut seen: Vec<&Runtime> = RUNTIMES.iter().filter(is_seen).collect();
    if seen.is_empty() {
        seen.extend(&RUNTIMES);
    }
    seen.into_iter()
        .map(|runtime| format!("{}: {}", runtime.name, runtime.how))
        .collect()
}

impl Runtime {
    /// Whether a program or library of this name is the runtime's: behind what it starts with, a version may come,
    /// but no other word.
    fn has(&self, name: &[u8]) -> bool {
        self.files.iter().any(|file| {
            let rest = name.strip_prefix(file.as_bytes());
            rest.is_some_and(|rest| file.ends_with('-') || !rest.first().is_some_and(u8::is_ascii_alphabetic))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_told_by_their_files() {
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
            ("libc.so.6", None),
        ] {
            let found = RUNTIMES.iter().find(|runtime| runtime.has(file.as_bytes()));
            assert_eq!(found.map(|runtime| runtime.name), expected, "{file}");
        }
    }
}
