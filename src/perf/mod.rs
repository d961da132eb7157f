//! Reads and writes perf.data profiles, as `perf record` writes them and `perf report` reads them.
//!
//! ```text
//! header ── attrs, IDs ── records ──────────────────────────── feature table ── features
//! [header]  [attr]        [record], [process_records], [sample]                 [feature]
//! ```
//!
//! A profile written to a pipe has records instead of header sections ([`pipe`]). Records may be compressed
//! ([`compression`]), damaged ([`record::resync`]) or split over several files ([`merge`]); they are decompressed,
//! repaired and merged first.
//!
//! Reading keeps every byte: a [`Profile`] borrows the file's bytes, and a [`record::Record`] is a slice of them
//! with its offset. The views in [`process_records`] and [`sample`] decode only what JIT symbolization needs;
//! everything else passes through unchanged. [`output`] writes the same parts again, with records added,
//! replaced or removed. [`synthetic`] makes records.
//!
//! The format is that of Linux' `tools/perf/Documentation/perf.data-file-format.txt` and of
//! `include/uapi/linux/perf_event.h`. The linux-perf-data crate, which `check` compares with, is not used here:
//! it has no writer, hides offsets and the header, and drops or reorders records.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod attr;
pub mod callchain;
pub mod compression;
pub mod event_name;
pub mod feature;
pub mod header;
pub mod merge;
pub mod output;
pub mod pipe;
pub mod process_records;
pub mod profile;
pub mod record;
pub mod sample;
pub mod synthetic;
#[cfg(test)]
pub(crate) mod testing;

pub use profile::{Container, Profile};
