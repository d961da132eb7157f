//! The macro that defines the issues, so that each is one entry of [`issues`](super::issues).

/// Defines [`Issue`] and the catalogue.
macro_rules! issues {
    ($( $name:ident $id:literal $severity:ident $title:literal $problem:literal $($remedy:literal)? )+) => {
        /// The kind of a [`Diagnostic`](super::Diagnostic).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Issue {
            $( #[doc = concat!($id, ": ", $title, ".")] $name, )+
        }

        impl Issue {
            /// All codes, in their order.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the catalogue's entry.
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
