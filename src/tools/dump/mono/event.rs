//! Converts events of Mono's profiler into dump entries.

use jitdump::{Address, RuntimeTime};

use crate::tools::dump::entry::{Fields, Value, ValueList};
use crate::tools::dump::shortened;
use crate::traces::mono::format::LogNames;
use crate::traces::mono::format::event::{
    CodeBufferKind, CollectionPhase, CounterChange, CounterDescription, CounterValue, Coverage, LogEventKind,
    ManagedObject, Metadata, MonitorEvent, ObjectMove, ObjectReference, Root, RootOrigin, Stage,
    TypeReference,
};
use crate::traces::mono::format::list::{Element, EncodedList, MethodFrames};

/// Returns the type of an event and its fields.
pub fn describe(kind: LogEventKind<'_>) -> (&'static str, Fields<'_>) {
    let fields = Fields::new();
    match kind {
        LogEventKind::Enter(method) => ("enter", fields.hex("method", method.0)),
        LogEventKind::Leave(method) => ("leave", fields.hex("method", method.0)),
        LogEventKind::ExceptionLeave(method) => ("exception_leave", fields.hex("method", method.0)),
        LogEventKind::Jit {
            method,
            code,
            size,
            name,
        } => {
            let fields = fields.hex("method", method.0).hex("code_addr", code.0);
            ("jit", fields.number("code_size", size).name("name", name))
        }
        LogEventKind::CodeBuffer {
            kind,
            start,
            size,
            name,
        } => {
            let fields = with_buffer_kind(fields, kind).hex("code_addr", start.0);
            let fields = fields.number("code_size", size);
            ("code_buffer", fields.name_if("name", name))
        }
        LogEventKind::Metadata { stage, subject } => {
            metadata(fields.word("stage", stage_name(stage)), subject)
        }
        LogEventKind::Throw { object, frames } => {
            ("throw", with_stack(fields.hex("object", object.0), frames))
        }
        LogEventKind::Clause {
            clause_type,
            number,
            method,
            object,
        } => {
            let fields = with_clause_type(fields, clause_type);
            let fields = fields.number("clause", number).hex("method", method.0);
            ("clause", fields.hex_if("object", object.map(|object| object.0)))
        }
        LogEventKind::Monitor {
            event,
            object,
            frames,
        } => {
            let fields = with_monitor_event(fields, event).hex("object", object.0);
            ("monitor", with_stack(fields, frames))
        }
        LogEventKind::SyncPoint(point) => ("sync_point", fields.number("point", point)),
        LogEventKind::AotId(id) => ("aot_id", fields.name("id", id)),
        // The garbage collector and the managed heap.
        LogEventKind::Allocation {
            class,
            object,
            size,
            frames,
        } => {
            let fields = with_type(fields, class).hex("object", object.0);
            let fields = fields.number("object_size", size);
            ("allocation", with_stack(fields, frames))
        }
        LogEventKind::Collection { phase, generation } => {
            let fields = with_phase(fields, phase);
            ("collection", fields.number("generation", generation))
        }
        LogEventKind::HeapResize { size } => ("heap_resize", fields.number("heap_size", size)),
        LogEventKind::Moves(moves) => {
            let each = |it: ObjectMove| {
                let fields = Fields::new().hex("from", it.from.0);
                Value::Fields(fields.hex("to", it.to.0))
            };
            ("moves", with_list(fields, "objects", moves, each))
        }
        LogEventKind::HandleCreated {
            handle_type,
            handle,
            object,
            frames,
        } => {
            let fields = fields.number("handle_type", handle_type).hex("handle", handle);
            let fields = fields.hex("object", object.0);
            ("handle_created", with_stack(fields, frames))
        }
        LogEventKind::HandleDestroyed {
            handle_type,
            handle,
            frames,
        } => {
            let fields = fields.number("handle_type", handle_type).hex("handle", handle);
            ("handle_destroyed", with_stack(fields, frames))
        }
        LogEventKind::FinalizeStart => ("finalize_start", fields),
        LogEventKind::FinalizeEnd => ("finalize_end", fields),
        LogEventKind::FinalizeObjectStart(ManagedObject(object)) => {
            ("finalize_object_start", fields.hex("object", object))
        }
        LogEventKind::FinalizeObjectEnd(ManagedObject(object)) => {
            ("finalize_object_end", fields.hex("object", object))
        }
        // Heap shots.
        LogEventKind::HeapStart => ("heap_start", fields),
        LogEventKind::HeapEnd => ("heap_end", fields),
        LogEventKind::HeapObject {
            object,
            class,
            size,
            generation,
            references,
        } => {
            let fields = with_type(fields.hex("object", object.0), class);
            let fields = fields
                .number("object_size", size)
                .number_if("generation", generation);
            let each = |it: ObjectReference| {
                let fields = Fields::new().number_if("at", it.offset);
                Value::Fields(fields.hex("object", it.object.0))
            };
            ("heap_object", with_list(fields, "references", references, each))
        }
        LogEventKind::HeapRoots { collection, roots } => {
            let fields = fields.number_if("collection", collection);
            ("heap_roots", with_list(fields, "roots", roots, root))
        }
        LogEventKind::RootRegister {
            start,
            size,
            source,
            key,
            name,
        } => {
            let fields = fields.hex("start", start.0).number("range_size", size);
            let fields = fields.number("source", source).hex("key", key.0);
            ("root_register", fields.name("name", name))
        }
        LogEventKind::RootUnregister { start } => ("root_unregister", fields.hex("start", start.0)),
        // Samples and counters.
        LogEventKind::SampleHit {
            sample_type,
            thread,
            addresses,
            frames,
        } => {
            let fields = fields
                .number_if("sample_type", sample_type)
                .hex("thread", thread.0);
            let fields = with_list(fields, "addresses", addresses, |it: Address| Value::Hex(it.0));
            ("sample_hit", with_stack(fields, frames))
        }
        LogEventKind::NativeSymbol { start, size, name } => {
            let fields = fields.hex("code_addr", start.0).number("code_size", size);
            ("native_symbol", fields.name("name", name))
        }
        LogEventKind::NativeBinary {
            start,
            offset,
            size,
            name,
        } => {
            let fields = fields.hex("start", start.0).number("range_size", size);
            let fields = fields.number("file_offset", offset);
            ("native_binary", fields.name("name", name))
        }
        LogEventKind::CounterDescriptions(counters) => {
            let fields = with_list(fields, "counters", counters, counter_description);
            ("counter_descriptions", fields)
        }
        LogEventKind::Counters { milliseconds, values } => {
            let fields = fields.number_if("milliseconds", milliseconds);
            ("counters", with_list(fields, "values", values, counter_change))
        }
        // Code coverage.
        LogEventKind::CoverageAssembly {
            name,
            guid,
            file,
            methods,
        } => {
            let fields = with_coverage(fields, methods).name("name", name);
            ("coverage_assembly", fields.name("guid", guid).name("file", file))
        }
        LogEventKind::CoverageMethod {
            assembly,
            class,
            name,
            signature,
            file,
            token,
            id,
            statements,
        } => {
            let fields = fields.hex("token", token).number("id", id);
            let fields = fields.number("statements", statements).name("name", name);
            let fields = fields.name("signature", signature).name("class", class);
            (
                "coverage_method",
                fields.name("assembly", assembly).name("file", file),
            )
        }
        LogEventKind::CoverageStatement {
            method,
            offset,
            count,
            line,
            column,
        } => {
            let fields = fields.number("id", method).number("il_offset_difference", offset);
            let fields = fields.number("count", count).number("line", line);
            ("coverage_statement", fields.number("column", column))
        }
        LogEventKind::CoverageClass {
            assembly,
            name,
            methods,
        } => {
            let fields = with_coverage(fields, methods).name("name", name);
            ("coverage_class", fields.name("assembly", assembly))
        }
    }
}

fn with_list<'a, T: Element<'a> + 'a>(
    fields: Fields<'a>,
    key: &'static str,
    list: EncodedList<'a, T>,
    value: impl Fn(T) -> Value<'a> + 'a,
) -> Fields<'a> {
    fields.list(key, ValueList::lazy(list.iter(), value))
}

/// Adds a stack, innermost frame first, unless it is empty.
fn with_stack<'a>(fields: Fields<'a>, frames: MethodFrames<'a>) -> Fields<'a> {
    if frames.is_empty() {
        return fields;
    }
    let frames = ValueList::lazy(frames.iter(), |method| Value::Hex(method.0));
    fields.with("frames", Value::List(frames))
}

/// Adds the names of methods and types in an event, which are in other events. Long ones are cut, as any number of events can have
/// the same name.
pub fn with_names<'a>(
    fields: Fields<'a>,
    kind: &LogEventKind<'a>,
    names: &'a LogNames<'a>,
    time: RuntimeTime,
) -> Fields<'a> {
    let type_name = |fields: Fields<'a>, class| {
        let name = names.class(class, time);
        fields.name_if("type_name", shortened(name.unwrap_or_default()))
    };
    let stack = |fields: Fields<'a>, frames: MethodFrames<'a>| {
        let name = move |method| Value::Name(shortened(names.method(method, time).unwrap_or_default()));
        fields.list("frame_names", ValueList::lazy(frames.iter(), name))
    };
    match *kind {
        LogEventKind::Enter(method)
        | LogEventKind::Leave(method)
        | LogEventKind::ExceptionLeave(method)
        | LogEventKind::Clause { method, .. } => {
            fields.name_if("name", shortened(names.method(method, time).unwrap_or_default()))
        }
        LogEventKind::Allocation { class, frames, .. } => stack(type_name(fields, class), frames),
        LogEventKind::HeapObject { class, .. } => type_name(fields, class),
        LogEventKind::Throw { frames, .. }
        | LogEventKind::Monitor { frames, .. }
        | LogEventKind::HandleCreated { frames, .. }
        | LogEventKind::HandleDestroyed { frames, .. }
        | LogEventKind::SampleHit { frames, .. } => stack(fields, frames),
        _ => fields,
    }
}

/// Adds the type of a clause (`MonoExceptionEnum`).
fn with_clause_type(fields: Fields<'_>, clause_type: u64) -> Fields<'_> {
    let word = match clause_type {
        0 => "catch",
        1 => "filter",
        2 => "finally",
        4 => "fault",
        other => return fields.number("clause_type", other),
    };
    fields.word("clause_type", word)
}

fn with_type(fields: Fields<'_>, class: TypeReference) -> Fields<'_> {
    match class {
        TypeReference::Class(class) => fields.hex("class", class.0),
        TypeReference::VTable(vtable) => fields.hex("vtable", vtable.0),
    }
}

fn with_buffer_kind(fields: Fields<'_>, kind: CodeBufferKind) -> Fields<'_> {
    let name = match kind {
        CodeBufferKind::Method => "method",
        CodeBufferKind::MethodTrampoline => "method_trampoline",
        CodeBufferKind::UnboxTrampoline => "unbox_trampoline",
        CodeBufferKind::InterfaceTrampoline => "interface_trampoline",
        CodeBufferKind::GenericsTrampoline => "generics_trampoline",
        CodeBufferKind::SpecificTrampoline => "specific_trampoline",
        CodeBufferKind::Helper => "helper",
        CodeBufferKind::Monitor => "monitor",
        CodeBufferKind::DelegateInvoke => "delegate_invoke",
        CodeBufferKind::ExceptionHandling => "exception_handling",
        CodeBufferKind::Other(number) => return fields.signed("kind", number),
    };
    fields.word("kind", name)
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Name => "name",
        Stage::LoadStart => "load_start",
        Stage::LoadEnd => "load_end",
        Stage::UnloadStart => "unload_start",
        Stage::UnloadEnd => "unload_end",
        Stage::LoadError => "load_error",
    }
}

/// Returns the part of the program that an event is about, and its fields after the others.
fn metadata<'a>(fields: Fields<'a>, subject: Metadata<'a>) -> (&'static str, Fields<'a>) {
    match subject {
        Metadata::Class { class, image, name } => {
            let fields = fields.hex("class", class.0).hex("image", image.0);
            ("class", fields.name("name", name))
        }
        Metadata::Image { image, name, mvid } => {
            let fields = fields.hex("image", image.0).name_if("mvid", mvid);
            ("image", fields.name("name", name))
        }
        Metadata::Assembly {
            assembly,
            image,
            name,
        } => {
            let fields = fields.hex("assembly", assembly.0);
            let fields = fields.hex_if("image", image.map(|image| image.0));
            ("assembly", fields.name("name", name))
        }
        Metadata::Domain { domain, name } => ("domain", fields.hex("domain", domain.0).name_if("name", name)),
        Metadata::Thread { thread, name } => ("thread", fields.hex("thread", thread.0).name_if("name", name)),
        Metadata::Context { context, domain } => {
            let fields = fields.hex("context", context.0);
            ("context", fields.hex("domain", domain.0))
        }
        Metadata::VTable {
            vtable,
            domain,
            class,
        } => {
            let fields = fields.hex("vtable", vtable.0).hex("domain", domain.0);
            ("vtable", fields.hex("class", class.0))
        }
    }
}

fn with_monitor_event(fields: Fields<'_>, event: MonitorEvent) -> Fields<'_> {
    let name = match event {
        MonitorEvent::Contention => "contention",
        MonitorEvent::Done => "done",
        MonitorEvent::Fail => "fail",
        MonitorEvent::Other(number) => return fields.number("event", number),
    };
    fields.word("event", name)
}

fn with_phase(fields: Fields<'_>, phase: CollectionPhase) -> Fields<'_> {
    let name = match phase {
        CollectionPhase::Start => "start",
        CollectionPhase::MarkStart => "mark_start",
        CollectionPhase::MarkEnd => "mark_end",
        CollectionPhase::ReclaimStart => "reclaim_start",
        CollectionPhase::ReclaimEnd => "reclaim_end",
        CollectionPhase::End => "end",
        CollectionPhase::PreStopWorld => "pre_stop_world",
        CollectionPhase::PostStopWorld => "post_stop_world",
        CollectionPhase::PreStartWorld => "pre_start_world",
        CollectionPhase::PostStartWorld => "post_start_world",
        CollectionPhase::PreStopWorldLocked => "pre_stop_world_locked",
        CollectionPhase::PostStartWorldUnlocked => "post_start_world_unlocked",
        CollectionPhase::Other(number) => return fields.number("phase", number),
    };
    fields.word("phase", name)
}

fn root<'a>(root: Root) -> Value<'a> {
    let fields = Fields::new().hex("object", root.object.0);
    Value::Fields(match root.origin {
        RootOrigin::Address(address) => fields.hex("address", address.0),
        RootOrigin::Kind { kind, extra } => fields.number("kind", kind).hex("extra", extra),
    })
}

fn counter_description(counter: CounterDescription<'_>) -> Value<'_> {
    let fields = Fields::new()
        .number("index", counter.index)
        .number("section", counter.section)
        .name_if("section_name", counter.section_name)
        .number("value_type", counter.value_type)
        .number("unit", counter.unit)
        .number("variance", counter.variance);
    Value::Fields(fields.name("name", counter.name))
}

fn counter_change(change: CounterChange<'_>) -> Value<'_> {
    let fields = Fields::new().number("index", change.index);
    Value::Fields(match change.value {
        CounterValue::Signed(number) => fields.signed("difference", number),
        CounterValue::Unsigned(number) => fields.number("difference", number),
        CounterValue::Double(number) => fields.with("value", Value::Float(number)),
        CounterValue::Text(Some(text)) => fields.name("value", text),
        CounterValue::Text(None) => fields,
    })
}

fn with_coverage(fields: Fields<'_>, methods: Coverage) -> Fields<'_> {
    let fields = fields.number("methods", methods.methods);
    let fields = fields.number("fully_covered", methods.fully);
    fields.number("partially_covered", methods.partially)
}
