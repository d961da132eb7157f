//! What a log tells of: one type for the events of all data versions.
//!
//! Numbers whose meaning this program has no use for, as types of handles, stay what they are in the file.

use crate::runtime::RuntimeTime;
use crate::runtime::mono::list::{Frames, List};
use crate::units::Address;

/// A method, by the address of the runtime's `MonoMethod`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Method(pub u64);

/// An object on the managed heap, by its address at that time; collections move objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Object(pub u64);

/// Something else of the runtime, by its address: a class, vtable, image, assembly, domain or context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pointer(pub u64);

/// A thread as the operating system's library knows it: a `pthread_t`, not the kernel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ThreadId(pub u64);

/// One event.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Event<'a> {
    /// When: nanoseconds of CLOCK_MONOTONIC. Events that have no time of their own, as some had before data version 13,
    /// have that of the event before them in their buffer.
    ///
    /// Times step back where Mono's writer thread tells of methods that other threads compiled.
    pub time: RuntimeTime,
    /// The thread whose buffer it is in, which for [`Kind::Jit`] and [`Kind::SampleHit`] is the writer's.
    pub thread: ThreadId,
    /// Where it starts in the file, in bytes; in the unpacked file, if it was packed.
    pub offset: u64,
    /// What happened.
    pub kind: Kind<'a>,
}

/// What happened. Names are as in the file, without a NUL; stacks are empty where none was taken.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Kind<'a> {
    /// An object was allocated.
    Allocation {
        /// Of what type.
        class: TypeReference,
        /// Which.
        object: Object,
        /// Bytes on the heap.
        size: u64,
        /// Where.
        frames: Frames<'a>,
    },
    /// The collector got to some point.
    Collection {
        /// Which.
        phase: CollectionPhase,
        /// What is collected: 0 for the young objects only.
        generation: u64,
    },
    /// The heap has another size.
    HeapResize {
        /// In bytes.
        size: u64,
    },
    /// The collector has moved objects.
    Moves(List<'a, Move>),
    /// A handle for an object was made.
    HandleCreated {
        /// `MonoGCHandleType`: 0 weak, 1 weak and tracking resurrection, 2 normal, 3 pinned.
        handle_type: u64,
        /// Which.
        handle: u64,
        /// For which object.
        object: Object,
        /// Where.
        frames: Frames<'a>,
    },
    /// A handle was freed.
    HandleDestroyed {
        /// As in [`Kind::HandleCreated`].
        handle_type: u64,
        /// Which.
        handle: u64,
        /// Where.
        frames: Frames<'a>,
    },
    /// Finalizers start to run.
    FinalizeStart,
    /// They have run.
    FinalizeEnd,
    /// The finalizer of an object starts.
    FinalizeObjectStart(Object),
    /// It has run.
    FinalizeObjectEnd(Object),
    /// Something of the runtime was loaded, unloaded or named.
    Metadata {
        /// Which of these.
        stage: Stage,
        /// What.
        subject: Metadata<'a>,
    },
    /// A method was entered.
    Enter(Method),
    /// A method returned.
    Leave(Method),
    /// A method was left by an exception.
    ExceptionLeave(Method),
    /// A method has native code, compiled just now or ahead of time.
    ///
    /// From data version 8 on, the writer thread tells so when it first meets the method, later than
    /// [`Kind::CodeBuffer`] does.
    Jit {
        /// Which.
        method: Method,
        /// Where its code starts.
        code: Address,
        /// How many bytes it has; 0 if that is not known (from data version 11 on).
        size: u64,
        /// `Namespace.Class:Method (arguments)`.
        name: &'a [u8],
    },
    /// An exception was thrown.
    Throw {
        /// The exception.
        object: Object,
        /// Where.
        frames: Frames<'a>,
    },
    /// A clause of a method handles an exception.
    Clause {
        /// `MonoExceptionEnum`: 0 catch, 1 filter, 2 finally, 4 fault.
        clause_type: u64,
        /// Which of the method's clauses.
        number: u64,
        /// The method.
        method: Method,
        /// The exception, from data version 14 on.
        object: Option<Object>,
    },
    /// A thread wants a lock that another one has, or has got it.
    Monitor {
        /// Which of these.
        event: MonitorEvent,
        /// The object whose lock it is.
        object: Object,
        /// Where; before data version 14 for contentions only.
        frames: Frames<'a>,
    },
    /// A shot of the heap begins.
    HeapStart,
    /// It is complete.
    HeapEnd,
    /// An object of the heap.
    HeapObject {
        /// Which.
        object: Object,
        /// Of what type.
        class: TypeReference,
        /// Bytes on the heap; 0 where this goes on with the references of the object before.
        size: u64,
        /// In which generation, from data version 16 on.
        generation: Option<u8>,
        /// What it refers to.
        references: List<'a, Reference>,
    },
    /// What keeps objects alive.
    HeapRoots {
        /// In which collection; until data version 14.
        collection: Option<u64>,
        /// The roots.
        roots: List<'a, Root>,
    },
    /// Memory in which roots are was told to the collector.
    RootRegister {
        /// Where it starts.
        start: Address,
        /// How many bytes it has.
        size: u64,
        /// `MonoGCRootSource`.
        source: u8,
        /// What `source` needs to know more, as the address of a class.
        key: Pointer,
        /// What it is for.
        name: &'a [u8],
    },
    /// It is no such memory any more.
    RootUnregister {
        /// Where it starts.
        start: Address,
    },
    /// The sampler has interrupted a thread. The event's time is that of the sample.
    SampleHit {
        /// On what: 1 cycles, … (`MonoProfilerSampleType`); only until data version 13.
        sample_type: Option<u64>,
        /// Which; before data version 11 that of the buffer.
        thread: ThreadId,
        /// Where it was, and the return addresses above, as far as they were taken; innermost first.
        addresses: List<'a, Address>,
        /// Its managed methods.
        frames: Frames<'a>,
    },
    /// A function that is not managed.
    NativeSymbol {
        /// Where it starts.
        start: Address,
        /// How many bytes it has; 0 if not known.
        size: u64,
        /// Its name.
        name: &'a [u8],
    },
    /// A mapped file; until data version 15.
    NativeBinary {
        /// Where it is mapped.
        start: Address,
        /// From which of its bytes on.
        offset: u64,
        /// How many bytes.
        size: u64,
        /// Its path.
        name: &'a [u8],
    },
    /// Which counters there are.
    CounterDescriptions(List<'a, CounterDescription<'a>>),
    /// The counters that have changed.
    Counters {
        /// Milliseconds since counters are read, which before data version 13 is the only time.
        milliseconds: Option<u64>,
        /// Their changes.
        values: List<'a, CounterChange<'a>>,
    },
    /// The runtime has made code that is not a method, or a method's.
    CodeBuffer {
        /// What it is.
        kind: CodeBufferKind,
        /// Where it starts.
        start: Address,
        /// How many bytes it has.
        size: u64,
        /// What [`CodeBufferKind::SpecificTrampoline`] is called; empty for all others.
        name: &'a [u8],
    },
    /// How much of an assembly was run.
    CoverageAssembly {
        /// Its name.
        name: &'a [u8],
        /// Its identity.
        guid: &'a [u8],
        /// Its file.
        file: &'a [u8],
        /// How many of its methods.
        methods: Covered,
    },
    /// What the statements of a method belong to.
    CoverageMethod {
        /// The assembly's name.
        assembly: &'a [u8],
        /// The class' name.
        class: &'a [u8],
        /// The method's name.
        name: &'a [u8],
        /// Its signature.
        signature: &'a [u8],
        /// Its source file.
        file: &'a [u8],
        /// Its metadata token.
        token: u64,
        /// What its statements know it by.
        id: u64,
        /// How many of them there are.
        statements: u64,
    },
    /// How often a statement was run.
    CoverageStatement {
        /// Of which [`Kind::CoverageMethod`].
        method: u64,
        /// The difference to the IL offset of the statement before.
        offset: u64,
        /// How often.
        count: u64,
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
    },
    /// How much of a class was run.
    CoverageClass {
        /// The assembly's name.
        assembly: &'a [u8],
        /// The class' name.
        name: &'a [u8],
        /// How many of its methods.
        methods: Covered,
    },
    /// All threads' buffers are written up to here: 0 at regular times, 1 before and 2 after the world is stopped.
    SyncPoint(u8),
    /// The identity of the ahead-of-time compiler's output that the runtime goes with.
    AotId(&'a [u8]),
}

/// A type of objects: what allocations name changed with data version 15.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TypeReference {
    /// Its class.
    Class(Pointer),
    /// Its vtable, which is that of a class in a domain.
    VTable(Pointer),
}

/// Points in a collection (`MonoProfilerGCEvent`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollectionPhase {
    /// It starts.
    Start,
    /// Marking starts; until data version 13, like the next three.
    MarkStart,
    /// Marking ends.
    MarkEnd,
    /// Reclaiming starts.
    ReclaimStart,
    /// Reclaiming ends.
    ReclaimEnd,
    /// It ends.
    End,
    /// Threads are about to be stopped.
    PreStopWorld,
    /// They are stopped.
    PostStopWorld,
    /// They are about to run again.
    PreStartWorld,
    /// They run again.
    PostStartWorld,
    /// Threads are about to be stopped, and the lock for that is taken.
    PreStopWorldLocked,
    /// Threads run again, and the lock is free.
    PostStartWorldUnlocked,
    /// Another number.
    Other(u64),
}

/// What happens to a lock (`MonoProfilerMonitorEvent`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MonitorEvent {
    /// A thread waits.
    Contention,
    /// It has got it.
    Done,
    /// It has given up.
    Fail,
    /// Another number.
    Other(u8),
}

/// What a [`Kind::Metadata`] says of its subject.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// Its name. For a class or image that has no other event, that it is loaded.
    Name,
    /// It is about to be loaded.
    LoadStart,
    /// It is loaded.
    LoadEnd,
    /// It is about to be unloaded.
    UnloadStart,
    /// It is unloaded.
    UnloadEnd,
    /// It could not be loaded.
    LoadError,
}

/// What of the runtime a [`Kind::Metadata`] is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Metadata<'a> {
    /// A class.
    Class {
        /// Which.
        class: Pointer,
        /// Of which image.
        image: Pointer,
        /// Its full name.
        name: &'a [u8],
    },
    /// A file with code.
    Image {
        /// Which.
        image: Pointer,
        /// Its path.
        name: &'a [u8],
        /// The identity of its content, from data version 16 on; else empty.
        mvid: &'a [u8],
    },
    /// An assembly.
    Assembly {
        /// Which.
        assembly: Pointer,
        /// Its image, from data version 14 on.
        image: Option<Pointer>,
        /// Its full name.
        name: &'a [u8],
    },
    /// An application domain.
    Domain {
        /// Which.
        domain: Pointer,
        /// Its name, for [`Stage::Name`].
        name: &'a [u8],
    },
    /// A thread.
    Thread {
        /// Which.
        thread: ThreadId,
        /// Its name, for [`Stage::Name`].
        name: &'a [u8],
    },
    /// A context.
    Context {
        /// Which.
        context: Pointer,
        /// In which domain.
        domain: Pointer,
    },
    /// What a class is in a domain.
    VTable {
        /// Which.
        vtable: Pointer,
        /// In which domain; 0 if in all.
        domain: Pointer,
        /// Which class.
        class: Pointer,
    },
}

/// What code the runtime makes beside methods (`MonoProfilerCodeBufferType`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CodeBufferKind {
    /// A method's code. Until data version 13 numbers were one higher, and 0 was something unknown.
    Method,
    /// Compiles a method when it is called; until data version 16.
    MethodTrampoline,
    /// Passes what is in a box to a method of a value type.
    UnboxTrampoline,
    /// Chooses among methods of interfaces.
    InterfaceTrampoline,
    /// Passes what generic code needs to know of its types.
    GenericsTrampoline,
    /// One that has a name of its own.
    SpecificTrampoline,
    /// Something small without a better word for it.
    Helper,
    /// Takes a lock; until data version 16.
    Monitor,
    /// Calls a delegate.
    DelegateInvoke,
    /// Throws exceptions and calls their handlers.
    ExceptionHandling,
    /// Another number, as of data version 14 on; -1 for the unknown of before.
    Other(i64),
}

/// Where an object was and is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Where it was.
    pub from: Object,
    /// Where it is.
    pub to: Object,
}

/// A reference in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// At which byte of the object; from data version 2 on.
    pub offset: Option<u64>,
    /// To which object.
    pub object: Object,
}

/// A root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The object that it keeps alive.
    pub object: Object,
    /// Where it is, or what kind of root it is.
    pub origin: RootOrigin,
}

/// What is known of a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RootOrigin {
    /// Where it is.
    Address(Address),
    /// Its kind and what belongs to that; until data version 14.
    Kind {
        /// `MonoProfileGCRootType`.
        kind: u64,
        /// What belongs to it.
        extra: u64,
    },
}

/// A counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterDescription<'a> {
    /// What it belongs to (`MONO_COUNTER_*`).
    pub section: u64,
    /// The section's name, if it is not one of Mono's own; else empty.
    pub section_name: &'a [u8],
    /// Its name.
    pub name: &'a [u8],
    /// The type of its values.
    pub value_type: u64,
    /// Their unit.
    pub unit: u64,
    /// How they change.
    pub variance: u64,
    /// The number that changes know it by.
    pub index: u64,
}

/// How a counter has changed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CounterChange<'a> {
    /// Which.
    pub index: u64,
    /// Its new value, or the difference to the one before.
    pub value: CounterValue<'a>,
}

/// The value of a counter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CounterValue<'a> {
    /// Added to the value before: int, word, long and intervals.
    Signed(i64),
    /// Added to the value before, modulo 2^64: unsigned int and long.
    Unsigned(u64),
    /// The new value.
    Double(f64),
    /// The new value.
    Text(Option<&'a [u8]>),
}

/// How many methods there are and were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Covered {
    /// How many there are.
    pub methods: u64,
    /// How many were run, all of them.
    pub fully: u64,
    /// How many were run, but not all of them.
    pub partially: u64,
}
