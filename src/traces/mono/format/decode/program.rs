//! Decodes events about the program: metadata, methods, exceptions, locks and code.

use crate::results::diagnostics::Issue;
use crate::traces::mono::format::decode::{EventDecoder, HAS_STACK};
use crate::traces::mono::format::event::{
    CodeBufferKind, LogEventKind, Metadata, MonitorEvent, Stage, ThreadId,
};

/// Data version that renumbered the kinds of code from 0, and moved the events of locks to a byte of their
/// own. Since then, assemblies have an image and clauses have an exception.
const RENUMBERED: u8 = 14;

/// First data version in which the end of an image's loading has the identity of its content (MVID).
const WITH_MVID: u8 = 16;

/// What metadata is about (`TYPE_CLASS` and so on in Mono's log.h).
mod subject {
    pub const CLASS: u8 = 1;
    pub const IMAGE: u8 = 2;
    pub const ASSEMBLY: u8 = 3;
    pub const DOMAIN: u8 = 4;
    pub const THREAD: u8 = 5;
    pub const CONTEXT: u8 = 6;
    pub const VTABLE: u8 = 7;
}

impl<'a> EventDecoder<'a> {
    /// Decodes an event about an image, assembly, class, thread or other part of the program.
    pub(super) fn metadata(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        let stage = match subtype {
            0x00 => Stage::Name,
            0x10 => Stage::LoadStart,
            0x20 => Stage::LoadEnd,
            0x30 => Stage::UnloadStart,
            0x40 => Stage::UnloadEnd,
            0x80.. => Stage::LoadError,
            _ => return Err(Issue::MonoUnknownEvent),
        };
        self.advance()?;
        let subject_type = self.cursor.byte()?;
        let pointer = self.pointer()?;
        let subject = match subject_type {
            subject::CLASS => {
                let image = self.pointer()?;
                self.skip_old_flags()?;
                Metadata::Class {
                    class: pointer,
                    image,
                    name: self.cursor.string()?,
                }
            }
            subject::IMAGE => {
                self.skip_old_flags()?;
                Metadata::Image {
                    image: pointer,
                    name: self.cursor.string()?,
                    mvid: if self.since(WITH_MVID) && stage == Stage::LoadEnd {
                        self.cursor.string()?
                    } else {
                        b""
                    },
                }
            }
            subject::ASSEMBLY => {
                let image = self.since(RENUMBERED).then(|| self.pointer()).transpose()?;
                self.skip_old_flags()?;
                Metadata::Assembly {
                    assembly: pointer,
                    image,
                    name: self.cursor.string()?,
                }
            }
            subject::DOMAIN => {
                self.skip_old_flags()?;
                let name = self.name_if(stage)?;
                Metadata::Domain {
                    domain: pointer,
                    name,
                }
            }
            subject::THREAD => {
                self.skip_old_flags()?;
                let name = self.name_if(stage)?;
                let thread = ThreadId(pointer.0);
                Metadata::Thread { thread, name }
            }
            subject::CONTEXT => {
                self.skip_old_flags()?;
                Metadata::Context {
                    context: pointer,
                    domain: self.pointer()?,
                }
            }
            subject::VTABLE => Metadata::VTable {
                vtable: pointer,
                domain: self.pointer()?,
                class: self.pointer()?,
            },
            _ => return Err(Issue::MonoUnknownEvent),
        };
        Ok(LogEventKind::Metadata { stage, subject })
    }

    /// Reads a name if the event is one that names its subject.
    fn name_if(&mut self, stage: Stage) -> Result<&'a [u8], Issue> {
        match stage {
            Stage::Name => self.cursor.string(),
            _ => Ok(b""),
        }
    }

    /// Decodes the compilation of a method, or that it is entered or left.
    #[inline]
    pub(super) fn method(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        self.advance()?;
        self.method = self.method.wrapping_add(self.cursor.signed()?);
        let method = self.encoding.method(self.method);
        Ok(match subtype {
            0x10 => LogEventKind::Leave(method),
            0x20 => LogEventKind::Enter(method),
            0x30 => LogEventKind::ExceptionLeave(method),
            0x40 => LogEventKind::Jit {
                method,
                code: self.cursor.address(&self.encoding)?,
                size: self.cursor.unsigned()?,
                name: self.cursor.string()?,
            },
            _ => return Err(Issue::MonoUnknownEvent),
        })
    }

    /// Decodes that an exception is thrown, or handled by a clause.
    pub(super) fn exception(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        self.advance()?;
        Ok(match subtype & !HAS_STACK {
            0x00 => LogEventKind::Throw {
                object: self.cursor.object(&self.encoding)?,
                frames: self.frames(subtype & HAS_STACK != 0)?,
            },
            0x10 => {
                let clause_type = self.small_number()?;
                let number = self.cursor.unsigned()?;
                self.method = self.method.wrapping_add(self.cursor.signed()?);
                let object = self.since(RENUMBERED).then(|| self.cursor.object(&self.encoding));
                LogEventKind::Clause {
                    clause_type,
                    number,
                    method: self.encoding.method(self.method),
                    object: object.transpose()?,
                }
            }
            _ => return Err(Issue::MonoUnknownEvent),
        })
    }

    /// Decodes an event of a lock. Older logs have its kind in the subtype, and fewer stacks.
    pub(super) fn monitor(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        self.advance()?;
        let in_subtype = subtype >> 4 & 0x3;
        let event = if self.since(RENUMBERED) {
            self.cursor.byte()?
        } else {
            in_subtype
        };
        let event = match event {
            1 => MonitorEvent::Contention,
            2 => MonitorEvent::Done,
            3 => MonitorEvent::Fail,
            other => MonitorEvent::Other(other),
        };
        let may_have_stack = self.since(RENUMBERED) || event == MonitorEvent::Contention;
        Ok(LogEventKind::Monitor {
            event,
            object: self.cursor.object(&self.encoding)?,
            frames: self.frames(may_have_stack && subtype & HAS_STACK != 0)?,
        })
    }

    /// Decodes the place of code that belongs to no method. Older logs number its kinds from 1.
    pub(super) fn code_buffer(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        if subtype != 0x10 {
            return Err(Issue::MonoUnknownEvent);
        }
        self.advance()?;
        let number = self.small_number()?.cast_signed();
        let number = if self.since(RENUMBERED) {
            number
        } else {
            number.wrapping_sub(1)
        };
        let kind = CodeBufferKind::from_number(number);
        Ok(LogEventKind::CodeBuffer {
            kind,
            start: self.cursor.address(&self.encoding)?,
            size: self.cursor.unsigned()?,
            name: match kind {
                CodeBufferKind::SpecificTrampoline => self.cursor.string()?,
                _ => b"",
            },
        })
    }
}

impl CodeBufferKind {
    /// Converts a kind as numbered from data version 14 on.
    fn from_number(number: i64) -> Self {
        match number {
            0 => Self::Method,
            1 => Self::MethodTrampoline,
            2 => Self::UnboxTrampoline,
            3 => Self::InterfaceTrampoline,
            4 => Self::GenericsTrampoline,
            5 => Self::SpecificTrampoline,
            6 => Self::Helper,
            7 => Self::Monitor,
            8 => Self::DelegateInvoke,
            9 => Self::ExceptionHandling,
            other => Self::Other(other),
        }
    }
}
