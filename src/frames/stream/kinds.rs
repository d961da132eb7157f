//! Kinds of code: what native functions do for the language, by their names.

use std::fmt;

use jitdump::names;
use serde::Serialize;

/// Kind of code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Functions of the language that a runtime compiles or interprets.
    Language,
    /// Code of executables and libraries, and built-in code of runtimes.
    Native,
    /// The kernel.
    Kernel,
    /// A compiler of a runtime.
    Compiler,
    /// A garbage collector.
    Gc,
    /// A CPU without work.
    Idle,
    /// Anything else.
    #[default]
    Unknown,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Language,
        Self::Native,
        Self::Kernel,
        Self::Compiler,
        Self::Gc,
        Self::Idle,
        Self::Unknown,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Language => "language",
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::Compiler => "compiler",
            Self::Gc => "GC",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Starts of the names of native functions: collectors of V8, Java, Mono, CPython, PHP, Erlang, Ruby, LuaJIT, Go and Boehm's.
const COLLECTORS: [&str; 44] = [
    "v8::internal::Scavenge",
    "v8::internal::MarkCompact",
    "v8::internal::MinorMarkCompact",
    "v8::internal::MinorMarkSweep",
    "v8::internal::MarkingVisitor",
    "v8::internal::ConcurrentMarking",
    "v8::internal::IncrementalMarking",
    "v8::internal::MainMarkingVisitor",
    "v8::internal::YoungGenerationMarking",
    "v8::internal::Sweeper",
    "v8::internal::PageEvacuation",
    "v8::internal::Evacuator",
    "v8::internal::FullEvacuator",
    "v8::internal::PointersUpdating",
    "v8::internal::Heap::CollectGarbage",
    "v8::internal::Heap::PerformGarbageCollection",
    "v8::internal::Heap::Scavenge",
    "v8::internal::Heap::MarkCompact",
    "v8::internal::ScavengerCollector",
    "v8::internal::ArrayBufferSweeper",
    "cppgc::internal::Marker",
    "cppgc::internal::Sweeper",
    "G1",
    "ParallelCompact",
    "PSScavenge",
    "PSPromotionManager",
    "ShenandoahHeap",
    "ShenandoahConcurrentGC",
    "ZMark",
    "ZRelocate",
    "DefNewGeneration",
    "TenuredGeneration",
    "GenCollectedHeap",
    "sgen_",
    "gc_collect",
    "_PyGC_",
    "PyGC_",
    "zend_gc_",
    "erts_garbage_collect",
    "gc_mark",
    "gc_sweep",
    "lj_gc",
    "runtime.gc",
    "GC_mark",
];

/// The same for compilers.
const COMPILERS: [&str; 30] = [
    "v8::internal::compiler::",
    "v8::internal::maglev::",
    "v8::internal::baseline::",
    "v8::internal::interpreter::Bytecode",
    "v8::internal::parsing::",
    "v8::internal::Parser",
    "v8::internal::PreParser",
    "v8::internal::Compiler::",
    "v8::internal::OptimizedCompilationJob",
    "v8::internal::OptimizingCompileDispatcher",
    "v8::internal::TurbofanCompilationJob",
    "v8::internal::RegExpCompiler",
    "v8::internal::wasm::WasmCompil",
    "v8::internal::wasm::LiftoffCompiler",
    "v8::internal::wasm::ExecuteCompilation",
    "v8::internal::ConcurrentSparkplug",
    "CompileBroker::",
    "C2Compiler::",
    "Compiler::compile_method",
    "Compile::",
    "PhaseIdealLoop::",
    "PhaseChaitin::",
    "Compilation::",
    "LinearScan::",
    "mono_jit_compile",
    "mini_method_compile",
    "llvm::",
    "zend_jit",
    "beamasm_",
    "cranelift_codegen::",
];

/// Starts of the names of kernel functions in which a CPU waits for work.
const IDLE: [&str; 10] = [
    "cpuidle_",
    "do_idle",
    "default_idle",
    "intel_idle",
    "acpi_idle",
    "acpi_safe_halt",
    "native_safe_halt",
    "pv_native_safe_halt",
    "mwait_idle",
    "poll_idle",
];

/// Starts of the names of threads, and what they do all the time.
const THREADS: [(&str, Kind); 14] = [
    ("C1 CompilerThre", Kind::Compiler),
    ("C2 CompilerThre", Kind::Compiler),
    ("JVMCI-native", Kind::Compiler),
    ("GC Thread#", Kind::Gc),
    ("G1 ", Kind::Gc),
    ("ZDriver", Kind::Gc),
    ("ZWorker", Kind::Gc),
    ("Shenandoah", Kind::Gc),
    (".NET Tiered Com", Kind::Compiler),
    (".NET BGC", Kind::Gc),
    (".NET Server GC", Kind::Gc),
    ("SGen worker", Kind::Gc),
    ("rustc", Kind::Compiler),
    ("swapper", Kind::Idle),
];

/// Starts of the names of JIT code that is not a function of the program.
const HELPERS: [&str; 18] = [
    "RegExp:",
    "RegExp.",
    "JSC-Yarr",
    "BaselineIC: ",
    "IonIC: ",
    "IC: ",
    "StubRoutines",
    "vtable stub",
    "vtable chunks",
    "C1 Runtime ",
    "C2 Runtime ",
    "Shared Runtime ",
    "g1_post_barrier",
    "g1_pre_barrier",
    "jni_fast_Get",
    "itable stub",
    "I2C/C2I adapters",
    "erts_beamasm:",
];

fn starts(name: &str, known: &[&str]) -> bool {
    known.iter().any(|start| name.starts_with(start))
}

/// Returns the kind of a function of an executable or library.
pub fn of_native(name: &str) -> Kind {
    if starts(name, &COLLECTORS) {
        Kind::Gc
    } else if starts(name, &COMPILERS) {
        Kind::Compiler
    } else {
        Kind::Native
    }
}

/// Returns the kind of a function of the kernel.
pub fn of_kernel(name: &str) -> Kind {
    if starts(name, &IDLE) {
        Kind::Idle
    } else {
        Kind::Kernel
    }
}

/// Returns the kind of JIT code.
pub fn of_jit(name: &[u8]) -> Kind {
    // Java's, which has no name for the method.
    let is_interpreter = name == b"Interpreter";
    let is_helper = is_interpreter || HELPERS.iter().any(|start| name.starts_with(start.as_bytes()));
    match is_helper || names::is_built_in(name) {
        true => Kind::Native,
        false => Kind::Language,
    }
}

/// Returns what a thread does all the time, if its name shows that.
pub fn of_thread(name: &str) -> Option<Kind> {
    let mut known = THREADS.iter();
    known
        .find(|(start, _)| name.starts_with(start))
        .map(|&(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_what_code_does() {
        for (name, expected) in [
            ("v8::internal::Scavenger::ScavengeObject", Kind::Gc),
            ("v8::internal::compiler::GraphReducer::ReduceTop", Kind::Compiler),
            ("Builtins_LoadIC_Megamorphic", Kind::Native),
            ("_PyEval_EvalFrameDefault", Kind::Native),
        ] {
            assert_eq!(of_native(name), expected, "{name}");
        }
        for (name, expected) in [
            (&b"JS:*eat /a.js:1:2"[..], Kind::Language),
            (b"RegExp:a+", Kind::Native),
            (b"BytecodeHandler:LdaSmi", Kind::Native),
            (b"Interpreter", Kind::Native),
            (b"vtable chunks", Kind::Native),
            (b"C1 Runtime counter_overflow_blob", Kind::Native),
            (b"Interpreter: main (a.js:1:2)", Kind::Language),
            (b"py::main:/a.py", Kind::Language),
            (b"Lorg/example/Main;::run", Kind::Language),
        ] {
            assert_eq!(of_jit(name), expected, "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(of_thread("C2 CompilerThre"), Some(Kind::Compiler));
        assert_eq!(of_thread("node"), None);
    }
}
