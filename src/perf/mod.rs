//! The profile: perf.data, as `perf record` writes it and `perf report` reads it.
//!
//! ```text
//! header ── attrs, ids ── records ──────────────────────────── feature table ── features
//! [header]  [attr]        [record], [event], [sample]                           [feature]
//! ```
//!
//! What was written to a pipe has records in place of the header's sections ([`pipe`]); records may be
//! compressed ([`compression`]), damaged ([`resync`]), or lie in several files ([`merge`]), and are made plain,
//! whole and one first.
//!
//! Reading keeps every byte: a [`Profile`] borrows the mapped file, a [`record::Record`] is a slice of it
//! with its place, and the views in [`event`] and [`sample`] take out only what placing JIT code needs. What
//! they don't know passes through untouched. Writing ([`output`]) lays the same parts out again, with records
//! added, replaced or left out. Events that nobody recorded become a profile, or a part of one, in
//! [`synthesis`].
//!
//! The format is that of Linux' `tools/perf/Documentation/perf.data-file-format.txt` and of
//! `include/uapi/linux/perf_event.h`. linux-perf-data can't serve here: it has no writer, hides offsets and
//! header, and drops or reorders records.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod attr;
pub mod callchain;
pub mod compression;
pub mod event;
pub mod feature;
pub mod header;
pub mod merge;
pub mod output;
pub mod pipe;
pub mod profile;
pub mod record;
pub mod record_validation;
pub mod resync;
pub mod sample;
pub mod synthesis;

pub use profile::{Container, Error, Fault, Profile};
