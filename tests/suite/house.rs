//! What newcomers are told about the project is true of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::support::commands;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// The first sentence of what a file says it is.
fn purpose(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let words = text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph: Vec<&str> = words.map(str::trim).take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let sentence = paragraph.split(". ").next().unwrap().trim_end_matches('.');
    assert!(!sentence.is_empty(), "{} does not say what it is", path.display());
    sentence.to_owned()
}

/// The files and folders in a folder by name; the file that stands for the folder is not among them.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut entries: Vec<PathBuf> = entries
        .filter(|path| match path.is_dir() {
            true => stands_for(path).is_some(),
            false => path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("mod.rs"),
        })
        .collect();
    // What a folder is told of by a file beside it, is told once.
    entries.retain(|path| path.is_dir() || !path.with_extension("").is_dir());
    entries.sort();
    entries
}

/// The file that says what a folder is.
fn stands_for(folder: &Path) -> Option<PathBuf> {
    let files = [folder.join("mod.rs"), folder.with_extension("rs")];
    files.into_iter().find(|file| file.exists())
}

fn put_tree(folder: &Path, depth: usize, out: &mut String) {
    for path in entries(folder) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (name, file) = match path.is_dir() {
            true => (format!("{name}/"), stands_for(&path).unwrap()),
            false => (name.to_owned(), path.clone()),
        };
        let name = format!("{:indent$}{name}", "", indent = depth * 2);
        writeln!(out, "{name:24}{}", purpose(&file)).unwrap();
        if path.is_dir() {
            put_tree(&path, depth + 1, out);
        }
    }
}

/// The part of a document between its lines `<!-- NAME -->` and `<!-- end -->`.
fn part<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("<!-- {name} -->\n")).unwrap();
    rest.split_once("<!-- end -->").unwrap().0
}

#[test]
fn the_design_has_a_line_for_each_file_and_it_is_what_the_file_says() {
    let mut tree = "```\n".to_owned();
    put_tree(&root().join("src"), 0, &mut tree);
    tree.push_str("```\n");
    let design = document("docs/design.md");
    let told = part(&design, "files");
    if std::env::var_os("BLESS").is_some() {
        let mark = "<!-- files -->\n";
        let blessed = design.replacen(&format!("{mark}{told}"), &format!("{mark}{tree}"), 1);
        std::fs::write(root().join("docs/design.md"), blessed).unwrap();
        return;
    }
    assert_eq!(told, tree, "BLESS=1 cargo test --test suite house puts it right");
}

#[test]
fn documents_lead_to_files_that_are_there() {
    let mut documents: Vec<PathBuf> = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.extend(["README.md", "CONTRIBUTING.md", "testdata/README.md"].map(|name| root().join(name)));
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        // A heading's link has its words with a dash between them.
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
            ["docs/", "scripts/", "tests/", "examples/", "src/"]
                .iter()
                .any(|folder| name.starts_with(folder))
        }) {
            let path = name.split(' ').next().unwrap();
            assert!(root().join(path).exists(), "{}: {path}", document.display());
        }
    }
}

#[test]
fn the_readme_names_every_command() {
    let readme = document("README.md");
    for command in commands() {
        assert!(readme.contains(&format!("jitinject {command}")), "{command}");
    }
}

/// The file that has the test which a document calls `suite::MODULE::NAME` or `external::MODULE::NAME`, or
/// `MODULE::NAME` if it is one of the library's or the program's own.
fn file_of_test(modules: &[&str]) -> PathBuf {
    let path = match modules.split_first() {
        Some((&folder @ ("suite" | "external"), modules)) => {
            root().join("tests").join(folder).join(modules.join("/"))
        }
        _ => root().join("src").join(modules.join("/")),
    };
    match path.join("mod.rs") {
        file if file.exists() => file,
        _ => path.with_extension("rs"),
    }
}

fn has_test(text: &str, name: &str) -> bool {
    text.split("#[test]").skip(1).any(|behind| {
        let mut lines = behind.lines().map(str::trim);
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
            assert!(!tests.is_empty(), "no test is named: {row}");
            for test in tests {
                let mut modules: Vec<&str> = test.split("::").collect();
                let name = modules.pop().unwrap();
                let file = file_of_test(&modules);
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                assert!(
                    has_test(&text, name),
                    "{}: there is no test {test}: {row}",
                    file.display()
                );
                promises += 1;
            }
        }
    }
    assert!(promises > 100, "{promises}");
}
