//! Native code: executables and libraries, where processes have them mapped, and their files on this machine.
//!
//! ```text
//! [modules]: what processes have mapped ─► [files]: the same build on this machine ─► [contents] ─► [symbols]: names
//!                                                                                         ├─────► [lines]: lines, inlined calls
//!                                                                                         └─────► [crate::frames::unwind]: tables
//! ```
//!
//! [kernel_symbols] come from the profile's own copy, from the build-id cache, or from the running kernel if it is the same
//! build.

pub mod contents;
pub mod files;
#[cfg(feature = "samples")]
pub mod kernel_symbols;
#[cfg(feature = "samples")]
pub mod lines;
pub mod modules;
pub mod symbols;
#[cfg(feature = "unwind")]
pub mod vdso;
