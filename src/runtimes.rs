//! Known runtimes: their programs and libraries, and how they log their code.

use std::os::unix::ffi::OsStrExt;

use jitdump::Machine;
use object::elf;

use crate::bytes::base_name;
use crate::files::kernel;

/// A runtime with a JIT compiler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Runtime {
    /// Node.js.
    Node,
    /// Deno.
    Deno,
    /// Chromium.
    Chromium,
    /// Bun.
    Bun,
    /// JavaScriptCore.
    JavaScriptCore,
    /// SpiderMonkey.
    SpiderMonkey,
    /// CPython.
    Python,
    /// Numba.
    Numba,
    /// PHP.
    Php,
    /// Erlang/OTP.
    Erlang,
    /// Java.
    Java,
    /// OpenJ9.
    OpenJ9,
    /// .NET.
    DotNet,
    /// Mono.
    Mono,
    /// Ruby.
    Ruby,
    /// Julia.
    Julia,
    /// LuaJIT.
    LuaJit,
    /// PostgreSQL.
    PostgreSql,
    /// LLVM's JIT compilers.
    Lli,
    /// ROOT.
    Root,
    /// oneDNN.
    OneDnn,
    /// Wasmtime.
    Wasmtime,
    /// QEMU in user mode.
    Qemu,
    /// MoarVM.
    MoarVm,
    /// WAMR.
    Wamr,
    /// Wasmer.
    Wasmer,
    /// HHVM.
    Hhvm,
    /// Dart.
    Dart,
}

/// What is known about a runtime.
#[derive(Debug)]
pub struct Description {
    /// The runtime.
    pub runtime: Runtime,
    /// Name for options; `None` if a recording cannot make it log its code.
    pub id: Option<&'static str>,
    /// Name in messages.
    pub name: &'static str,
    /// Beginnings of the names of its programs. A version may follow, but no other word.
    programs: &'static [&'static str],
    /// The same for its libraries.
    libraries: &'static [&'static str],
    /// Names of programs that start it.
    launchers: &'static [&'static str],
    /// Command line or setting that makes it log its code.
    pub how: &'static str,
    /// What a command line has if it makes the runtime log its code; `None` if a variable does.
    pub option: Option<&'static str>,
    /// Argument with which the runtime prints its version.
    pub version_argument: Option<&'static str>,
    /// Whether its variables have no effect on programs without it, or with a version that does not know them. Java prints a line
    /// about them, old versions of Erlang and Ruby do not start, and Numba's code becomes that of a debug build.
    pub is_harmless: bool,
    /// How to record stacks with its functions, if frame pointers are not enough.
    pub stacks: Option<&'static str>,
}

/// Known runtimes. The options are from their manuals. All were tested, except those of SpiderMonkey, Numba,
/// OpenJ9, Ruby, Julia, ROOT, WAMR, Wasmer, HHVM and Dart, and MoarVM's jitdump.
static DESCRIPTIONS: [Description; 28] = [
    Description {
        id: Some("node"),
        programs: &["node", "nodejs"],
        launchers: &["npm", "npx", "yarn", "pnpm", "corepack", "tsx", "ts-node"],
        option: Some("--perf-prof"),
        version_argument: Some("--version"),
        ..Description::new(
            Runtime::Node,
            "Node.js",
            "node --perf-prof --interpreted-frames-native-stack app.js, with --perf-prof-unwinding-info as well for \
              perf record --call-graph dwarf",
        )
    },
    Description {
        id: Some("deno"),
        programs: &["deno"],
        option: Some("--perf-prof"),
        version_argument: Some("--version"),
        ..Description::new(Runtime::Deno, "Deno", "deno run --v8-flags=--perf-prof app.ts")
    },
    Description {
        programs: &["chrome", "chromium", "chromium-browser"],
        option: Some("--perf-prof"),
        ..Description::new(
            Runtime::Chromium,
            "Chromium",
            "chromium --no-sandbox --js-flags=--perf-prof",
        )
    },
    Description {
        id: Some("bun"),
        programs: &["bun", "bunx"],
        version_argument: Some("--version"),
        ..Description::new(
            Runtime::Bun,
            "Bun",
            "BUN_JSC_useJITDump=1 BUN_JSC_jitDumpDirectory=/tmp bun app.ts",
        )
    },
    Description {
        id: Some("jsc"),
        programs: &["jsc"],
        libraries: &["libjavascriptcoregtk", "libJavaScriptCore"],
        ..Description::new(
            Runtime::JavaScriptCore,
            "JavaScriptCore",
            "JSC_useJITDump=1 JSC_jitDumpDirectory=/tmp jsc app.js",
        )
    },
    Description {
        id: Some("spidermonkey"),
        programs: &["firefox", "firefox-bin", "firefox-esr", "js"],
        libraries: &["libxul.so", "libmozjs"],
        ..Description::new(
            Runtime::SpiderMonkey,
            "SpiderMonkey",
            "IONPERF=src PERF_SPEW_DIR=/tmp firefox, in nightly builds only",
        )
    },
    Description {
        id: Some("python"),
        programs: &["python"],
        libraries: &["libpython3"],
        launchers: &["pytest", "py.test", "tox", "nox", "uv", "poetry", "pipenv"],
        option: Some("perf_jit"),
        version_argument: Some("--version"),
        stacks: Some(
            "its interpreter keeps no frame pointers and needs copies of stacks: python3.13 -X perf_jit app.py, recorded with \
             --call-graph dwarf,32768",
        ),
        ..Description::new(
            Runtime::Python,
            "CPython",
            "python3.13 -X perf_jit app.py, recorded with --call-graph dwarf,32768 before 3.15; \
              python3.12 -X perf app.py for names only; earlier versions log no code; its own JIT compiler is off meanwhile",
        )
    },
    Description {
        id: Some("numba"),
        programs: &["numba"],
        libraries: &["libllvmlite"],
        is_harmless: false,
        ..Description::new(
            Runtime::Numba,
            "Numba",
            "NUMBA_ENABLE_PROFILING=1 python3 app.py, with an llvmlite that is built with perf support, which the wheels are not",
        )
    },
    Description {
        id: Some("php"),
        programs: &["php", "php-cgi", "php-fpm"],
        libraries: &["libphp", "opcache.so"],
        launchers: &["composer", "phpunit"],
        option: Some("opcache.jit_debug"),
        version_argument: Some("--version"),
        ..Description::new(
            Runtime::Php,
            "PHP",
            "php -d opcache.enable_cli=1 -d opcache.jit=tracing -d opcache.jit_buffer_size=64M -d opcache.jit_debug=32 \
              -d opcache.file_update_protection=0 app.php",
        )
    },
    Description {
        id: Some("erlang"),
        programs: &["erl", "beam"],
        launchers: &[
            "escript", "erlc", "dialyzer", "typer", "ct_run", "elixir", "iex", "mix", "rebar3", "gleam",
        ],
        option: Some("+JPperf"),
        is_harmless: false,
        ..Description::new(Runtime::Erlang, "Erlang/OTP", "erl +JPperf true")
    },
    Description {
        id: Some("java"),
        programs: &["java"],
        libraries: &["libjvm.so"],
        launchers: &[
            "javac", "javadoc", "jar", "jshell", "gradle", "gradlew", "mvn", "mvnw", "ant", "sbt", "scala",
            "scalac", "kotlin", "kotlinc", "groovy", "clojure", "clj", "lein",
        ],
        version_argument: Some("--version"),
        is_harmless: false,
        ..Description::new(
            Runtime::Java,
            "Java",
            "java -XX:+PreserveFramePointer -agentpath:/path/to/libperf-jvmti.so App, with the absolute path of the agent, \
              which is built from tools/perf/jvmti of the kernel's sources; for names only, java \
              -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit App (17 and later)",
        )
    },
    Description {
        programs: &[],
        libraries: &["libj9jit", "libj9vm"],
        ..Description::new(
            Runtime::OpenJ9,
            "OpenJ9",
            "java -XX:+PerfTool App, for names only",
        )
    },
    Description {
        id: Some("dotnet"),
        programs: &["dotnet"],
        libraries: &["libcoreclr.so"],
        launchers: &["pwsh"],
        version_argument: Some("--list-runtimes"),
        ..Description::new(
            Runtime::DotNet,
            ".NET",
            "DOTNET_PerfMapEnabled=1 DOTNET_EnableWriteXorExecute=0 dotnet app.dll, with DOTNET_PerfMapStubGranularity=2 as \
              well for .NET 10, whose jitdump ends in its second record without it",
        )
    },
    Description {
        id: Some("mono"),
        programs: &["mono", "mono-boehm", "mono-sgen"],
        libraries: &["libmonosgen"],
        launchers: &["mcs", "csharp"],
        option: Some("--jitmap"),
        version_argument: Some("--version"),
        ..Description::new(
            Runtime::Mono,
            "Mono",
            "MONO_DEBUG=disable_omit_fp mono --jitmap app.exe for names only; mono \
              --profile=log:nodefaults,jit,output=app.mlpd app.exe, and jitinject --mono-log app.mlpd",
        )
    },
    Description {
        id: Some("ruby"),
        programs: &["ruby"],
        libraries: &["libruby"],
        launchers: &["bundle", "rake", "rails", "rspec"],
        version_argument: Some("--version"),
        is_harmless: false,
        ..Description::new(
            Runtime::Ruby,
            "Ruby",
            "ruby --yjit --yjit-perf app.rb (3.3 and later) or ruby --zjit --zjit-perf app.rb (4.0 and later), for names only; \
              if built with that compiler, which Debian's is not",
        )
    },
    Description {
        id: Some("julia"),
        programs: &["julia"],
        libraries: &["libjulia"],
        version_argument: Some("--version"),
        ..Description::new(Runtime::Julia, "Julia", "ENABLE_JITPROFILING=1 julia app.jl")
    },
    Description {
        programs: &["luajit"],
        libraries: &["libluajit"],
        ..Description::new(
            Runtime::LuaJit,
            "LuaJIT",
            "it has no option for this; only one built with -DLUAJIT_USE_PERFTOOLS writes a perf map",
        )
    },
    Description {
        programs: &["postgres"],
        libraries: &["llvmjit.so"],
        ..Description::new(
            Runtime::PostgreSql,
            "PostgreSQL",
            "jit_profiling_support = on in postgresql.conf",
        )
    },
    Description {
        id: Some("lli"),
        programs: &["lli"],
        libraries: &["libLLVM"],
        version_argument: Some("--version"),
        ..Description::new(
            Runtime::Lli,
            "LLVM",
            "lli -jit-kind=mcjit app.ll; a program of your own registers createPerfJITEventListener(), or ORC's PerfSupportPlugin",
        )
    },
    Description {
        id: Some("root"),
        programs: &["root", "root.exe", "cling"],
        libraries: &["libCling"],
        ..Description::new(Runtime::Root, "ROOT", "CLING_PROFILE=1 root app.C")
    },
    Description {
        id: Some("onednn"),
        programs: &["benchdnn"],
        libraries: &["libdnnl", "libmkldnn"],
        ..Description::new(Runtime::OneDnn, "oneDNN", "ONEDNN_JIT_PROFILE=6 app")
    },
    Description {
        id: Some("wasmtime"),
        programs: &["wasmtime"],
        // That of the Python package has an underscore.,
        libraries: &["libwasmtime", "_libwasmtime"],
        option: Some("--profile=jitdump"),
        version_argument: Some("--version"),
        ..Description::new(
            Runtime::Wasmtime,
            "Wasmtime",
            "wasmtime run --profile=jitdump app.wasm; a program of your own sets Config::profiler(ProfilingStrategy::JitDump)",
        )
    },
    Description {
        id: Some("qemu"),
        programs: &["qemu", "qemu-"],
        option: Some("-jitdump"),
        version_argument: Some("--version"),
        ..Description::new(Runtime::Qemu, "QEMU", "qemu-x86_64 -jitdump app (8.1 and later)")
    },
    Description {
        id: Some("moarvm"),
        programs: &["moar"],
        libraries: &["libmoar"],
        launchers: &["raku", "rakudo", "perl6"],
        ..Description::new(
            Runtime::MoarVm,
            "MoarVM",
            "MVM_JIT_PERF_DUMP=1 raku app.raku; before 2026, MVM_JIT_PERF_MAP=1 for names only",
        )
    },
    Description {
        programs: &["iwasm"],
        libraries: &["libiwasm", "libvmlib"],
        ..Description::new(
            Runtime::Wamr,
            "WAMR",
            "iwasm --enable-linux-perf app.wasm, if built with WAMR_BUILD_LINUX_PERF=1 and LLVM's JIT compiler",
        )
    },
    Description {
        id: Some("wasmer"),
        programs: &["wasmer"],
        libraries: &["libwasmer"],
        ..Description::new(
            Runtime::Wasmer,
            "Wasmer",
            "wasmer run --profiler=perfmap app.wasm, for names only",
        )
    },
    Description {
        id: Some("hhvm"),
        programs: &["hhvm"],
        ..Description::new(Runtime::Hhvm, "HHVM", "hhvm -vEval.PerfJitDump=true app.hack")
    },
    Description {
        id: Some("dart"),
        programs: &["dart", "dartvm"],
        launchers: &["flutter"],
        ..Description::new(Runtime::Dart, "Dart", "dart --generate_perf_jitdump app.dart")
    },
];

impl Runtime {
    /// Returns the names of the runtimes that can be made to log their code, as [`Runtime::from_id`] takes them.
    pub fn ids() -> impl Iterator<Item = &'static str> {
        DESCRIPTIONS.iter().filter_map(|description| description.id)
    }

    /// Returns the runtime with a name such as `node`.
    pub fn from_id(id: &str) -> Option<Self> {
        let mut descriptions = DESCRIPTIONS.iter();
        descriptions
            .find(|description| description.id == Some(id))
            .map(|description| description.runtime)
    }

    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        self.description().map_or("", |description| description.name)
    }

    /// Returns what is known about it.
    pub fn description(self) -> Option<&'static Description> {
        DESCRIPTIONS
            .iter()
            .find(|description| description.runtime == self)
    }

    /// Returns the runtime that a program of this base name is, or starts.
    pub fn of_program(name: &[u8]) -> Option<Self> {
        let is_launcher = |description: &&Description| {
            let mut launchers = description.launchers.iter();
            launchers.any(|launcher| launcher.as_bytes() == name)
        };
        let found = DESCRIPTIONS
            .iter()
            .find(|description| description.has_program(name) || is_launcher(description));
        found.map(|description| description.runtime)
    }

    /// Returns the runtime of a running process.
    pub fn of_process(pid: u32) -> Option<Self> {
        let program = kernel::read_link(format!("/proc/{pid}/exe")).ok()?;
        Self::of_program(base_name(program.as_os_str().as_bytes()))
    }
}

impl Description {
    const fn new(runtime: Runtime, name: &'static str, how: &'static str) -> Self {
        Self {
            runtime,
            id: None,
            name,
            programs: &[],
            libraries: &[],
            launchers: &[],
            how,
            option: None,
            version_argument: None,
            is_harmless: true,
            stacks: None,
        }
    }

    /// Returns the command line or setting that makes it log its code on a machine, or why there is none.
    pub fn how_on(&self, machine: Machine) -> &'static str {
        let has_support = match self.runtime {
            // The same runtimes run on other machines, too, where they accept the options and write nothing.
            Runtime::Python | Runtime::Erlang => [elf::EM_X86_64, elf::EM_AARCH64].contains(&machine.id),
            Runtime::Php => [elf::EM_X86_64, elf::EM_386, elf::EM_AARCH64].contains(&machine.id),
            _ => true,
        };
        match has_support {
            true => self.how,
            false => "it logs code on x86-64 and AArch64 only",
        }
    }

    /// Returns all, in the order in which advice is printed.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        DESCRIPTIONS.iter()
    }

    /// Returns the runtime that a program or library is part of.
    pub fn of_file(name: &[u8]) -> Option<&'static Self> {
        Self::all().find(|description| description.has_file(name))
    }

    /// Whether a program or library is part of the runtime.
    pub fn has_file(&self, name: &[u8]) -> bool {
        let has_library = |library: &&str| {
            let rest = name.strip_prefix(library.as_bytes());
            rest.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphabetic))
        };
        self.has_program(name) || self.libraries.iter().any(has_library)
    }

    /// Whether a program is one of the runtime's: its name is followed by a version or nothing, or, if it ends in a hyphen, by
    /// anything. `node_exporter` is a program of somebody else.
    pub fn has_program(&self, name: &[u8]) -> bool {
        let is_version = |rest: &[u8]| match rest {
            [] | [b'0'..=b'9' | b'.', ..] => true,
            [b'-' | b'_', next, ..] => next.is_ascii_digit(),
            _ => false,
        };
        self.programs.iter().any(|program| {
            let rest = name.strip_prefix(program.as_bytes());
            rest.is_some_and(|rest| program.ends_with('-') || is_version(rest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_named_only_on_machines_where_they_have_an_effect() {
        use jitdump::ByteOrder::Little;
        let how = |name: &str, architecture: &[u8]| {
            let runtime = Description::all().find(|runtime| runtime.name == name).unwrap();
            runtime.how_on(Machine::of_profile(Some(architecture), Little))
        };
        assert!(how("CPython", b"x86_64").contains("-X perf_jit"));
        assert!(how("CPython", b"aarch64").contains("-X perf_jit"));
        for name in ["CPython", "PHP", "Erlang/OTP"] {
            assert_eq!(how(name, b"riscv64"), "it logs code on x86-64 and AArch64 only");
        }
        assert!(how("Node.js", b"riscv64").contains("--perf-prof"));
    }

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
            ("_libwasmtime.so", Some("Wasmtime")),
            ("libj9jit29.so", Some("OpenJ9")),
            ("libc.so.6", None),
        ] {
            let found = Description::of_file(file.as_bytes());
            assert_eq!(found.map(|runtime| runtime.name), expected, "{file}");
        }
    }

    #[test]
    fn programs_and_launchers_are_recognized_by_name() {
        for (name, expected) in [
            ("node", Some(Runtime::Node)),
            ("node20", Some(Runtime::Node)),
            ("node-22", Some(Runtime::Node)),
            ("nodeconf", None),
            ("node_exporter", None),
            ("js-beautify", None),
            ("js91", Some(Runtime::SpiderMonkey)),
            ("python3.13-dbg", Some(Runtime::Python)),
            ("php-fpm8.2", Some(Runtime::Php)),
            ("root-tail", None),
            ("root.exe", Some(Runtime::Root)),
            ("wasmtime-server", None),
            ("npm", Some(Runtime::Node)),
            ("python3.13", Some(Runtime::Python)),
            ("pytest", Some(Runtime::Python)),
            ("php8.2", Some(Runtime::Php)),
            ("mix", Some(Runtime::Erlang)),
            ("dialyzer", Some(Runtime::Erlang)),
            ("gradlew", Some(Runtime::Java)),
            ("javac", Some(Runtime::Java)),
            ("javapackager", None),
            ("dart", Some(Runtime::Dart)),
            ("mono-sgen", Some(Runtime::Mono)),
            ("lli-14", Some(Runtime::Lli)),
            ("qemu-x86_64", Some(Runtime::Qemu)),
            ("sh", None),
            ("make", None),
        ] {
            assert_eq!(Runtime::of_program(name.as_bytes()), expected, "{name}");
        }
        for id in Runtime::ids() {
            assert!(!Runtime::from_id(id).unwrap().name().is_empty());
        }
    }
}
