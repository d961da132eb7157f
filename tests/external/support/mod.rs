//! Shared support for these tests, including that of all tests.

#[path = "../../support/mod.rs"]
mod shared;

pub mod browser;
pub mod debuginfod;
pub mod hotspot;
pub mod llvm_xray;
pub mod symbolizers;

pub use shared::*;
