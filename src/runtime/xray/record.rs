//! What a trace tells of: one type for the records of all versions and modes.

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When: ticks, of which the header tells how many a second has. An argument has that of its entry; where that is in
    /// another run of basic mode, that of the first function record behind it.
    ///
    /// As in the file: they may step back where a thread goes to another processor.
    pub tick: u64,
    /// On which processor; always 0 where the tick is not that of the processors. The runtimes keep 8 bits of it.
    pub cpu: u16,
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// What happened.
    pub what: What<'a>,
}

/// What happened. Functions are numbers from 1 on, in the order of the binary's instrumentation map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What<'a> {
    /// A function was entered.
    Enter {
        /// Which.
        function: u32,
    },
    /// A function was entered, and its arguments follow.
    EnterWithArguments {
        /// Which.
        function: u32,
    },
    /// An argument of the entry before. In a damaged trace, what is before can be another record, or none.
    Argument(u64),
    /// A function returned.
    Exit {
        /// Which.
        function: u32,
    },
    /// A function is left by a jump to another one, whose entry follows.
    TailExit {
        /// The one that is left.
        function: u32,
    },
    /// The program logged something (`__xray_customevent`).
    Custom {
        /// What.
        payload: &'a [u8],
    },
    /// The program logged something of a type (`__xray_typedevent`).
    Typed {
        /// The type, as the program has registered it.
        kind: u16,
        /// What.
        payload: &'a [u8],
    },
}
