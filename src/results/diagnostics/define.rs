//! The type of issues, and the macro that defines it, so that each is one entry of [`issues`](super::issues).

use std::fmt;

use super::issues::Issue;
use super::render;

/// Defines [`Issue`] and the catalogue.
macro_rules! issues {
    ($( $name:ident $id:literal $severity:ident $title:literal $problem:literal $($remedy:literal)? )+) => {
        /// The kind of a [`Diagnostic`](super::Diagnostic).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Issue {
            $( #[doc = concat!($id, ": ", $title, ".")] $name, )+
        }

        #[doc(hidden)]
        impl Issue {
            /// All codes, in their order.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the catalogue's entry.
            #[doc(hidden)]
            pub fn entry(self) -> &'static CatalogueEntry {
                match self {
                    $( Self::$name => &CatalogueEntry {
                        id: $id,
                        severity: Severity::$severity,
                        title: $title,
                        problem: $problem,
                        readers: "",
                        remedy: concat!($($remedy)?),
                        unit: "",
                        seen: "",
                    }, )+
                }
            }
        }
    };
}

impl Issue {
    /// Returns the printed form, such as `JI012`.
    pub fn id(self) -> &'static str {
        self.entry().id
    }
}

impl fmt::Display for Issue {
    /// The code and its message for one occurrence, without the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = self.entry().title;
        let title = title.strip_prefix("{count} ").unwrap_or(title);
        write!(f, "{}: {}", self.id(), render(title, 1, |_| None))
    }
}
