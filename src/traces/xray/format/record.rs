//! Records of an XRay trace: one type for all versions and modes.

/// A record of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRecord<'a> {
    /// Time in ticks; the header has the number of ticks per second. An argument has the tick of its function
    /// entry. If that entry is in another run of basic mode, the argument has the tick of the first function
    /// record after it.
    ///
    /// Ticks are those of the file. They may step back if a thread moves to another processor.
    pub tick: u64,
    /// Processor ID; always 0 if the ticks are not processor ticks. The runtimes store 8 bits of it.
    pub cpu: u16,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Content of the record.
    pub kind: RecordKind<'a>,
}

/// Content of a record. Function IDs count from 1, in the order of the binary's instrumentation map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind<'a> {
    /// A function was entered.
    Enter {
        /// Function ID.
        function: u32,
    },
    /// A function was entered, and its arguments follow.
    EnterWithArguments {
        /// Function ID.
        function: u32,
    },
    /// Argument of the previous function entry. In a damaged trace, it may follow another record or none.
    Argument(u64),
    /// A function returned.
    Exit {
        /// Function ID.
        function: u32,
    },
    /// A function jumped to another one (tail call), whose entry follows.
    TailExit {
        /// ID of the function that jumped.
        function: u32,
    },
    /// An event logged by the program (`__xray_customevent`).
    Custom {
        /// Payload of the event.
        payload: &'a [u8],
    },
    /// A typed event logged by the program (`__xray_typedevent`).
    Typed {
        /// Type of the event, as registered by the program.
        kind: u16,
        /// Payload of the event.
        payload: &'a [u8],
    },
}

impl RecordKind<'_> {
    /// Returns the call with an action number of the file; `None` for an unknown one.
    #[inline]
    pub(super) fn of_action(action: u32, function: u32) -> Option<Self> {
        Some(match action {
            0 => Self::Enter { function },
            1 => Self::Exit { function },
            2 => Self::TailExit { function },
            3 => Self::EnterWithArguments { function },
            _ => return None,
        })
    }

    /// Returns the ID of the function that is entered or left.
    pub fn function(&self) -> Option<u32> {
        match *self {
            Self::Enter { function }
            | Self::EnterWithArguments { function }
            | Self::Exit { function }
            | Self::TailExit { function } => Some(function),
            Self::Argument(_) | Self::Custom { .. } | Self::Typed { .. } => None,
        }
    }

    /// Returns the name of the record type in output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Enter { .. } => "enter",
            Self::EnterWithArguments { .. } => "enter_arg",
            Self::Argument(_) => "argument",
            Self::Exit { .. } => "exit",
            Self::TailExit { .. } => "tail_exit",
            Self::Custom { .. } => "custom_event",
            Self::Typed { .. } => "typed_event",
        }
    }
}
