//! Decodes events of measurements: samples, native symbols, counters and coverage.

use crate::results::diagnostics::Issue;
use crate::traces::mono::format::cursor::Encoding;
use crate::traces::mono::format::decode::{EventDecoder, SIMPLIFIED};
use crate::traces::mono::format::event::{CounterChange, Coverage, LogEventKind, ThreadId};
use crate::traces::mono::format::list::{EncodedList, MethodFrames, StackEncoding};

/// First data version in which samples have managed methods.
const WITH_METHODS: u8 = 6;

/// First data version in which samples have a thread.
const WITH_THREAD: u8 = 11;

/// First data version in which samples have no type, and addresses of mapped files use the same base as
/// others.
const WITHOUT_TYPE: u8 = 14;

/// First data version without mapped files.
const WITHOUT_BINARIES: u8 = 16;

impl<'a> EventDecoder<'a> {
    /// Decodes a sample. Sets `own_time` if the event's time is not the base of the next event's time.
    pub(super) fn sample(
        &mut self,
        subtype: u8,
        own_time: &mut Option<u64>,
    ) -> Result<LogEventKind<'a>, Issue> {
        Ok(match subtype {
            0x00 => self.sample_hit(own_time)?,
            0x10 => {
                self.advance_if_simplified()?;
                LogEventKind::NativeSymbol {
                    start: self.cursor.address(&self.encoding)?,
                    size: self.cursor.unsigned()?,
                    name: self.cursor.string()?,
                }
            }
            0x20 if !self.since(WITHOUT_BINARIES) => self.native_binary()?,
            0x30 => {
                self.advance_if_simplified()?;
                LogEventKind::CounterDescriptions(EncodedList::read_counted(
                    &mut self.cursor,
                    &self.encoding,
                )?)
            }
            0x40 => {
                let milliseconds = if self.since(SIMPLIFIED) {
                    self.advance()?;
                    None
                } else {
                    Some(self.cursor.unsigned()?)
                };
                LogEventKind::Counters {
                    milliseconds,
                    values: CounterChange::read_all(&mut self.cursor, &self.encoding)?,
                }
            }
            _ => return Err(Issue::MonoUnknownEvent),
        })
    }

    /// Decodes a sample that Mono took itself. `own_time` becomes its time, if it has one.
    fn sample_hit(&mut self, own_time: &mut Option<u64>) -> Result<LogEventKind<'a>, Issue> {
        let sample_type = if self.since(WITHOUT_TYPE) {
            self.advance()?;
            None
        } else if self.since(SIMPLIFIED) {
            self.advance()?;
            Some(self.cursor.byte()?.into())
        } else {
            let sample_type = self.cursor.unsigned()?;
            *own_time = Some(self.cursor.unsigned()?);
            Some(sample_type)
        };
        let thread = if self.since(WITH_THREAD) {
            ThreadId(self.pointer()?.0)
        } else {
            self.thread
        };
        let addresses = EncodedList::read_counted(&mut self.cursor, &self.encoding)?;
        let stack_encoding = if self.since(SIMPLIFIED) {
            StackEncoding::Inwards
        } else {
            StackEncoding::InwardsWithOffsets
        };
        let frames = if self.since(WITH_METHODS) {
            MethodFrames::read(&mut self.cursor, &self.encoding, stack_encoding, &mut self.method)?
        } else {
            MethodFrames::NONE
        };
        Ok(LogEventKind::SampleHit {
            sample_type,
            thread,
            addresses,
            frames,
        })
    }

    /// Decodes an event about a native library.
    fn native_binary(&mut self) -> Result<LogEventKind<'a>, Issue> {
        self.advance()?;
        let encoding = if self.since(WITHOUT_TYPE) {
            self.encoding
        } else {
            Encoding {
                pointer_base: 0,
                ..self.encoding
            }
        };
        Ok(LogEventKind::NativeBinary {
            start: self.cursor.address(&encoding)?,
            offset: self.cursor.unsigned()?,
            size: self.cursor.unsigned()?,
            name: self.cursor.string()?,
        })
    }

    /// Decodes an event with code coverage.
    pub(super) fn coverage(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        self.advance_if_simplified()?;
        Ok(match subtype {
            0x00 => LogEventKind::CoverageAssembly {
                name: self.cursor.string()?,
                guid: self.cursor.string()?,
                file: self.cursor.string()?,
                methods: self.covered()?,
            },
            0x10 => LogEventKind::CoverageMethod {
                assembly: self.cursor.string()?,
                class: self.cursor.string()?,
                name: self.cursor.string()?,
                signature: self.cursor.string()?,
                file: self.cursor.string()?,
                token: self.cursor.unsigned()?,
                id: self.cursor.unsigned()?,
                statements: self.cursor.unsigned()?,
            },
            0x20 => LogEventKind::CoverageStatement {
                method: self.cursor.unsigned()?,
                offset: self.cursor.unsigned()?,
                count: self.cursor.unsigned()?,
                line: self.cursor.unsigned()?,
                column: self.cursor.unsigned()?,
            },
            0x30 => LogEventKind::CoverageClass {
                assembly: self.cursor.string()?,
                name: self.cursor.string()?,
                methods: self.covered()?,
            },
            _ => return Err(Issue::MonoUnknownEvent),
        })
    }

    fn covered(&mut self) -> Result<Coverage, Issue> {
        Ok(Coverage {
            methods: self.cursor.unsigned()?,
            fully: self.cursor.unsigned()?,
            partially: self.cursor.unsigned()?,
        })
    }
}
