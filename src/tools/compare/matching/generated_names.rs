//! Names of generated code, with the numbers that runtimes give to it.

use std::borrow::Cow;

/// What comes before numbers in names of the JVM.
const NUMBERED_BY_JVM: [&str; 5] = [
    "$$Lambda",
    "$Proxy",
    "GeneratedMethodAccessor",
    "GeneratedConstructorAccessor",
    "EnhancerBySpringCGLIB$$",
];

/// Removes the numbers that runtimes give to generated code from a name, which is part of a recorded one.
pub fn without_counters<'a>(recorded: &str, name: &'a str) -> Cow<'a, str> {
    // JavaScriptCore: `next#AMHzEa`. The hash is that of the source text.
    if recorded.starts_with("JSC-") {
        let is_hash = |hash: &str| hash.len() == 6 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
        return Cow::Borrowed(without_suffix(name, '#', is_hash));
    }
    // WebAssembly in V8: `JS:fib-12-turbofan`, with the index of the function and the tier, which `name` lacks.
    let tier = recorded
        .strip_prefix("JS:")
        .and_then(|rest| rest.strip_prefix(name));
    if tier.is_some_and(|tier| tier.starts_with('-')) {
        return Cow::Borrowed(without_suffix(name, '-', is_number));
    }
    if let Some(function) = in_php_trace(name) {
        return Cow::Borrowed(function);
    }
    // Julia: `julia_fib_123`.
    if name.starts_with("julia_") || name.starts_with("jfptr_") {
        return Cow::Borrowed(without_suffix(name, '_', is_number));
    }
    if let Some(function) = in_wasmtime(name) {
        return Cow::Owned(format!("wasm::{function}"));
    }
    without_numbers_of_jvm(name).map_or(Cow::Borrowed(name), Cow::Owned)
}

/// Returns the function in PHP's name of a trace: `TRACE-3$fib$7` has the number of the trace, the function, and the line where
/// it starts.
fn in_php_trace(name: &str) -> Option<&str> {
    let (number, function) = name.strip_prefix("TRACE-")?.split_once('$')?;
    is_number(number).then(|| without_suffix(function, '$', is_number))
}

/// Returns the function in a name of Wasmtime: `wasm[0]::function[12]::fib`.
fn in_wasmtime(name: &str) -> Option<&str> {
    let (_, rest) = name.strip_prefix("wasm[")?.split_once("]::")?;
    let (_, function) = rest.split_once("]::")?;
    Some(function)
}

/// Removes the numbers of the JVM: `Work$$Lambda$8.0x00007f84600048d8`, `GeneratedMethodAccessor12`, `$Proxy7`. `None` if the
/// name cannot have any.
fn without_numbers_of_jvm(name: &str) -> Option<String> {
    NUMBERED_BY_JVM.into_iter().find_map(|marker| {
        let (head, tail) = name.split_once(marker)?;
        Some(format!("{head}{marker}{}", after_numbers(tail)))
    })
}

/// Skips numbers, each with the separators before it. What follows a separator may also be the name of a method:
/// `Work$$Lambda/0x00007f84600048d8.accept`.
fn after_numbers(text: &str) -> &str {
    let mut rest = text;
    loop {
        let number = rest.trim_start_matches(['$', '/', '.', '+']);
        let after = number.trim_start_matches(|digit: char| digit.is_ascii_hexdigit() || digit == 'x');
        let number = number.strip_suffix(after).unwrap_or_default();
        if after.starts_with(char::is_alphanumeric)
            || !number.starts_with(|digit: char| digit.is_ascii_digit())
        {
            return rest;
        }
        rest = after;
    }
}

/// Whether a text has digits alone, at least one.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Removes the separator and the text after its last occurrence, if `accepts` returns true for the text.
fn without_suffix(text: &str, separator: char, accepts: impl Fn(&str) -> bool) -> &str {
    match text.rsplit_once(separator) {
        Some((head, tail)) if accepts(tail) => head,
        _ => text,
    }
}
