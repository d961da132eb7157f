//! Kinds of code: what native functions do for the language, by their names.

use std::fmt;
use std::sync::LazyLock;

use jitdump::names;
use serde::Serialize;

use crate::collections::hash::HashSet;

/// Kind of code: what it does. Where it is from is a [`CodeOrigin`](crate::results::summary::profile::CodeOrigin), which
/// is a `kind` in JSON, too.
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

/// Starts of the names of native functions: collectors of V8, JavaScriptCore, SpiderMonkey, Java, Mono, CPython, PHP,
/// Erlang, Ruby, LuaJIT, Go and Boehm's.
const COLLECTORS: &[&str] = &[
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
    "JSC::Heap::collect",
    "JSC::Heap::run",
    "JSC::Heap::sweep",
    "JSC::SlotVisitor::",
    "JSC::MarkedBlock::Handle::sweep",
    "js::gc::GCRuntime::collect",
    "js::gc::GCRuntime::minorGC",
    "js::gc::TenuringTracer::",
    "js::Nursery::collect",
    "js::GCMarker::",
    "js::GCParallelTask::",
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
const COMPILERS: &[&str] = &[
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
    "JSC::Parser<",
    "JSC::BytecodeGenerator::",
    "JSC::JIT::",
    "JSC::JITPlan::",
    "JSC::DFG::Plan::",
    "JSC::FTL::",
    "JSC::B3::",
    "js::frontend::",
    "js::jit::BaselineCompile",
    "js::jit::CodeGenerator::",
    "js::jit::Compile",
    "js::jit::IonCompile",
    "js::jit::LinkIonScript",
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
const IDLE: &[&str] = &[
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
const THREADS: &[(&str, Kind)] = &[
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
    ("HeapHelper", Kind::Gc),
    ("JITWorker", Kind::Compiler),
    ("rustc", Kind::Compiler),
    ("swapper", Kind::Idle),
];

/// Starts of the names of JIT code that is not a function of the program.
const HELPERS: &[&str] = &[
    "RegExp:",
    "RegExp.",
    "JSC-Yarr",
    "BaselineIC: ",
    "BaselineICFallback: ",
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
    "forward exception",
    "Cont thaw",
    "jbyte_disjoint_",
    "jbyte_conjoint_",
    "jbyte_fill",
    "jshort_disjoint_",
    "jshort_conjoint_",
    "jshort_fill",
    "jint_disjoint_",
    "jint_conjoint_",
    "jint_fill",
    "jlong_disjoint_",
    "jlong_conjoint_",
    "oop_disjoint_",
    "oop_conjoint_",
    "arrayof_j",
    "arrayof_oop_",
    "checkcast_arraycopy",
    "Library:'",
    "MethodHandles adapters",
    "native signature handlers",
];

/// Whole names of such code, with spaces between them: Java's, then Dart's, then SpiderMonkey's.
///
/// Quirk: these also log stubs, with names like those of functions (JDK 17 and 21, the recording `java17`; Dart 3.13;
/// PythonMonkey 1.4.1, where each regular expression is `RegExp`). What a stub copies, allocates or calls is done for its
/// caller.
const STUBS: &str = "
Interpreter adapters flush_icache_stub call_stub catch_exception unsafe_arraycopy generic_arraycopy unsafe_setmemory
get_previous_sp orderaccess_fence nmethod_entry_barrier jfr_write_checkpoint jfr_return_lease wrong_method_stub
wrong_method_abstract_stub ic_miss_stub resolve_opt_virtual_call resolve_virtual_call resolve_static_call
SafepointBlob DeoptimizationBlob UncommonTrapBlob ExceptionBlob InlineCacheBuffer _new_instance_Java _new_array_Java
_new_array_nozero_Java _multianewarray2_Java _multianewarray3_Java _multianewarray4_Java _multianewarray5_Java
_multianewarrayN_Java _complete_monitor_locking_Java _monitor_notify_Java _monitor_notifyAll_Java _rethrow_Java
_slow_arraycopy_Java _register_finalizer_Java _notify_jvmti_vthread_start _notify_jvmti_vthread_end
_notify_jvmti_vthread_mount _notify_jvmti_vthread_unmount _invokeGeneric _invokeBasic _linkToVirtual _linkToStatic
_linkToSpecial _linkToInterface _linkToNative _data_cache_writeback _data_cache_writeback_sync
lookup_secondary_supers_table updateBytesCRC32 updateBytesCRC32C updateBytesAdler32 vectorizedMismatch multiplyToLen
squareToLen bigIntegerRightShiftWorker bigIntegerLeftShiftWorker implEncode implDecode float16ToFloat floatToFloat16
libmExp libmLog libmLog10 libmPow libmSin libmCos libmTan libmFmod f2i_fixup f2l_fixup d2i_fixup d2l_fixup
aescrypt_encryptBlock aescrypt_decryptBlock cipherBlockChaining_encryptAESCrypt cipherBlockChaining_decryptAESCrypt
electronicCodeBook_encryptAESCrypt electronicCodeBook_decryptAESCrypt counterMode_AESCrypt galoisCounterMode_AESCrypt
ghash_processBlocks chacha20Block poly1305_processBlocks md5_implCompress md5_implCompressMB sha1_implCompress
sha1_implCompressMB sha256_implCompress sha256_implCompressMB sha512_implCompress sha512_implCompressMB
sha3_implCompress sha3_implCompressMB double_keccak kyberNtt kyberInverseNtt kyberNttMult kyberAddPoly_2
kyberAddPoly_3 kyber12To16 kyberBarrettReduce dilithiumAlmostNtt dilithiumAlmostInverseNtt dilithiumNttMult
dilithiumMontMulByConstant dilithiumDecomposePoly
CallToRuntime InvokeDartCode InvokeDartCodeFromBytecode LazyCompile InterpretCall FixCallersTarget CallStaticFunction
OptimizeFunction CallBootstrapNative CallNoScopeNative CallAutoScopeNative CallNativeThroughSafepoint EnterSafepoint
ExitSafepoint FfiCallTrampoline FfiCallbackTrampoline SwitchableCallMiss MonomorphicSmiableCheck SingleTargetCall
ICCallThroughCode MegamorphicCall FixAllocationStubTarget DeoptimizeLazyFromReturn DeoptimizeLazyFromThrow
WriteBarrier WriteBarrierWrappers ArrayWriteBarrier AllocateArray AllocateMint AllocateMintSharedWithFPURegs
AllocateMintSharedWithoutFPURegs AllocateDouble AllocateInt8Array AllocateUint8Array AllocateInt16Array
AllocateUint16Array AllocateInt32Array AllocateUint32Array AllocateInt64Array AllocateUint64Array AllocateFloat32Array
AllocateFloat64Array AllocateClosure1 AllocateClosure2 AllocateClosure3 AllocateClosure4 AllocateContext
AllocateGrowableArray AllocateObject AllocateObjectParameterized AllocateObjectSlow AllocateRecord AllocateRecord2
AllocateRecord2Named AllocateRecord3 AllocateRecord3Named BoxDouble CloneContext DoubleToInteger
OneArgCheckInlineCache TwoArgsCheckInlineCache OneArgOptimizedCheckInlineCache TwoArgsOptimizedCheckInlineCache
SmiAddInlineCache SmiLessInlineCache SmiEqualInlineCache ZeroArgsUnoptimizedStaticCall OneArgUnoptimizedStaticCall
TwoArgsUnoptimizedStaticCall AssertSubtype AssertAssignable Subtype1TestCache Subtype2TestCache Subtype3TestCache
Subtype4TestCache Subtype6TestCache Subtype7TestCache DefaultTypeTest DefaultNullableTypeTest TopTypeTypeTest
TypeParameterTypeTest NullableTypeParameterTypeTest SlowTypeTest LazySpecializeTypeTest LazySpecializeNullableTypeTest
InstantiateTypeArguments InstantiateTypeArgumentsMayShareInstantiatorTA InstantiateTypeArgumentsMayShareFunctionTA
InstantiateType InstantiateTypeNonNullableClassTypeParameter InstantiateTypeNullableClassTypeParameter
InstantiateTypeNonNullableFunctionTypeParameter InstantiateTypeNullableFunctionTypeParameter InitStaticField
InitLateStaticField InitLateFinalStaticField InitInstanceField InitLateInstanceField InitLateFinalInstanceField
InitAsync InitAsyncStar InitSyncStar AwaitWithTypeCheck ReturnAsync ReturnAsyncNotFuture ReturnAsyncStar
YieldAsyncStar SuspendSyncStarAtStart SuspendSyncStarAtYield CloneSuspendState AsyncExceptionHandler
NoSuchMethodDispatcher JumpToFrame RunExceptionHandler StackOverflowSharedWithFPURegs
StackOverflowSharedWithoutFPURegs
RegExp RegExpMatcherStub RegExpSearcherStub RegExpExecMatchStub RegExpExecTestStub StringConcatStub DebugTrapHandler
";

/// Ends of the names of such code, for Java's compiler C1 and exceptions.
const STUB_ENDS: [&str; 2] = [" Runtime1 stub", " throw_exception"];

fn starts(name: &str, known: &[&str]) -> bool {
    known.iter().any(|start| name.starts_with(start))
}

/// Returns the kind of a function of an executable or library.
pub fn of_native(name: &str) -> Kind {
    if starts(name, COLLECTORS) {
        Kind::Gc
    } else if starts(name, COMPILERS) {
        Kind::Compiler
    } else {
        Kind::Native
    }
}

/// Returns the kind of a function of the kernel.
pub fn of_kernel(name: &str) -> Kind {
    if starts(name, IDLE) {
        Kind::Idle
    } else {
        Kind::Kernel
    }
}

/// Whether a name is one of [`STUBS`].
fn is_stub(name: &[u8]) -> bool {
    static NAMES: LazyLock<HashSet<&[u8]>> =
        LazyLock::new(|| STUBS.split_ascii_whitespace().map(str::as_bytes).collect());
    NAMES.contains(name)
}

/// Returns the kind of JIT code.
pub fn of_jit(name: &[u8]) -> Kind {
    let has_start = HELPERS.iter().any(|start| name.starts_with(start.as_bytes()));
    let has_end = || STUB_ENDS.iter().any(|end| name.ends_with(end.as_bytes()));
    if has_start || is_stub(name) || has_end() || names::is_built_in(name) {
        Kind::Native
    } else {
        Kind::Language
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
            (
                "js::gc::GCRuntime::minorGC(JS::GCReason, js::gc::Phase)",
                Kind::Gc,
            ),
            ("js::gc::CellAllocator::AllocTenuredCell", Kind::Native),
            ("js::frontend::CompileGlobalScript", Kind::Compiler),
            ("js::jit::BaselineCompileFromBaselineInterpreter", Kind::Compiler),
            ("js::jit::InvokeFunction", Kind::Native),
            ("JSC::SlotVisitor::drain", Kind::Gc),
            ("JSC::Heap::writeBarrierSlowPath", Kind::Native),
            ("JSC::B3::generate", Kind::Compiler),
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
            (b"jbyte_disjoint_arraycopy_avx3", Kind::Native),
            (b"call_stub", Kind::Native),
            (b"_new_array_Java", Kind::Native),
            (b"resolve_virtual_call", Kind::Native),
            (b"new_type_array Runtime1 stub", Kind::Native),
            (b"Ljava/lang/System;call_stub()V", Kind::Language),
            (b"long Copy.copyBytes(int)", Kind::Language),
            (b"CallToRuntime", Kind::Native),
            (b"VMWrapper: AtomizeString", Kind::Native),
            (b"BaselineICFallback: GetProp", Kind::Native),
            (b"RegExp", Kind::Native),
            (b"RegExpMatcherStub", Kind::Native),
            (b"JSC-FTLThunk: unspecified", Kind::Native),
            (b"JSC-DFGOSRExit: exit #1", Kind::Native),
            (b"JSC-FTL: next#AMHzEa", Kind::Language),
            (b"Ion: RegExp (/a.js:1:2)", Kind::Language),
            (b"Library:'dart:core' Class: Object", Kind::Native),
            (b"CallToRuntime_run", Kind::Language),
            (b"Interpreter: main (a.js:1:2)", Kind::Language),
            (b"py::main:/a.py", Kind::Language),
            (b"Lorg/example/Main;::run", Kind::Language),
        ] {
            assert_eq!(of_jit(name), expected, "{}", String::from_utf8_lossy(name));
        }
        for (name, expected) in [
            ("C2 CompilerThre", Kind::Compiler),
            ("JITWorker", Kind::Compiler),
            ("HeapHelper", Kind::Gc),
        ] {
            assert_eq!(of_thread(name), Some(expected), "{name}");
        }
        assert_eq!(of_thread("node"), None);
    }
}
