//! Native code: executables and libraries, where processes have them mapped, and their files on this machine.
//!
//! ```text
//! [modules]: what processes have mapped ─► [files]: the same build on this machine ─► [contents] ─► [symbols]: names
//!                                                                                         ├─────► [crate::frames::stream]: lines
//!                                                                                         └─────► [crate::frames::unwind]: tables
//! ```

pub mod contents;
pub mod files;
pub mod modules;
pub mod symbols;
