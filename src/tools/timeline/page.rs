//! The page: a self-contained HTML file with its data as JSON.
//!
//! Names come from files and could be crafted to break out of their context. The JSON has no `<`, so it can't open or
//! close an element; the scripts insert names only as text; and the page's content security policy allows only the
//! scripts and styles with the listed hashes, and no requests.

use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};

use crate::tools::timeline::PageValues;

/// Template of the page, with placeholders.
const PAGE: &str = include_str!("page/page.html");

/// Styles of uPlot, the library for axes, scales and cursors of charts, and of the page.
const STYLES: [&str; 2] = [
    include_str!("page/uplot/uPlot.min.css"),
    include_str!("page/page.css"),
];

/// Scripts of uPlot and of the page; each uses those before it.
const SCRIPTS: [&str; 9] = [
    include_str!("page/uplot/uPlot.iife.min.js"),
    include_str!("page/data.js"),
    include_str!("page/shown.js"),
    include_str!("page/layout.js"),
    include_str!("page/painter.js"),
    include_str!("page/charts.js"),
    include_str!("page/tables.js"),
    include_str!("page/source.js"),
    include_str!("page/page.js"),
];

/// Returns the page that shows `values`.
pub fn html(values: &PageValues) -> serde_json::Result<String> {
    let json = serde_json::to_string(values)?.replace('<', "\\u003c");
    let elements = |name: &str, contents: &[&str]| {
        let elements = contents
            .iter()
            .map(|content| format!("<{name}>{content}</{name}>"));
        elements.collect::<Vec<_>>().join("\n")
    };
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        sources(&SCRIPTS),
        sources(&STYLES)
    );
    let parts = [
        ("policy", policy),
        ("title", escaped(&values.input)),
        ("event", escaped(&values.event)),
        ("licence", escaped(include_str!("page/uplot/LICENSE"))),
        ("styles", elements("style", &STYLES)),
        ("scripts", elements("script", &SCRIPTS)),
        ("values", json),
    ];
    Ok(filled(PAGE, &parts))
}

/// Returns the hashes of contents in the syntax of a content security policy.
fn sources(contents: &[&str]) -> String {
    let hashes = contents.iter().map(|content| {
        let hash = Base64::encode_string(&Sha256::digest(content.as_bytes()));
        format!("'sha256-{hash}'")
    });
    hashes.collect::<Vec<_>>().join(" ")
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

/// Fills the placeholders of a page, such as `{{title}}`. Placeholders in the inserted text are not filled.
fn filled(page: &str, parts: &[(&str, String)]) -> String {
    let mut pieces = page.split("{{");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or(("", piece));
        let part = parts.iter().find(|(part, _)| *part == name);
        filled.push_str(part.map_or("", |(_, content)| content));
        filled.push_str(rest);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_where_they_stand() {
        let hostile = "</script><img src=x onerror=alert(1)>{{scripts}}\"";
        let values = PageValues {
            input: hostile.to_owned(),
            names: vec![hostile.to_owned()],
            ..PageValues::default()
        };
        let page = html(&values).unwrap();
        assert!(!page.contains("<img"));
        assert_eq!(page.matches("</script>").count(), SCRIPTS.len() + 1);
        let unfilled = page.matches("{{scripts}}").count();
        assert_eq!(unfilled, 4, "twice as JSON, and in title and heading");
    }

    #[test]
    fn every_place_of_the_page_is_filled() {
        let page = html(&PageValues::default()).unwrap();
        assert!(!page.contains("{{"), "left in the page");
    }

    #[test]
    fn our_own_scripts_and_styles_do_not_end_early() {
        for content in SCRIPTS.iter().chain(&STYLES) {
            assert!(
                !content.contains("</"),
                "{}",
                content.get(..40).unwrap_or_default()
            );
        }
    }
}
