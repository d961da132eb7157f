//! Scripts: the functions in JavaScript source text, the functions at V8's positions, and the original files in
//! source maps.
//!
//! ```text
//! source text ─► scanner ─► functions: extents and names ─┐
//! jitdump ─► line tables of V8's baseline code ───────────┴─► v8_inlining: positions ─► inlined calls
//! source map ─► source_map: mappings ─► original_lines: positions ─► original files, lines and names
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod brackets;
mod by_path;
mod common_callers;
mod functions;
mod inlined_calls;
pub mod known_functions;
mod lexer;
mod mappings;
pub mod original_lines;
mod scanner;
pub mod source_map;
mod text;
mod types;
pub mod v8_inlining;

pub use by_path::ByPath;
pub use functions::{NamedCall, Script, ScriptFunction};
pub use text::{Text, TextPosition};
