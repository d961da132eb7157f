//! Documents of the project: links, commands and tests that they refer to.

use std::path::{Path, PathBuf};

use jitinject::internals::runtimes::Description;

use crate::support::{commands, jitinject, said, scratch};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

#[test]
fn documents_lead_to_files_that_are_there() {
    let mut documents: Vec<PathBuf> = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.extend(
        [
            "README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "testdata/README.md",
        ]
        .map(|name| root().join(name)),
    );
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        // In links, the words of a heading are separated by dashes.
        let has_heading = |text: &str, link: &str| {
            let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
            let mut names = headings.map(|line| {
                line.trim_start_matches('#')
                    .trim()
                    .to_lowercase()
                    .replace(' ', "-")
            });
            names.any(|name| name == link)
        };
        for link in text
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap())
        {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            assert!(path.exists(), "{}: {link}", document.display());
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(has_heading(&text, heading), "{}: {link}", document.display());
            }
        }
        let named = text.split('`').skip(1).step_by(2);
        for name in named.filter(|name| {
            ["docs/", "scripts/", "tests/", "examples/", "src/", "crates/"]
                .iter()
                .any(|folder| name.starts_with(folder))
        }) {
            let path = name.split(' ').next().unwrap();
            assert!(root().join(path).exists(), "{}: {path}", document.display());
        }
    }
}

/// The MIT licence demands its notice in all copies.
#[test]
fn packages_have_the_licences_and_the_files_that_the_readme_leads_to() {
    let manifest = document("Cargo.toml");
    let (_, packages) = manifest.split_once("[package.metadata.deb]").unwrap();
    let (deb, packages) = packages.split_once("[package.metadata.generate-rpm]").unwrap();
    let (rpm, _) = packages.split_once("[package.metadata.binstall]").unwrap();
    let script = document("scripts/package");
    let mut lines = script.lines();
    let archive = lines.find(|line| line.starts_with("cp \"$program\" ")).unwrap();
    let readme = document("README.md");
    let links = readme.split("](").skip(1);
    let links = links.map(|rest| rest.split(')').next().unwrap());
    let files: Vec<&str> = links.filter(|link| !link.contains('/')).collect();
    assert!(files.contains(&"SECURITY.md"), "{files:?}");
    for file in files.into_iter().chain(["LICENSE-"]) {
        for (package, its_files) in [(".deb", deb), (".rpm", rpm), ("archive", archive)] {
            assert!(its_files.contains(file), "{package}: {file}");
        }
    }
    let holder = "2026 The jitinject developers";
    assert!(document("LICENSE-MIT").contains(&format!("Copyright (c) {holder}")));
    assert!(deb.contains(&format!("copyright = \"{holder}\"")));
}

#[test]
fn the_readme_names_every_command() {
    let readme = document("README.md");
    for command in commands() {
        assert!(readme.contains(&format!("jitinject {command}")), "{command}");
    }
}

#[test]
fn runtimes_whose_variables_may_harm_are_named_in_help_and_manual() {
    let sentence = |text: &str, start: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, rest) = text.split_once(start).unwrap();
        rest.split(". ").next().unwrap().to_owned()
    };
    let help = jitinject().args(["record", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let of_help = sentence(&help, "all other runtimes are set as well");
    let of_usage = sentence(&document("docs/usage.md"), "except where they could do harm");
    for runtime in Description::all() {
        // The first word of `Erlang/OTP`.
        let name = runtime.name.split('/').next().unwrap();
        for text in [&of_help, &of_usage] {
            assert_eq!(text.contains(name), !runtime.is_harmless, "{name}: {text}");
        }
    }
}

#[test]
fn the_example_of_the_readme_prints_what_it_shows() {
    let readme = document("README.md");
    let (_, example) = readme.split_once("    $ cargo run --release -- ").unwrap();
    let mut lines = example.lines();
    let arguments = lines.next().unwrap().split(' ');
    let shown: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    let folder = scratch();
    std::os::unix::fs::symlink(root().join("testdata"), folder.path().join("testdata")).unwrap();
    std::fs::create_dir(folder.path().join("target")).unwrap();
    let output = jitinject()
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(said(&output).lines().collect::<Vec<_>>(), shown);
}

/// Multiples of jitinject's time in the table, for uncompressed files and without options.
#[test]
fn the_readme_says_how_fast_the_program_is_as_it_was_measured() {
    let text = document("docs/performance.md");
    let (_, table) = text.split_once("| work | ").unwrap();
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| "));
    let by_default = rows.filter(|row| {
        !["--", "compressed", "piped"]
            .iter()
            .any(|other| row.contains(other))
    });
    let (mut without_cache, mut with_cache) = (Vec::new(), Vec::new());
    for row in by_default {
        let multiple = |cell: &str| cell.split(['(', ')']).nth(1).unwrap().parse::<f64>().unwrap();
        let cells: Vec<&str> = row.split(" |").collect();
        without_cache.push(multiple(cells[5]));
        with_cache.push(multiple(cells[6]));
    }
    let range = |multiples: &[f64]| {
        let least = multiples.iter().copied().fold(f64::INFINITY, f64::min);
        format!(
            "{least} to {} times",
            multiples.iter().copied().fold(0.0, f64::max)
        )
    };
    let readme = document("README.md");
    for (range, after) in [
        (range(&with_cache), " as fast](docs/performance.md)"),
        (range(&without_cache), " without its cache"),
    ] {
        assert!(readme.contains(&(range.clone() + after)), "{range}{after}");
    }
}

/// Returns the file of a test that a document calls `suite::MODULE::NAME`, `external::MODULE::NAME`,
/// `growth::MODULE::NAME`, or, for a unit test, `MODULE::NAME`.
fn file_of_test(modules: &[&str]) -> PathBuf {
    let path = match modules.split_first() {
        Some((&folder @ ("suite" | "external"), modules)) => {
            root().join("tests").join(folder).join(modules.join("/"))
        }
        Some((&"growth", modules)) => root().join("tests/growth/tests").join(modules.join("/")),
        _ => {
            let sources =
                ["src", "crates/jitdump/src"].map(|sources| root().join(sources).join(modules.join("/")));
            let is_there =
                |path: &PathBuf| path.with_extension("rs").exists() || path.join("mod.rs").exists();
            let found = sources.iter().find(|path| is_there(path));
            found.unwrap_or(&sources[0]).clone()
        }
    };
    match path.join("mod.rs") {
        file if file.exists() => file,
        _ => path.with_extension("rs"),
    }
}

/// Returns whether a source file has a test function of this name.
fn has_test(text: &str, name: &str) -> bool {
    text.split("#[test]").skip(1).any(|after| {
        let mut lines = after.lines().map(str::trim);
        let function = lines.find(|line| !line.is_empty() && !line.starts_with("#["));
        function.is_some_and(|line| line.starts_with(&format!("fn {name}(")))
    })
}

#[test]
fn every_promise_about_hostile_input_names_a_test_that_is_there() {
    let text = document("docs/hostile-input.md");
    let lines: Vec<&str> = text.lines().collect();
    let mut promises = 0;
    for table in lines.chunk_by(|one, next| one.starts_with('|') == next.starts_with('|')) {
        let [title, _, rows @ ..] = table else { continue };
        let last_cell = |row: &&str| {
            row.trim_matches('|')
                .rsplit('|')
                .next()
                .unwrap()
                .trim()
                .to_owned()
        };
        if !title.starts_with('|') {
            continue;
        }
        assert_eq!(last_cell(title), "test", "{title}");
        for row in rows {
            let cell = last_cell(row);
            let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            assert!(!tests.is_empty(), "row without a test: {row}");
            for test in tests {
                let mut modules: Vec<&str> = test.split("::").collect();
                let name = modules.pop().unwrap();
                let file = file_of_test(&modules);
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                assert!(
                    has_test(&text, name),
                    "{}: test {test} not found: {row}",
                    file.display()
                );
                promises += 1;
            }
        }
    }
    assert!(promises > 100, "{promises}");
}
