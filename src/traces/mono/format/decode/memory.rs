//! Decodes events of the managed heap.

use crate::results::diagnostics::Issue;
use crate::traces::mono::format::decode::EventDecoder;
use crate::traces::mono::format::event::{CollectionPhase, LogEventKind};
use crate::traces::mono::format::list::EncodedList;

/// First data version in which objects in heap shots have a generation.
const WITH_GENERATION: u8 = 16;

impl<'a> EventDecoder<'a> {
    /// Decodes an allocation, with its stack if there is one.
    pub(super) fn allocation(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        if subtype > 0x10 {
            return Err(Issue::MonoUnknownEvent);
        }
        self.advance()?;
        Ok(LogEventKind::Allocation {
            class: self.type_reference()?,
            object: self.cursor.object(&self.encoding)?,
            size: self.cursor.unsigned()?,
            frames: self.frames(subtype == 0x10)?,
        })
    }

    /// Decodes an event of the garbage collector.
    pub(super) fn collection(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        self.advance()?;
        Ok(match subtype {
            0x10 => LogEventKind::Collection {
                phase: phase(self.small_number()?),
                generation: self.small_number()?,
            },
            0x20 => LogEventKind::HeapResize {
                size: self.cursor.unsigned()?,
            },
            0x30 => {
                let addresses = self.cursor.count(1)?;
                if addresses % 2 != 0 {
                    return Err(Issue::MonoBadCount);
                }
                LogEventKind::Moves(EncodedList::read(
                    addresses / 2,
                    &mut self.cursor,
                    &self.encoding,
                )?)
            }
            0x40 | 0x60 => LogEventKind::HandleCreated {
                handle_type: self.cursor.unsigned()?,
                handle: self.cursor.unsigned()?,
                object: self.cursor.object(&self.encoding)?,
                frames: self.frames(subtype == 0x60)?,
            },
            0x50 | 0x70 => LogEventKind::HandleDestroyed {
                handle_type: self.cursor.unsigned()?,
                handle: self.cursor.unsigned()?,
                frames: self.frames(subtype == 0x70)?,
            },
            0x80 => LogEventKind::FinalizeStart,
            0x90 => LogEventKind::FinalizeEnd,
            0xa0 => LogEventKind::FinalizeObjectStart(self.cursor.object(&self.encoding)?),
            0xb0 => LogEventKind::FinalizeObjectEnd(self.cursor.object(&self.encoding)?),
            _ => return Err(Issue::MonoUnknownEvent),
        })
    }

    /// Decodes an event of a heap shot.
    pub(super) fn heap(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        match subtype {
            0x20 | 0x30 => self.advance_if_simplified()?,
            _ => self.advance()?,
        }
        Ok(match subtype {
            0x00 => LogEventKind::HeapStart,
            0x10 => LogEventKind::HeapEnd,
            0x20 => LogEventKind::HeapObject {
                object: self.cursor.object(&self.encoding)?,
                class: self.type_reference()?,
                size: self.cursor.unsigned()?,
                generation: self
                    .since(WITH_GENERATION)
                    .then(|| self.cursor.byte())
                    .transpose()?,
                references: EncodedList::read_counted(&mut self.cursor, &self.encoding)?,
            },
            0x30 => self.roots()?,
            0x40 => LogEventKind::RootRegister {
                start: self.cursor.address(&self.encoding)?,
                size: self.cursor.unsigned()?,
                source: self.cursor.byte()?,
                key: self.pointer()?,
                name: self.cursor.string()?,
            },
            0x50 => LogEventKind::RootUnregister {
                start: self.cursor.address(&self.encoding)?,
            },
            _ => return Err(Issue::MonoUnknownEvent),
        })
    }

    fn roots(&mut self) -> Result<LogEventKind<'a>, Issue> {
        let count = self.cursor.count(2)?;
        let has_collection = !self.encoding.roots_have_addresses;
        let collection = has_collection.then(|| self.cursor.unsigned()).transpose()?;
        let roots = EncodedList::read(count, &mut self.cursor, &self.encoding)?;
        Ok(LogEventKind::HeapRoots { collection, roots })
    }
}

fn phase(number: u64) -> CollectionPhase {
    match number {
        0 => CollectionPhase::Start,
        1 => CollectionPhase::MarkStart,
        2 => CollectionPhase::MarkEnd,
        3 => CollectionPhase::ReclaimStart,
        4 => CollectionPhase::ReclaimEnd,
        5 => CollectionPhase::End,
        6 => CollectionPhase::PreStopWorld,
        7 => CollectionPhase::PostStopWorld,
        8 => CollectionPhase::PreStartWorld,
        9 => CollectionPhase::PostStartWorld,
        10 => CollectionPhase::PreStopWorldLocked,
        11 => CollectionPhase::PostStartWorldUnlocked,
        other => CollectionPhase::Other(other),
    }
}
