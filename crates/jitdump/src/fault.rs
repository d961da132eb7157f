//! What may be wrong with a file that can still be read.

use std::fmt;

macro_rules! faults {
    ($( $name:ident $text:literal )+) => {
        /// A fault of a file that does not prevent reading it.
        ///
        /// Readers skip or repair what is damaged, and count it in a [`Tally`](crate::Tally).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Fault {
            $( #[doc = concat!("A ", $text, ".")] $name, )+
        }

        impl Fault {
            /// All kinds of faults.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $( Self::$name => $text, )+
                })
            }
        }
    };
}

faults! {
    UnknownVersion "header with an unknown version, read as version 1"
    InvalidHeaderSize "header with an invalid size, read as 40 bytes"
    UnknownFlags "header with unknown flags, which are ignored"
    Duplicate "record that repeats an earlier one, skipped"
    RepairedSize "record with an invalid size, recovered"
    SkippedBytes "byte between records that is not part of one, skipped"
    CutTail "last record that the end of the file truncates"
    BadLoad "LOAD record with an invalid name or code size, skipped"
    LongName "function name longer than 64 KiB, truncated"
    BadMove "MOVE record of an unknown function, skipped"
    DebugInfoUnpaired "DEBUG_INFO record without a LOAD record, skipped"
    UnwindingUnpaired "UNWINDING_INFO record without a LOAD record, skipped"
    BadUnwinding "UNWINDING_INFO record that is invalid, skipped"
    UnknownRecord "record of an unknown type, skipped"
    TierUnpaired "JIT_TIER record without a LOAD record, skipped"
    BadExtension "record of samply's extensions that is invalid, skipped"
    BadDebugInfo "DEBUG_INFO record that is invalid, skipped or read up to the first invalid entry"
    RepairedFileName "line with a damaged file name, repaired"
    LineOutside "line outside its function, dropped"
    LineInvalid "line without a file, with an invalid caller or above 16,777,216, dropped"
    CallInvalid "inlined call outside its caller, dropped"
    RangeInvalid "range of an inlined call that is invalid, clipped or dropped"
    CallInsideLine "inlined call that starts or ends inside a line"
    OtherMachine "header with the machine x86-64, whose code ran on another machine"
    BothLayouts "DEBUG_INFO2 record of a function that has one in the other layout, not used"
    InvalidLine "line of a perf map that is invalid, skipped"
}
