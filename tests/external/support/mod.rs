//! What these tests share, among themselves and with the others.

#[path = "../../support/mod.rs"]
mod shared;

pub mod browser;
pub mod debuginfod;
pub mod llvm_xray;
pub mod symbolizers;

pub use shared::*;
