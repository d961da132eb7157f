//! The rules of `jitinject check`, one module per format or record type.

pub mod debug_info;
pub mod jitdump;
pub mod mono;
pub mod profile;
pub mod unwinding;
pub mod xray;

use crate::results::diagnostics::CatalogueEntry;
pub use crate::results::diagnostics::Severity;

/// Defines rules, and a table of them.
macro_rules! rules {
    ($(
        rule $name:ident $id:literal $severity:ident $title:literal
        problem $problem:literal
        readers $readers:literal
        remedy $remedy:literal
        $(unit $unit:literal)?
        $(seen $seen:literal)?
    )+) => {
        $(
            #[doc = concat!($id, ": ", $title, ".")]
            pub static $name: $crate::results::diagnostics::CatalogueEntry = $crate::results::diagnostics::CatalogueEntry {
                id: $id,
                severity: $crate::results::diagnostics::Severity::$severity,
                title: $title,
                problem: $problem,
                readers: $readers,
                remedy: $remedy,
                unit: concat!($($unit)?),
                seen: concat!($($seen)?),
            };
        )+

        /// All rules of this module, by ID.
        pub static ALL: &[&$crate::results::diagnostics::CatalogueEntry] = &[$(&$name),+];
    };
}
use rules;

/// Returns all rules of all kinds of files. Those of each kind are sorted by ID.
pub fn all() -> impl Iterator<Item = &'static CatalogueEntry> {
    [
        jitdump::ALL,
        debug_info::ALL,
        unwinding::ALL,
        mono::ALL,
        xray::ALL,
        profile::ALL,
    ]
    .into_iter()
    .flatten()
    .copied()
}
