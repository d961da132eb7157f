//! How the program's work grows with its input.
//!
//! Work is the number of blocks of code that it passes: the same on every machine, however busy it is.

#![allow(clippy::disallowed_methods)]

mod comparison;
mod damage;
mod dimensions;
mod flooding;
mod many_files;
mod pairs;
mod scripts;
mod support;
mod traces;
mod unwinding;

/// The library calls it. Only the work of the program is counted.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc() {}
