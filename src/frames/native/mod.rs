//! Native code: executables and libraries, where processes have them mapped, and their files on this machine.
//!
//! ```text
//! [modules]: what processes have mapped ─► [files]: the same build on this machine ─► [contents] ─► [symbols]: names
//!                                                                                         ├─────► [lines]: lines, inlined calls
//!                                                                                         └─────► [crate::frames::unwind]: tables
//! ```

pub mod contents;
pub mod files;
pub mod lines;
pub mod modules;
pub mod symbols;
pub mod vdso;
