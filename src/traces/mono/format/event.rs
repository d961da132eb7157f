//! Events of a log: one type for all data versions.
//!
//! Numbers that this program does not interpret, such as handle types, keep their values from the file.

use jitdump::{Address, RuntimeTime};

use crate::traces::mono::format::list::{EncodedList, MethodFrames};

/// A method, identified by the address of the runtime's `MonoMethod`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Method(pub u64);

/// An object on the managed heap, identified by its address at that time. Collections move objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ManagedObject(pub u64);

/// Another structure of the runtime, identified by its address: a class, vtable, image, assembly, domain or
/// context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pointer(pub u64);

/// A thread, identified by its `pthread_t`, not by the kernel's thread ID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ThreadId(pub u64);

/// An event of a log.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LogEvent<'a> {
    /// Time in nanoseconds of CLOCK_MONOTONIC. An event without a time, as some are before data version 13,
    /// has the time of the event before it in the buffer.
    ///
    /// Times step back when Mono's writer thread logs methods that other threads compiled.
    pub time: RuntimeTime,
    /// Thread that owns the buffer. For [`LogEventKind::Jit`] and [`LogEventKind::SampleHit`], that is the writer thread.
    pub thread: ThreadId,
    /// Offset in the file, or in the unpacked data of a packed file, in bytes.
    pub offset: u64,
    /// Content of the event.
    pub kind: LogEventKind<'a>,
}

/// Content of an event. Names are as in the file, without the NUL. Stacks are empty if none was recorded.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum LogEventKind<'a> {
    /// An object was allocated.
    Allocation {
        /// Type of the object.
        class: TypeReference,
        /// The allocated object.
        object: ManagedObject,
        /// Size on the heap, in bytes.
        size: u64,
        /// Stack of the allocation.
        frames: MethodFrames<'a>,
    },
    /// The garbage collector reached a phase.
    Collection {
        /// The phase.
        phase: CollectionPhase,
        /// Collected generation; 0 for young objects only.
        generation: u64,
    },
    /// The size of the heap changed.
    HeapResize {
        /// New size, in bytes.
        size: u64,
    },
    /// The garbage collector moved objects.
    Moves(EncodedList<'a, ObjectMove>),
    /// A handle for an object was created.
    HandleCreated {
        /// `MonoGCHandleType`: 0 weak, 1 weak and tracking resurrection, 2 normal, 3 pinned.
        handle_type: u64,
        /// ID of the handle.
        handle: u64,
        /// Object that the handle refers to.
        object: ManagedObject,
        /// Stack of the creation.
        frames: MethodFrames<'a>,
    },
    /// A handle was freed.
    HandleDestroyed {
        /// Type of the handle, as in [`LogEventKind::HandleCreated`].
        handle_type: u64,
        /// ID of the handle.
        handle: u64,
        /// Stack of the destruction.
        frames: MethodFrames<'a>,
    },
    /// The runtime starts to run finalizers.
    FinalizeStart,
    /// The runtime finished running finalizers.
    FinalizeEnd,
    /// The finalizer of an object starts.
    FinalizeObjectStart(ManagedObject),
    /// The finalizer of an object ended.
    FinalizeObjectEnd(ManagedObject),
    /// A part of the runtime's metadata was loaded, unloaded or named.
    Metadata {
        /// What happened to it.
        stage: Stage,
        /// The part of the metadata.
        subject: Metadata<'a>,
    },
    /// A method was entered.
    Enter(Method),
    /// A method returned.
    Leave(Method),
    /// A method was left by an exception.
    ExceptionLeave(Method),
    /// A method has native code, compiled at run time or ahead of time.
    ///
    /// From data version 8 on, the writer thread logs this event when it first encounters the method, after
    /// [`LogEventKind::CodeBuffer`].
    Jit {
        /// The method.
        method: Method,
        /// Start address of its code.
        code: Address,
        /// Size of its code in bytes; 0 if unknown (from data version 11 on).
        size: u64,
        /// `Namespace.Class:Method (arguments)`.
        name: &'a [u8],
    },
    /// An exception was thrown.
    Throw {
        /// The exception.
        object: ManagedObject,
        /// Stack of the throw.
        frames: MethodFrames<'a>,
    },
    /// A clause of a method handles an exception.
    Clause {
        /// `MonoExceptionEnum`: 0 catch, 1 filter, 2 finally, 4 fault.
        clause_type: u64,
        /// Index of the clause in the method.
        number: u64,
        /// The method.
        method: Method,
        /// The exception, from data version 14 on.
        object: Option<ManagedObject>,
    },
    /// A thread waits for a lock, acquired it or failed to.
    Monitor {
        /// What happened.
        event: MonitorEvent,
        /// The object that has the lock.
        object: ManagedObject,
        /// Stack of the thread; before data version 14 only for contention.
        frames: MethodFrames<'a>,
    },
    /// A heap shot starts.
    HeapStart,
    /// A heap shot ended.
    HeapEnd,
    /// An object in a heap shot.
    HeapObject {
        /// The object.
        object: ManagedObject,
        /// Type of the object.
        class: TypeReference,
        /// Size on the heap, in bytes; 0 if this event continues the references of the previous object.
        size: u64,
        /// Generation of the object, from data version 16 on.
        generation: Option<u8>,
        /// References from the object to others.
        references: EncodedList<'a, ObjectReference>,
    },
    /// Roots that keep objects alive.
    HeapRoots {
        /// Collection in which the roots were found; up to data version 14.
        collection: Option<u64>,
        /// The roots.
        roots: EncodedList<'a, Root>,
    },
    /// A memory range with roots was registered with the garbage collector.
    RootRegister {
        /// Start address of the range.
        start: Address,
        /// Size of the range, in bytes.
        size: u64,
        /// Source of the roots (`MonoGCRootSource`).
        source: u8,
        /// Additional information about `source`, such as the address of a class.
        key: Pointer,
        /// Description of the roots.
        name: &'a [u8],
    },
    /// A memory range with roots was unregistered.
    RootUnregister {
        /// Start address of the range.
        start: Address,
    },
    /// The sampler interrupted a thread. The event's time is that of the sample.
    SampleHit {
        /// Sampled quantity, such as 1 for cycles (`MonoProfilerSampleType`); up to data version 13.
        sample_type: Option<u64>,
        /// Sampled thread; before data version 11 the thread of the buffer.
        thread: ThreadId,
        /// Instruction pointer and the recorded return addresses, innermost first.
        addresses: EncodedList<'a, Address>,
        /// Stack of managed methods.
        frames: MethodFrames<'a>,
    },
    /// A native function.
    NativeSymbol {
        /// Start address of the function.
        start: Address,
        /// Size in bytes; 0 if unknown.
        size: u64,
        /// Name of the function.
        name: &'a [u8],
    },
    /// A mapped file; up to data version 15.
    NativeBinary {
        /// Start address of the mapping.
        start: Address,
        /// Offset of the mapping in the file, in bytes.
        offset: u64,
        /// Size of the mapping, in bytes.
        size: u64,
        /// Path of the file.
        name: &'a [u8],
    },
    /// Descriptions of counters.
    CounterDescriptions(EncodedList<'a, CounterDescription<'a>>),
    /// Counters whose values changed.
    Counters {
        /// Milliseconds since the runtime started to read counters. Only before data version 13, where it is
        /// the event's only time.
        milliseconds: Option<u64>,
        /// The changed counters.
        values: EncodedList<'a, CounterChange<'a>>,
    },
    /// The runtime generated the code of a method, or code that is not a method.
    CodeBuffer {
        /// Kind of code.
        kind: CodeBufferKind,
        /// Start address of the code.
        start: Address,
        /// Size of the code, in bytes.
        size: u64,
        /// Name of a [`CodeBufferKind::SpecificTrampoline`]; empty for all others.
        name: &'a [u8],
    },
    /// Coverage of an assembly.
    CoverageAssembly {
        /// Name of the assembly.
        name: &'a [u8],
        /// GUID of the assembly.
        guid: &'a [u8],
        /// File of the assembly.
        file: &'a [u8],
        /// Coverage of its methods.
        methods: Coverage,
    },
    /// Description of a method, to which its covered statements refer.
    CoverageMethod {
        /// Name of the assembly.
        assembly: &'a [u8],
        /// Name of the class.
        class: &'a [u8],
        /// Name of the method.
        name: &'a [u8],
        /// Signature of the method.
        signature: &'a [u8],
        /// Source file of the method.
        file: &'a [u8],
        /// Metadata token of the method.
        token: u64,
        /// ID that its statements use.
        id: u64,
        /// Number of statements.
        statements: u64,
    },
    /// Coverage of a statement.
    CoverageStatement {
        /// ID of the [`LogEventKind::CoverageMethod`].
        method: u64,
        /// IL offset relative to the previous statement.
        offset: u64,
        /// Number of executions.
        count: u64,
        /// Line, counted from 1.
        line: u64,
        /// Column, counted from 1.
        column: u64,
    },
    /// Coverage of a class.
    CoverageClass {
        /// Name of the assembly.
        assembly: &'a [u8],
        /// Name of the class.
        name: &'a [u8],
        /// Coverage of its methods.
        methods: Coverage,
    },
    /// The buffers of all threads have been written up to this event. 0 is periodic; 1 is before and 2 after
    /// a stop of the world.
    SyncPoint(u8),
    /// Identity of the ahead-of-time compiler's output that matches the runtime.
    AotId(&'a [u8]),
}

/// Type of an object. Since data version 15, events refer to vtables instead of classes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TypeReference {
    /// The object's class.
    Class(Pointer),
    /// The object's vtable, which represents a class in a domain.
    VTable(Pointer),
}

/// Phase of a garbage collection (`MonoProfilerGCEvent`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollectionPhase {
    /// The collection starts.
    Start,
    /// Marking starts. This and the next three exist up to data version 13.
    MarkStart,
    /// Marking ends.
    MarkEnd,
    /// Reclaiming starts.
    ReclaimStart,
    /// Reclaiming ends.
    ReclaimEnd,
    /// The collection ends.
    End,
    /// Threads are about to be stopped.
    PreStopWorld,
    /// Threads are stopped.
    PostStopWorld,
    /// Threads are about to be resumed.
    PreStartWorld,
    /// Threads are resumed.
    PostStartWorld,
    /// Threads are about to be stopped, and the lock for that is held.
    PreStopWorldLocked,
    /// Threads are resumed, and the lock is released.
    PostStartWorldUnlocked,
    /// Unknown phase, with its number in the file.
    Other(u64),
}

/// What happened to a lock (`MonoProfilerMonitorEvent`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MonitorEvent {
    /// A thread waits for the lock.
    Contention,
    /// The thread acquired the lock.
    Done,
    /// The thread failed to acquire the lock.
    Fail,
    /// Unknown event, with its number in the file.
    Other(u8),
}

/// What happened to the subject of a [`LogEventKind::Metadata`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// The subject was named. A class or image with no other event is loaded.
    Name,
    /// Loading starts.
    LoadStart,
    /// Loading is complete.
    LoadEnd,
    /// Unloading starts.
    UnloadStart,
    /// Unloading is complete.
    UnloadEnd,
    /// Loading failed.
    LoadError,
}

/// The subject of a [`LogEventKind::Metadata`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Metadata<'a> {
    /// A class.
    Class {
        /// The class.
        class: Pointer,
        /// Image that contains the class.
        image: Pointer,
        /// Full name of the class.
        name: &'a [u8],
    },
    /// A file with code.
    Image {
        /// The image.
        image: Pointer,
        /// Path of the image.
        name: &'a [u8],
        /// Module version ID (MVID), which identifies the content; from data version 16 on, otherwise empty.
        mvid: &'a [u8],
    },
    /// An assembly.
    Assembly {
        /// The assembly.
        assembly: Pointer,
        /// Image of the assembly, from data version 14 on.
        image: Option<Pointer>,
        /// Full name of the assembly.
        name: &'a [u8],
    },
    /// An application domain.
    Domain {
        /// The domain.
        domain: Pointer,
        /// Name of the domain; only for [`Stage::Name`].
        name: &'a [u8],
    },
    /// A thread.
    Thread {
        /// The thread.
        thread: ThreadId,
        /// Name of the thread; only for [`Stage::Name`].
        name: &'a [u8],
    },
    /// A context.
    Context {
        /// The context.
        context: Pointer,
        /// Domain of the context.
        domain: Pointer,
    },
    /// A vtable: a class in a domain.
    VTable {
        /// The vtable.
        vtable: Pointer,
        /// Domain of the vtable; 0 for all domains.
        domain: Pointer,
        /// Class of the vtable.
        class: Pointer,
    },
}

/// Kind of generated code (`MonoProfilerCodeBufferType`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CodeBufferKind {
    /// A method. Up to data version 13, IDs of kinds were one higher, and 0 was an unknown kind.
    Method,
    /// Compiles a method when it is called; up to data version 16.
    MethodTrampoline,
    /// Passes a boxed value to a method of a value type.
    UnboxTrampoline,
    /// Selects the implementation of an interface method.
    InterfaceTrampoline,
    /// Passes the type information that generic code needs.
    GenericsTrampoline,
    /// A trampoline with a name.
    SpecificTrampoline,
    /// Other small helper code.
    Helper,
    /// Acquires a lock; up to data version 16.
    Monitor,
    /// Calls a delegate.
    DelegateInvoke,
    /// Throws exceptions and calls their handlers.
    ExceptionHandling,
    /// Unknown kind, as numbered from data version 14 on; -1 for the unknown kind of older versions.
    Other(i64),
}

/// The move of an object by the garbage collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectMove {
    /// Old address.
    pub from: ManagedObject,
    /// New address.
    pub to: ManagedObject,
}

/// A reference from one object to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectReference {
    /// Offset of the reference in the object, in bytes; from data version 2 on.
    pub offset: Option<u64>,
    /// Object that is referred to.
    pub object: ManagedObject,
}

/// A root of the managed heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// Object that the root keeps alive.
    pub object: ManagedObject,
    /// Address or kind of the root.
    pub origin: RootOrigin,
}

/// Origin of a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RootOrigin {
    /// Address of the root.
    Address(Address),
    /// Kind of the root; up to data version 14.
    Kind {
        /// Kind of the root (`MonoProfileGCRootType`).
        kind: u64,
        /// Additional information for the kind.
        extra: u64,
    },
}

/// Description of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterDescription<'a> {
    /// Category of the counter (`MONO_COUNTER_*`).
    pub section: u64,
    /// Name of the category if it is not one of Mono's own; otherwise empty.
    pub section_name: &'a [u8],
    /// Name of the counter.
    pub name: &'a [u8],
    /// Type of the values.
    pub value_type: u64,
    /// Unit of the values.
    pub unit: u64,
    /// Variance: how the values may change.
    pub variance: u64,
    /// ID that changes of the counter use.
    pub index: u64,
}

/// Change of a counter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CounterChange<'a> {
    /// ID of the counter.
    pub index: u64,
    /// New value, or difference to the previous value.
    pub value: CounterValue<'a>,
}

/// New value or difference of a counter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CounterValue<'a> {
    /// Difference to the previous value of an int, word, long or interval.
    Signed(i64),
    /// Difference to the previous value of an unsigned int or long, modulo 2^64.
    Unsigned(u64),
    /// New value.
    Double(f64),
    /// New value.
    Text(Option<&'a [u8]>),
}

/// Coverage of the methods of an assembly or a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Number of methods.
    pub methods: u64,
    /// Number of methods that were run completely.
    pub fully: u64,
    /// Number of methods that were run in part.
    pub partially: u64,
}
