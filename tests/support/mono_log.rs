//! Writes logs of Mono's profiler in the data versions 1 to 17, as Mono wrote them.

use jitdump::Address;
use jitinject::internals::traces::mono::format::event::{
    CodeBufferKind, CollectionPhase, CounterChange, CounterDescription, CounterValue, Coverage, LogEvent,
    LogEventKind, ManagedObject, Metadata, Method, MonitorEvent, ObjectMove, ObjectReference, Pointer, Root,
    RootOrigin, Stage, ThreadId, TypeReference,
};

/// Writer of a log.
pub struct Writer {
    version: u8,
    major: u8,
    out: Vec<u8>,
    content: Vec<u8>,
    bases: Bases,
    time: u64,
    method: u64,
}

/// Base values in the header of a buffer.
#[derive(Clone, Copy, Default)]
pub struct Bases {
    pub time: u64,
    pub pointer: u64,
    /// In units of 8 bytes.
    pub object: u64,
    pub thread: u64,
    pub method: u64,
}

pub fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn signed(out: &mut Vec<u8>, mut value: i64) {
    while !(-0x40..0x40).contains(&value) {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8 & 0x7f);
}

/// Returns the major version of the profiler that wrote a data version.
fn major(version: u8) -> u8 {
    match version {
        0..13 => 0,
        13 | 14 => 1,
        15 => 2,
        _ => 3,
    }
}

impl Writer {
    /// Starts a log with its header.
    pub fn new(version: u8) -> Self {
        let major = major(version);
        let mut out = vec![0x01, 0x5a, 0x50, 0x4d, major, 0, version, 8];
        out.extend(1_700_000_000_000_u64.to_le_bytes());
        if major >= 3 {
            out.extend(77_u64.to_le_bytes());
        }
        for field in [22_u32, 0, 4711] {
            out.extend(field.to_le_bytes());
        }
        out.extend(if version < 8 { [7, 0] } else { [0x39, 0x30] });
        if major >= 1 {
            for text in ["log:jit", "x86-64", "linux"] {
                out.extend((text.len() as u32 + 1).to_le_bytes());
                out.extend(text.as_bytes());
                out.push(0);
            }
        } else {
            out.extend([9, 0]);
        }
        Self {
            version,
            major,
            out,
            content: Vec::new(),
            bases: Bases::default(),
            time: 0,
            method: 0,
        }
    }

    /// Ends the current buffer and starts another one.
    pub fn buffer(&mut self, bases: Bases) {
        self.end_buffer();
        self.bases = bases;
        self.time = bases.time;
        self.method = bases.method;
    }

    fn end_buffer(&mut self) {
        if self.content.is_empty() {
            return;
        }
        self.out.extend([0x01, 0x4c, 0x50, 0x4d]);
        self.out.extend((self.content.len() as u32).to_le_bytes());
        let Bases {
            time,
            pointer,
            object,
            thread,
            method,
        } = self.bases;
        for base in [time, pointer, object, thread, method] {
            self.out.extend(base.to_le_bytes());
        }
        self.out.append(&mut self.content);
    }

    /// Returns the log.
    pub fn finish(mut self) -> Vec<u8> {
        self.end_buffer();
        self.out
    }

    /// Starts an event that has a time in all versions.
    fn start(&mut self, kind: u8, time: u64) {
        self.content.push(kind);
        unsigned(&mut self.content, time.wrapping_sub(self.time));
        self.time = time;
    }

    /// Starts an event that has a time from version 13 on.
    fn start_untimed(&mut self, kind: u8, time: u64) {
        match self.version {
            ..13 => self.content.push(kind),
            _ => self.start(kind, time),
        }
    }

    fn unsigned(&mut self, value: u64) {
        unsigned(&mut self.content, value);
    }

    fn signed(&mut self, value: u64) {
        signed(&mut self.content, value as i64);
    }

    fn small(&mut self, value: u64) {
        match self.version {
            ..13 => self.unsigned(value),
            _ => self.content.push(value as u8),
        }
    }

    /// Writes a value of a counter, which has one byte in two versions only.
    fn counter_number(&mut self, value: u64) {
        match self.version {
            13 | 14 => self.content.push(value as u8),
            _ => self.unsigned(value),
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.content.extend(text);
        self.content.push(0);
    }

    fn pointer(&mut self, value: u64) {
        self.signed(value.wrapping_sub(self.bases.pointer));
    }

    fn object(&mut self, object: ManagedObject) {
        self.signed((object.0 >> 3).wrapping_sub(self.bases.object));
    }

    fn method(&mut self, method: Method) {
        self.signed(method.0.wrapping_sub(self.method));
        self.method = method.0;
    }

    fn class(&mut self, class: TypeReference) {
        let (TypeReference::Class(pointer) | TypeReference::VTable(pointer)) = class;
        self.pointer(pointer.0);
    }

    fn old_flags(&mut self) {
        if self.version < 13 {
            self.unsigned(0);
        }
    }

    /// Writes a stack. `frames` are innermost first, the log has them outermost first.
    fn stack(&mut self, frames: &[Method]) {
        if frames.is_empty() {
            return;
        }
        self.old_flags();
        self.unsigned(frames.len() as u64);
        for &frame in frames.iter().rev() {
            match self.version {
                ..13 => self.pointer(frame.0),
                _ => self.method(frame),
            }
        }
    }

    pub fn allocation(
        &mut self,
        time: u64,
        class: TypeReference,
        object: ManagedObject,
        size: u64,
        frames: &[Method],
    ) {
        self.start(if frames.is_empty() { 0 } else { 0x10 }, time);
        self.class(class);
        self.object(object);
        self.unsigned(size);
        self.stack(frames);
    }

    pub fn moves(&mut self, time: u64, moves: &[ObjectMove]) {
        self.start(0x31, time);
        self.unsigned(2 * moves.len() as u64);
        for it in moves {
            self.object(it.from);
            self.object(it.to);
        }
    }

    /// Writes a handle event; it has an object if the handle was created.
    pub fn handle(
        &mut self,
        time: u64,
        of: (u64, u64),
        object: Option<ManagedObject>,
        frames: &[Method],
    ) -> bool {
        if self.version < 4 {
            return false;
        }
        let subtype = if object.is_some() { 0x40 } else { 0x50 };
        let frames = if self.version < 11 { &[] } else { frames };
        self.start(1 | subtype | if frames.is_empty() { 0 } else { 0x20 }, time);
        self.unsigned(of.0);
        self.unsigned(of.1);
        if let Some(object) = object {
            self.object(object);
        }
        self.stack(frames);
        true
    }

    pub fn throw(&mut self, time: u64, object: ManagedObject, frames: &[Method]) {
        self.start(if frames.is_empty() { 4 } else { 0x84 }, time);
        self.object(object);
        self.stack(frames);
    }

    pub fn monitor(&mut self, time: u64, event: MonitorEvent, object: ManagedObject, frames: &[Method]) {
        let number = match event {
            MonitorEvent::Contention => 1,
            MonitorEvent::Done => 2,
            MonitorEvent::Fail => 3,
            MonitorEvent::Other(other) => other,
        };
        let frames = match event {
            MonitorEvent::Contention => frames,
            _ if self.version >= 14 => frames,
            _ => &[],
        };
        let flag = if frames.is_empty() { 0 } else { 0x80 };
        if self.version < 14 {
            self.start(5 | number << 4 | flag, time);
        } else {
            self.start(5 | flag, time);
            self.content.push(number);
        }
        self.object(object);
        self.stack(frames);
    }

    pub fn heap_object(
        &mut self,
        time: u64,
        (object, class, size): (ManagedObject, TypeReference, u64),
        generation: u8,
        references: &[ObjectReference],
    ) {
        self.start_untimed(0x26, time);
        self.object(object);
        self.class(class);
        self.unsigned(size);
        if self.version >= 16 {
            self.content.push(generation);
        }
        self.unsigned(references.len() as u64);
        let mut last = 0;
        for reference in references {
            if self.version >= 2 {
                let offset = reference.offset.unwrap_or(0);
                self.unsigned(offset.wrapping_sub(last));
                last = offset;
            }
            self.object(reference.object);
        }
    }

    pub fn roots(&mut self, time: u64, collection: u64, roots: &[Root]) -> bool {
        let have_addresses = self.version > 14 || self.version == 14 && self.major >= 2;
        if self.version < 3 {
            return false;
        }
        self.start_untimed(0x36, time);
        self.unsigned(roots.len() as u64);
        if !have_addresses {
            self.unsigned(collection);
        }
        for root in roots {
            match root.origin {
                RootOrigin::Address(address) => {
                    assert!(have_addresses);
                    self.pointer(address.0);
                    self.object(root.object);
                }
                RootOrigin::Kind { kind, extra } => {
                    assert!(!have_addresses);
                    self.object(root.object);
                    match self.version {
                        13 => self.content.push(kind as u8),
                        _ => self.unsigned(kind),
                    }
                    self.unsigned(extra);
                }
            }
        }
        true
    }

    pub fn sample(&mut self, time: u64, thread: ThreadId, addresses: &[Address], frames: &[Method]) -> bool {
        match self.version {
            ..4 => return false,
            4..13 => {
                self.content.push(7);
                self.unsigned(1);
                self.unsigned(time);
            }
            13 => {
                self.start(7, time);
                self.content.push(1);
            }
            _ => self.start(7, time),
        }
        if self.version >= 11 {
            self.pointer(thread.0);
        }
        self.unsigned(addresses.len() as u64);
        for address in addresses {
            self.pointer(address.0);
        }
        if self.version < 6 {
            return true;
        }
        self.unsigned(frames.len() as u64);
        for &frame in frames {
            self.method(frame);
            if self.version < 13 {
                self.signed(3);
                self.signed(-200_i64 as u64);
            }
        }
        true
    }

    pub fn counter_descriptions(&mut self, time: u64, counters: &[CounterDescription<'_>]) -> bool {
        if self.version < 5 {
            return false;
        }
        self.start_untimed(0x37, time);
        self.unsigned(counters.len() as u64);
        for it in counters {
            self.unsigned(it.section);
            if it.section == 1 << 15 {
                self.text(it.section_name);
            }
            self.text(it.name);
            self.counter_number(it.value_type);
            self.counter_number(it.unit);
            self.counter_number(it.variance);
            self.unsigned(it.index);
        }
        true
    }

    /// Writes counter changes, each with the type of its value.
    pub fn counters(&mut self, time: u64, changes: &[(CounterChange<'_>, u64)]) -> bool {
        if self.version < 5 {
            return false;
        }
        self.start_untimed(0x47, time);
        if self.version < 13 {
            self.unsigned(time / 1_000_000);
        }
        for (change, value_type) in changes {
            self.unsigned(change.index);
            self.counter_number(*value_type);
            match change.value {
                CounterValue::Signed(value) => self.signed(value as u64),
                CounterValue::Unsigned(value) => self.unsigned(value),
                CounterValue::Double(value) => self.content.extend(value.to_le_bytes()),
                CounterValue::Text(None) => self.content.push(0),
                CounterValue::Text(Some(text)) => {
                    self.content.push(1);
                    self.text(text);
                }
            }
        }
        self.unsigned(0);
        true
    }

    fn metadata(&mut self, time: u64, stage: Stage, subject: Metadata<'_>) -> bool {
        let (number, pointer) = match subject {
            Metadata::Class { class, .. } => (1, class),
            Metadata::Image { image, .. } => (2, image),
            Metadata::Assembly { assembly, .. } => (3, assembly),
            Metadata::Domain { domain, .. } => (4, domain),
            Metadata::Thread { thread, .. } => (5, Pointer(thread.0)),
            Metadata::Context { context, .. } => (6, context),
            Metadata::VTable { vtable, .. } => (7, vtable),
            _ => unreachable!("no other subject"),
        };
        let subtype = match stage {
            Stage::Name => 0,
            Stage::LoadStart => 0x10,
            Stage::LoadEnd => 0x20,
            Stage::UnloadStart => 0x30,
            Stage::UnloadEnd => 0x40,
            Stage::LoadError => 0x80,
        };
        let is_old = stage == Stage::Name || number < 4 && matches!(stage, Stage::LoadStart | Stage::LoadEnd);
        let since = match number {
            6 => 11,
            7 => 15,
            _ if is_old => 1,
            _ if stage == Stage::LoadError => 1,
            _ => 11,
        };
        if self.version < since || stage == Stage::LoadError && self.version >= 11 {
            return false;
        }
        self.start(2 | subtype, time);
        self.content.push(number);
        self.pointer(pointer.0);
        match subject {
            Metadata::Class { image, name, .. } => {
                self.pointer(image.0);
                self.old_flags();
                self.text(name);
            }
            Metadata::Image { name, mvid, .. } => {
                self.old_flags();
                self.text(name);
                if self.version >= 16 && stage == Stage::LoadEnd {
                    self.text(mvid);
                }
            }
            Metadata::Assembly { image, name, .. } => {
                if self.version >= 14 {
                    self.pointer(image.unwrap().0);
                }
                self.old_flags();
                self.text(name);
            }
            Metadata::Domain { name, .. } | Metadata::Thread { name, .. } => {
                self.old_flags();
                if stage == Stage::Name {
                    self.text(name);
                }
            }
            Metadata::Context { domain, .. } => {
                self.old_flags();
                self.pointer(domain.0);
            }
            Metadata::VTable { domain, class, .. } => {
                self.pointer(domain.0);
                self.pointer(class.0);
            }
            _ => unreachable!("no other subject"),
        }
        true
    }

    fn covered(&mut self, covered: Coverage) {
        self.unsigned(covered.methods);
        self.unsigned(covered.fully);
        self.unsigned(covered.partially);
    }

    fn code_buffer(
        &mut self,
        time: u64,
        kind: CodeBufferKind,
        start: Address,
        size: u64,
        name: &[u8],
    ) -> bool {
        let number = match kind {
            CodeBufferKind::Method => 0,
            CodeBufferKind::MethodTrampoline => 1,
            CodeBufferKind::UnboxTrampoline => 2,
            CodeBufferKind::InterfaceTrampoline => 3,
            CodeBufferKind::GenericsTrampoline => 4,
            CodeBufferKind::SpecificTrampoline => 5,
            CodeBufferKind::Helper => 6,
            CodeBufferKind::Monitor => 7,
            CodeBufferKind::DelegateInvoke => 8,
            CodeBufferKind::ExceptionHandling => 9,
            CodeBufferKind::Other(other) => other as u64,
        };
        if self.version < 8 || number == 9 && self.version < 9 {
            return false;
        }
        self.start(0x18, time);
        self.small(if self.version < 14 { number + 1 } else { number });
        self.pointer(start.0);
        self.unsigned(size);
        if kind == CodeBufferKind::SpecificTrampoline {
            self.text(name);
        }
        true
    }

    fn of_methods(&mut self, time: u64, kind: u8, method: Method) -> bool {
        self.start(kind, time);
        self.method(method);
        true
    }

    fn of_memory(&mut self, time: u64, kind: u8, since: u8) -> bool {
        let exists = self.version >= since;
        if exists {
            self.start(kind, time);
        }
        exists
    }

    /// Writes an event that needs only its time in addition; returns `false` if the version does not support it.
    pub fn kind(&mut self, time: u64, kind: &LogEventKind<'_>) -> bool {
        match *kind {
            LogEventKind::Collection { phase, generation } => {
                self.start(0x11, time);
                self.small(phase_number(phase));
                self.small(generation);
                true
            }
            LogEventKind::HeapResize { size } => {
                self.start(0x21, time);
                self.unsigned(size);
                true
            }
            LogEventKind::FinalizeStart => self.of_memory(time, 0x81, 13),
            LogEventKind::FinalizeEnd => self.of_memory(time, 0x91, 13),
            LogEventKind::FinalizeObjectStart(object) => self
                .of_memory(time, 0xa1, 13)
                .then(|| self.object(object))
                .is_some(),
            LogEventKind::FinalizeObjectEnd(object) => self
                .of_memory(time, 0xb1, 13)
                .then(|| self.object(object))
                .is_some(),
            LogEventKind::Metadata { stage, subject } => self.metadata(time, stage, subject),
            LogEventKind::Leave(method) => self.of_methods(time, 0x13, method),
            LogEventKind::Enter(method) => self.of_methods(time, 0x23, method),
            LogEventKind::ExceptionLeave(method) => self.of_methods(time, 0x33, method),
            LogEventKind::Jit {
                method,
                code,
                size,
                name,
            } => {
                self.of_methods(time, 0x43, method);
                self.pointer(code.0);
                self.unsigned(size);
                self.text(name);
                true
            }
            LogEventKind::Clause {
                clause_type,
                number,
                method,
                object,
            } => {
                self.start(0x14, time);
                self.small(clause_type);
                self.unsigned(number);
                self.method(method);
                if self.version >= 14 {
                    self.object(object.unwrap());
                }
                true
            }
            LogEventKind::HeapStart => self.of_memory(time, 0x06, 1),
            LogEventKind::HeapEnd => self.of_memory(time, 0x16, 1),
            LogEventKind::CodeBuffer {
                kind,
                start,
                size,
                name,
            } => self.code_buffer(time, kind, start, size, name),
            LogEventKind::SyncPoint(point) => self
                .of_memory(time, 0x0a, 13)
                .then(|| self.content.push(point))
                .is_some(),
            LogEventKind::AotId(id) => self.of_memory(time, 0x1a, 16).then(|| self.text(id)).is_some(),
            _ => self.rare_kind(time, kind),
        }
    }

    fn rare_kind(&mut self, time: u64, kind: &LogEventKind<'_>) -> bool {
        let (version, has_coverage) = (self.version, (10..16).contains(&self.version));
        match *kind {
            LogEventKind::RootRegister {
                start,
                size,
                source,
                key,
                name,
            } if version >= 15 => {
                self.start(0x46, time);
                self.pointer(start.0);
                self.unsigned(size);
                self.content.push(source);
                self.pointer(key.0);
                self.text(name);
            }
            LogEventKind::RootUnregister { start } if version >= 15 => {
                self.start(0x56, time);
                self.pointer(start.0);
            }
            LogEventKind::NativeSymbol { start, size, name } if version >= 4 => {
                self.start_untimed(0x17, time);
                self.pointer(start.0);
                self.unsigned(size);
                self.text(name);
            }
            LogEventKind::NativeBinary {
                start,
                offset,
                size,
                name,
            } if (4..16).contains(&version) => {
                self.start(0x27, time);
                match version {
                    ..14 => self.signed(start.0),
                    _ => self.pointer(start.0),
                }
                self.unsigned(offset);
                self.unsigned(size);
                self.text(name);
            }
            LogEventKind::CoverageAssembly {
                name,
                guid,
                file,
                methods,
            } if has_coverage => {
                self.start_untimed(0x09, time);
                for text in [name, guid, file] {
                    self.text(text);
                }
                self.covered(methods);
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
            } if has_coverage => {
                self.start_untimed(0x19, time);
                for text in [assembly, class, name, signature, file] {
                    self.text(text);
                }
                for number in [token, id, statements] {
                    self.unsigned(number);
                }
            }
            LogEventKind::CoverageStatement {
                method,
                offset,
                count,
                line,
                column,
            } if has_coverage => {
                self.start_untimed(0x29, time);
                for number in [method, offset, count, line, column] {
                    self.unsigned(number);
                }
            }
            LogEventKind::CoverageClass {
                assembly,
                name,
                methods,
            } if has_coverage => {
                self.start_untimed(0x39, time);
                for text in [assembly, name] {
                    self.text(text);
                }
                self.covered(methods);
            }
            _ => return false,
        }
        true
    }

    /// Writes an event that was read; returns `false` if the version does not support it.
    pub fn event(&mut self, event: &LogEvent<'_>) -> bool {
        let time = event.time.0;
        let listed = |frames: jitinject::internals::traces::mono::format::list::MethodFrames<'_>| {
            frames.iter().collect::<Vec<_>>()
        };
        match event.kind {
            LogEventKind::Allocation {
                class,
                object,
                size,
                frames,
            } => self.allocation(time, class, object, size, &listed(frames)),
            LogEventKind::Moves(moves) => self.moves(time, &moves.iter().collect::<Vec<_>>()),
            LogEventKind::HandleCreated {
                handle_type,
                handle,
                object,
                frames,
            } => return self.handle(time, (handle_type, handle), Some(object), &listed(frames)),
            LogEventKind::HandleDestroyed {
                handle_type,
                handle,
                frames,
            } => return self.handle(time, (handle_type, handle), None, &listed(frames)),
            LogEventKind::Throw { object, frames } => self.throw(time, object, &listed(frames)),
            LogEventKind::Monitor {
                event,
                object,
                frames,
            } => self.monitor(time, event, object, &listed(frames)),
            LogEventKind::SampleHit {
                thread,
                addresses,
                frames,
                ..
            } => {
                let addresses: Vec<_> = addresses.iter().collect();
                return self.sample(time, thread, &addresses, &listed(frames));
            }
            LogEventKind::CounterDescriptions(counters) => {
                return self.counter_descriptions(time, &counters.iter().collect::<Vec<_>>());
            }
            LogEventKind::Counters { values, .. } => {
                let value_type = |value| match value {
                    CounterValue::Signed(_) => 0,
                    CounterValue::Unsigned(_) => 1,
                    CounterValue::Double(_) => 5,
                    CounterValue::Text(_) => 6,
                };
                let values = values.iter().map(|it| (it, value_type(it.value)));
                return self.counters(time, &values.collect::<Vec<_>>());
            }
            _ => return self.kind(time, &event.kind),
        }
        true
    }
}

fn phase_number(phase: CollectionPhase) -> u64 {
    match phase {
        CollectionPhase::Start => 0,
        CollectionPhase::MarkStart => 1,
        CollectionPhase::MarkEnd => 2,
        CollectionPhase::ReclaimStart => 3,
        CollectionPhase::ReclaimEnd => 4,
        CollectionPhase::End => 5,
        CollectionPhase::PreStopWorld => 6,
        CollectionPhase::PostStopWorld => 7,
        CollectionPhase::PreStartWorld => 8,
        CollectionPhase::PostStartWorld => 9,
        CollectionPhase::PreStopWorldLocked => 10,
        CollectionPhase::PostStartWorldUnlocked => 11,
        CollectionPhase::Other(other) => other,
    }
}
