//! Functions and lines of all code in objects.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSymbol as _};

use super::lines::Site;
use super::symbolizer;

/// Returns the call chains of all code of the symbols that `fits` selects, innermost function first.
pub fn chains(objects: &[PathBuf], fits: impl Fn(&str) -> bool) -> Vec<Vec<Site>> {
    let mut chains = Vec::new();
    for path in objects {
        let bytes = std::fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        for symbol in file.symbols().filter(|symbol| fits(symbol.name().unwrap())) {
            let addresses: Vec<u64> = (symbol.address()..symbol.address() + symbol.size()).collect();
            chains.extend(symbolizer::sites(path, &addresses));
        }
    }
    chains
}

/// Returns the names of all symbols.
pub fn symbols(objects: &[PathBuf]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in objects {
        let bytes = std::fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        names.extend(file.symbols().map(|symbol| symbol.name().unwrap().to_owned()));
    }
    names
}

/// Returns a chain in the form `small lib.js:5 < hot a.js:8`, with V8's names shortened.
pub fn shown(chain: &[Site]) -> String {
    let sites = chain.iter().map(|site| {
        let function = site.function.strip_prefix("JS:").unwrap_or(&site.function);
        let function = function.trim_start_matches(['~', '^', '+', '*']);
        let function = function.split(' ').next().unwrap();
        let file = Path::new(&site.file).file_name().unwrap().to_str().unwrap();
        format!("{function} {file}:{}", site.line)
    });
    sites.collect::<Vec<_>>().join(" < ")
}
