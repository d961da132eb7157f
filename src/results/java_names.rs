//! Names of Java methods as perf's agent writes them: the class, the method and its descriptor.

/// Returns the name of a method as perf shows it: `LShare;alpha(I)J` is `Share.alpha(int)` (`java_demangle_sym` in perf's
/// `demangle-java.c`, without the type of the result). `None` for all other names.
pub fn java_method(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let (class, rest) = name.strip_prefix('L')?.split_once(';')?;
    let (method, rest) = rest.split_once('(')?;
    let (mut parameters, result) = rest.split_once(')')?;
    let is_name = |text: &str| !text.is_empty() && !text.contains([' ', ';', '[', '(']);
    if !is_name(class) || !is_name(method) || !matches!(java_type(result), Some((_, ""))) {
        return None;
    }
    let mut types = Vec::new();
    while !parameters.is_empty() {
        let (shown, rest) = java_type(parameters)?;
        types.push(shown);
        parameters = rest;
    }
    Some(format!(
        "{}.{method}({})",
        class.replace('/', "."),
        types.join(", ")
    ))
}

/// Returns the first type of a descriptor as in Java, and what follows it; `None` if there is no valid one.
fn java_type(descriptor: &str) -> Option<(String, &str)> {
    let element = descriptor.trim_start_matches('[');
    let dimensions = descriptor.len().saturating_sub(element.len());
    let (shown, rest) = match element.strip_prefix('L') {
        Some(class) => {
            let (class, rest) = class.split_once(';')?;
            (class.replace('/', "."), rest)
        }
        None => {
            let (primitive, rest) = element.split_at_checked(1)?;
            let shown = match primitive {
                "B" => "byte",
                "C" => "char",
                "D" => "double",
                "F" => "float",
                "I" => "int",
                "J" => "long",
                "S" => "short",
                "V" => "void",
                "Z" => "boolean",
                _ => return None,
            };
            (shown.to_owned(), rest)
        }
    };
    Some((shown + &"[]".repeat(dimensions), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_the_agent_are_shown_as_by_perf() {
        for (name, shown) in [
            ("LShare;alpha(I)J", Some("Share.alpha(int)")),
            (
                "Ljava/lang/String;hashCode()I",
                Some("java.lang.String.hashCode()"),
            ),
            (
                "Lcom/x/A$B;<init>([[ILjava/util/Map;Z)V",
                Some("com.x.A$B.<init>(int[][], java.util.Map, boolean)"),
            ),
            ("LShare;alpha(I)", None),
            ("LShare;alpha(I)JJ", None),
            ("LShare;alpha(Q)J", None),
            ("LShare;alpha(Ljava)J", None),
            ("LazyCompile:alpha(I)J", None),
            ("call_stub", None),
            ("L;a()V", None),
        ] {
            assert_eq!(java_method(name.as_bytes()).as_deref(), shown, "{name}");
        }
    }
}
