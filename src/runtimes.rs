//! Known runtimes: their programs and libraries, and how they log their code.

use std::os::unix::ffi::OsStrExt;

use jitdump::Machine;
use object::elf;

use crate::bytes::base_name;
use crate::files::kernel;

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
    pub logging_option: Option<&'static str>,
    /// Argument with which the runtime prints its version.
    pub version_argument: Option<&'static str>,
    /// Whether its variables have no effect on programs without it, or with a version that does not know them, so that
    /// they are set for all programs. Java prints a line about them, old versions of Erlang and Ruby do not start, and
    /// Numba's code becomes that of a debug build.
    pub is_harmless: bool,
    /// How to record stacks with its functions, if frame pointers are not enough.
    pub stacks: Option<&'static str>,
}

// Makes the variants and what is known about each, so that none is without.
macro_rules! runtimes {
    ($(
        $(#[$doc:meta])+
        $runtime:ident = $name:literal {
            id: $id:expr,
            is_harmless: $is_harmless:literal,
            how: $how:literal,
            $( $field:ident: $value:expr, )*
        }
    )+) => {
        /// A runtime with a JIT compiler.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Runtime {
            $( $(#[$doc])+ $runtime, )+
        }

        impl Runtime {
            /// All runtimes, in the order in which advice is printed.
            const ALL: &[Self] = &[$( Self::$runtime ),+];

            /// Returns what is known about it.
            pub fn description(self) -> &'static Description {
                match self {
                    $( Self::$runtime => {
                        static KNOWN: Description = Description {
                            $( $field: $value, )*
                            ..Description::new(Runtime::$runtime, $name, $id, $is_harmless, $how)
                        };
                        &KNOWN
                    } )+
                }
            }
        }
    };
}

// Known runtimes. The options are from their manuals. All were tested, except those of Numba,
// OpenJ9, Ruby, Julia, ROOT, WAMR, Wasmer, HHVM and Dart, and MoarVM's jitdump.
runtimes! {
    /// Node.js.
    Node = "Node.js" {
        id: Some("node"),
        is_harmless: true,
        how: "node --perf-prof --interpreted-frames-native-stack app.js, with --perf-prof-unwinding-info as well for \
            perf record --call-graph dwarf",
        programs: &["node", "nodejs"],
        launchers: &["npm", "npx", "yarn", "pnpm", "corepack", "tsx", "ts-node"],
        logging_option: Some("--perf-prof"),
        version_argument: Some("--version"),
    }

    /// Deno.
    Deno = "Deno" {
        id: Some("deno"),
        is_harmless: true,
        how: "deno run --v8-flags=--perf-prof,--interpreted-frames-native-stack app.ts",
        programs: &["deno"],
        logging_option: Some("--perf-prof"),
        version_argument: Some("--version"),
    }

    /// Chromium.
    Chromium = "Chromium" {
        id: None,
        is_harmless: true,
        how: "chromium --no-sandbox --js-flags=\"--perf-prof --interpreted-frames-native-stack\"",
        programs: &["chrome", "chromium", "chromium-browser"],
        logging_option: Some("--perf-prof"),
    }

    /// Bun.
    Bun = "Bun" {
        id: Some("bun"),
        is_harmless: true,
        how: "BUN_JSC_useJITDump=1 BUN_JSC_jitDumpDirectory=/tmp bun app.ts",
        programs: &["bun", "bunx"],
        version_argument: Some("--version"),
    }

    /// JavaScriptCore.
    JavaScriptCore = "JavaScriptCore" {
        id: Some("jsc"),
        is_harmless: true,
        how: "JSC_useJITDump=1 JSC_jitDumpDirectory=/tmp jsc app.js",
        programs: &["jsc"],
        libraries: &["libjavascriptcoregtk", "libJavaScriptCore"],
    }

    /// SpiderMonkey.
    SpiderMonkey = "SpiderMonkey" {
        id: Some("spidermonkey"),
        is_harmless: true,
        how: "IONPERF=src PERF_SPEW_DIR=/tmp firefox, if built for it, as nightly builds and PythonMonkey are",
        programs: &["firefox", "firefox-bin", "firefox-esr", "js"],
        libraries: &["libxul.so", "libmozjs"],
    }

    /// CPython.
    Python = "CPython" {
        id: Some("python"),
        is_harmless: true,
        how: "python3.13 -X perf_jit app.py, recorded with --call-graph dwarf,32768 before 3.15; \
            python3.12 -X perf app.py for names only; earlier versions log no code; its own JIT compiler is off meanwhile",
        programs: &["python"],
        libraries: &["libpython3"],
        launchers: &["pytest", "py.test", "tox", "nox", "uv", "poetry", "pipenv"],
        logging_option: Some("perf_jit"),
        version_argument: Some("--version"),
        stacks: Some(
            "its interpreter keeps no frame pointers and needs copies of stacks: python3.13 -X perf_jit app.py, recorded with \
             --call-graph dwarf,32768",
        ),
    }

    /// Numba.
    Numba = "Numba" {
        id: Some("numba"),
        is_harmless: false,
        how: "NUMBA_ENABLE_PROFILING=1 python3 app.py, with an llvmlite that is built with perf support, which the wheels are not",
        programs: &["numba"],
        libraries: &["libllvmlite"],
    }

    /// PHP.
    Php = "PHP" {
        id: Some("php"),
        is_harmless: true,
        how: "php -d opcache.enable_cli=1 -d opcache.jit=tracing -d opcache.jit_buffer_size=64M -d opcache.jit_debug=32 \
            -d opcache.file_update_protection=0 app.php",
        programs: &["php", "php-cgi", "php-fpm"],
        libraries: &["libphp", "opcache.so"],
        launchers: &["composer", "phpunit"],
        logging_option: Some("opcache.jit_debug"),
        version_argument: Some("--version"),
    }

    /// Erlang/OTP.
    Erlang = "Erlang/OTP" {
        id: Some("erlang"),
        is_harmless: false,
        how: "erl +JPperf true",
        programs: &["erl", "beam"],
        launchers: &[
            "escript", "erlc", "dialyzer", "typer", "ct_run", "elixir", "iex", "mix", "rebar3", "gleam",
        ],
        logging_option: Some("+JPperf"),
    }

    /// Java.
    Java = "Java" {
        id: Some("java"),
        is_harmless: false,
        how: "java -XX:+PreserveFramePointer -agentpath:/path/to/libperf-jvmti.so App, with the absolute path of the agent, \
            which is built from tools/perf/jvmti of the kernel's sources; for names only, java \
            -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit App (17 and later)",
        programs: &["java"],
        libraries: &["libjvm.so"],
        launchers: &[
            "javac", "javadoc", "jar", "jshell", "gradle", "gradlew", "mvn", "mvnw", "ant", "sbt", "scala",
            "scalac", "kotlin", "kotlinc", "groovy", "clojure", "clj", "lein", "jruby",
        ],
        version_argument: Some("--version"),
    }

    /// OpenJ9.
    OpenJ9 = "OpenJ9" {
        id: None,
        is_harmless: true,
        how: "java -XX:+PerfTool App, for names only",
        libraries: &["libj9jit", "libj9vm"],
    }

    /// .NET.
    DotNet = ".NET" {
        id: Some("dotnet"),
        is_harmless: true,
        how: "DOTNET_PerfMapEnabled=1 DOTNET_EnableWriteXorExecute=0 dotnet app.dll, with DOTNET_PerfMapStubGranularity=2 as \
            well for .NET 10, whose jitdump ends in its second record without it; before .NET 6, \
            COMPlus_PerfMapEnabled=1, for names only",
        programs: &["dotnet"],
        libraries: &["libcoreclr.so"],
        launchers: &["pwsh"],
        version_argument: Some("--list-runtimes"),
    }

    /// Mono.
    Mono = "Mono" {
        id: Some("mono"),
        is_harmless: true,
        how: "MONO_DEBUG=disable_omit_fp mono --jitmap app.exe for names only; mono \
            --profile=log:nodefaults,jit,output=app.mlpd app.exe, and jitinject --mono-log app.mlpd",
        programs: &["mono", "mono-boehm", "mono-sgen"],
        libraries: &["libmonosgen"],
        launchers: &["mcs", "csharp"],
        logging_option: Some("--jitmap"),
        version_argument: Some("--version"),
    }

    /// Ruby.
    Ruby = "Ruby" {
        id: Some("ruby"),
        is_harmless: false,
        how: "ruby --yjit --yjit-perf app.rb (3.3 and later) or ruby --zjit --zjit-perf app.rb (4.0 and later), for names only; \
            if built with that compiler, which Debian's is not",
        programs: &["ruby"],
        libraries: &["libruby"],
        launchers: &["bundle", "rake", "rails", "rspec"],
        version_argument: Some("--version"),
    }

    /// Julia.
    Julia = "Julia" {
        id: Some("julia"),
        is_harmless: true,
        how: "ENABLE_JITPROFILING=1 julia app.jl",
        programs: &["julia"],
        libraries: &["libjulia"],
        version_argument: Some("--version"),
    }

    /// LuaJIT.
    LuaJit = "LuaJIT" {
        id: None,
        is_harmless: true,
        how: "it has no option for this; only one built with -DLUAJIT_USE_PERFTOOLS writes a perf map",
        programs: &["luajit"],
        libraries: &["libluajit"],
    }

    /// PostgreSQL.
    PostgreSql = "PostgreSQL" {
        id: None,
        is_harmless: true,
        how: "jit_profiling_support = on in postgresql.conf; if /tmp/.debug is another user's, where Debian's LLVM logs, also \
            JITDUMPDIR=DIR in the server's environment",
        programs: &["postgres"],
        libraries: &["llvmjit.so"],
    }

    /// LLVM's JIT compilers.
    Lli = "LLVM" {
        id: Some("lli"),
        is_harmless: true,
        how: "lli -jit-kind=mcjit app.ll; a program of your own registers createPerfJITEventListener(), or ORC's \
            PerfSupportPlugin; if /tmp/.debug is another user's, where Debian's LLVM logs, also JITDUMPDIR=DIR",
        programs: &["lli"],
        libraries: &["libLLVM"],
        version_argument: Some("--version"),
    }

    /// ROOT.
    Root = "ROOT" {
        id: Some("root"),
        is_harmless: true,
        how: "CLING_PROFILE=1 root app.C",
        programs: &["root", "root.exe", "cling"],
        libraries: &["libCling"],
    }

    /// oneDNN.
    OneDnn = "oneDNN" {
        id: Some("onednn"),
        is_harmless: true,
        how: "ONEDNN_JIT_PROFILE=6 app",
        programs: &["benchdnn"],
        libraries: &["libdnnl", "libmkldnn"],
    }

    /// Wasmtime.
    Wasmtime = "Wasmtime" {
        id: Some("wasmtime"),
        is_harmless: true,
        how: "wasmtime run --profile=jitdump app.wasm; a program of your own sets Config::profiler(ProfilingStrategy::JitDump)",
        programs: &["wasmtime"],
        // That of the Python package has an underscore.
        libraries: &["libwasmtime", "_libwasmtime"],
        logging_option: Some("--profile=jitdump"),
        version_argument: Some("--version"),
    }

    /// QEMU in user mode.
    Qemu = "QEMU" {
        id: Some("qemu"),
        is_harmless: true,
        how: "qemu-x86_64 -jitdump app (8.1 and later)",
        programs: &["qemu", "qemu-"],
        logging_option: Some("-jitdump"),
        version_argument: Some("--version"),
    }

    /// MoarVM.
    MoarVm = "MoarVM" {
        id: Some("moarvm"),
        is_harmless: true,
        how: "MVM_JIT_PERF_DUMP=1 raku app.raku; before 2026, MVM_JIT_PERF_MAP=1 for names only",
        programs: &["moar"],
        libraries: &["libmoar"],
        launchers: &["raku", "rakudo", "perl6"],
    }

    /// WAMR.
    Wamr = "WAMR" {
        id: None,
        is_harmless: true,
        how: "iwasm --enable-linux-perf app.wasm, if built with WAMR_BUILD_LINUX_PERF=1 and LLVM's JIT compiler",
        programs: &["iwasm"],
        libraries: &["libiwasm", "libvmlib"],
    }

    /// Wasmer.
    Wasmer = "Wasmer" {
        id: Some("wasmer"),
        is_harmless: true,
        how: "wasmer run --profiler=perfmap app.wasm, for names only",
        programs: &["wasmer"],
        libraries: &["libwasmer"],
    }

    /// HHVM.
    Hhvm = "HHVM" {
        id: Some("hhvm"),
        is_harmless: true,
        how: "hhvm -vEval.PerfJitDump=true app.hack",
        programs: &["hhvm"],
    }

    /// Dart.
    Dart = "Dart" {
        id: Some("dart"),
        is_harmless: true,
        how: "dart --generate_perf_jitdump app.dart",
        programs: &["dart", "dartvm"],
        launchers: &["flutter"],
    }
}

impl Runtime {
    /// Returns the names of the runtimes that can be made to log their code, as [`Runtime::from_id`] takes them.
    pub fn ids() -> impl Iterator<Item = &'static str> {
        Description::all().filter_map(|description| description.id)
    }

    /// Returns the runtime with a name such as `node`.
    pub fn from_id(id: &str) -> Option<Self> {
        let found = Description::all().find(|description| description.id == Some(id));
        found.map(|description| description.runtime)
    }

    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// Returns the runtime that a program of this base name is, or starts.
    pub fn of_program(name: &[u8]) -> Option<Self> {
        let is_launcher = |description: &Description| {
            let mut launchers = description.launchers.iter();
            launchers.any(|launcher| launcher.as_bytes() == name)
        };
        let found =
            Description::all().find(|description| description.has_program(name) || is_launcher(description));
        found.map(|description| description.runtime)
    }

    /// Returns the runtime of a running process.
    pub fn of_process(pid: u32) -> Option<Self> {
        let program = kernel::read_link(format!("/proc/{pid}/exe")).ok()?;
        Self::of_program(base_name(program.as_os_str().as_bytes()))
    }
}

impl Description {
    /// What every runtime has, without files and the like.
    const fn new(
        runtime: Runtime,
        name: &'static str,
        id: Option<&'static str>,
        is_harmless: bool,
        how: &'static str,
    ) -> Self {
        Self {
            runtime,
            id,
            name,
            programs: &[],
            libraries: &[],
            launchers: &[],
            how,
            logging_option: None,
            version_argument: None,
            is_harmless,
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
        if has_support {
            self.how
        } else {
            "it logs code on x86-64 and AArch64 only"
        }
    }

    /// Returns all, in the order in which advice is printed.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        Runtime::ALL.iter().map(|runtime| runtime.description())
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
        for name in ["PostgreSQL", "LLVM"] {
            assert!(how(name, b"x86_64").contains("JITDUMPDIR"), "{name}");
        }
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
            ("jruby", Some(Runtime::Java)),
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
