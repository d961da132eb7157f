//! Names that compilers encode in those of symbols.

use crate::results::java_names::java_method;

/// Returns the name of JIT code as perf shows it, if it is encoded: a method, as perf's agent for Java writes it, or a function of
/// C++ or Rust, as LLVM does.
pub fn decoded(name: &[u8]) -> Option<String> {
    java_method(name).or_else(|| demangled(std::str::from_utf8(name).ok()?))
}

/// Returns the name in the source of a C++ or Rust function, without parameters, as perf shows it.
#[cfg(feature = "native")]
pub fn demangled(name: &str) -> Option<String> {
    use std::fmt::Write as _;

    use cpp_demangle::{BorrowedSymbol, DemangleOptions};

    /// Size in bytes above which names stay as they are.
    const MAX: usize = 4096;
    let is_encoded = ["_Z", "_R"].iter().any(|prefix| name.starts_with(prefix));
    if name.len() > MAX || !is_encoded {
        return None;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let mut text = Limited::default();
        // The alternate form has no hash, which differs from build to build.
        return write!(text, "{rust:#}").ok().map(|()| text.0);
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let symbol = BorrowedSymbol::new(name.as_bytes()).ok()?;
    let mut text = Limited::default();
    symbol.structured_demangle(&mut text, &options).ok()?;
    // An empty list of template arguments leaves its comma.
    Some(text.0.replace(", >", ">"))
}

#[cfg(not(feature = "native"))]
fn demangled(_: &str) -> Option<String> {
    None
}

/// Text up to a size: short crafted names can stand for long ones.
#[cfg(feature = "native")]
#[derive(Default)]
struct Limited(String);

#[cfg(feature = "native")]
impl std::fmt::Write for Limited {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        const MAX: usize = 16 << 10;
        if self.0.len().saturating_add(text.len()) > MAX {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn names_of_compilers_are_decoded() {
        for (name, expected) in [
            ("_ZN2v88internal4Heap2GCEv", Some("v8::internal::Heap::GC")),
            ("_ZN4core3fmt5write17h0123456789abcdefE", Some("core::fmt::write")),
            ("_RNvCs1234_7mycrate3foo", Some("mycrate::foo")),
            ("main", None),
            // Rust's names have an underscore on Linux.
            ("RNvCs1234_7mycrate3foo", None),
            ("_Z", None),
        ] {
            assert_eq!(demangled(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn names_of_more_than_4096_bytes_stay_as_they_are() {
        // A function whose own name has this size.
        let encoded = |size: usize| format!("_Z{size}{}v", "f".repeat(size));
        assert_eq!(encoded(4089).len(), 4096);
        assert_eq!(demangled(&encoded(4089)), Some("f".repeat(4089)));
        assert_eq!(demangled(&encoded(4090)), None);
    }

    #[test]
    fn names_that_stand_for_more_than_16_kib_stay_as_they_are() {
        let mut text = Limited::default();
        assert!(text.write_str(&"x".repeat(16_383)).is_ok() && text.write_str("x").is_ok());
        assert!(text.write_str("x").is_err());
        // A template whose arguments are its first one, again and again.
        let encoded = |count: usize| format!("_Z1fI100{}{}Evv", "a".repeat(100), "S0_".repeat(count));
        assert!(demangled(&encoded(150)).is_some_and(|name| name.len() > 15_000));
        assert_eq!(demangled(&encoded(170)), None);
    }
}
