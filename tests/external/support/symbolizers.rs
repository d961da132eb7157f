//! Runs symbolizers, which print functions, files and lines of addresses.

use std::path::Path;

pub use super::lines::Site;
use super::tools::{run, text};

/// Call chain of each address, innermost function first.
pub type Chains = Vec<Vec<Site>>;

/// Looks up addresses in an object with a program.
pub type Ask = fn(&Path, &[u64]) -> Chains;

/// All symbolizers by name.
pub const ALL: [(&str, Ask); 3] = [
    ("llvm-symbolizer", llvm),
    ("addr2line", gnu),
    ("eu-addr2line", elfutils),
];

fn in_hex(addresses: &[u64]) -> Vec<String> {
    addresses.iter().map(|address| format!("{address:#x}")).collect()
}

/// Parses pairs of lines: a function, and its file and line.
fn sites<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Site> {
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let site = |pair: &[&str]| {
        // elfutils appends the location of the inlining
        let function = pair[0].split(" inlined at ").next().unwrap();
        // GNU addr2line appends the discriminator
        let place = pair[1].split(" (discriminator").next().unwrap();
        let mut parts = place.split(':');
        let file = parts.next().unwrap();
        Site {
            function: function.into(),
            file: file.strip_prefix("./").unwrap_or(file).into(),
            // GNU addr2line prints ? for an unknown line
            line: parts.next().and_then(|line| line.parse().ok()).unwrap_or(0),
        }
    };
    lines.chunks_exact(2).map(site).collect()
}

pub fn llvm(object: &Path, addresses: &[u64]) -> Chains {
    let object = format!("--obj={}", text(object));
    let addresses = in_hex(addresses);
    let mut arguments = vec!["--inlines", "--no-demangle", &object];
    arguments.extend(addresses.iter().map(String::as_str));
    let shown = run("llvm-symbolizer", &arguments);
    let blocks = shown.trim_end().split("\n\n");
    blocks.map(|block| sites(block.lines())).collect()
}

pub fn gnu(object: &Path, addresses: &[u64]) -> Chains {
    marked("addr2line", object, addresses)
}

pub fn elfutils(object: &Path, addresses: &[u64]) -> Chains {
    marked("eu-addr2line", object, addresses)
}

/// Runs a program that prints each address before its result.
fn marked(program: &str, object: &Path, addresses: &[u64]) -> Chains {
    let addresses = in_hex(addresses);
    let mut arguments = vec!["-f", "-i", "-a", "-e", text(object)];
    arguments.extend(addresses.iter().map(String::as_str));
    let shown = run(program, &arguments);
    let mut chains: Vec<Vec<&str>> = Vec::new();
    for line in shown.lines() {
        match chains.last_mut() {
            Some(chain) if !line.starts_with("0x") => chain.push(line),
            _ => chains.push(Vec::new()),
        }
    }
    chains.into_iter().map(|chain| sites(chain.into_iter())).collect()
}
