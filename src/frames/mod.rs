//! What is at the addresses of call chains: native code, unwinding, source files, and all samples by function.
//!
//! ```text
//! [native]: executables and libraries ─┬─► [unwind]: call chains in place of copied stacks
//! [source_files]: scripts and maps ────┴─► [attribution]: samples by function and stack, for the summary
//! ```

pub mod attribution;
pub mod native;
pub mod source_files;
pub mod unwind;
