//! Source text around the lines with samples.

use jitdump::printable;
use serde::Serialize;

use crate::frames::source_files::SourceName;
use crate::results::diagnostics::Issue;
use crate::tools::source_texts::Texts;

/// Number of lines shown before and after each line with samples.
const CONTEXT: u32 = 4;

/// Maximum length of a line, in characters. Minified scripts are one line.
const MAX_LINE: usize = 240;

/// Maximum size of all text on a page, in bytes.
const MAX_TEXT: usize = 2 << 20;

/// Lines of a source file.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Excerpt {
    /// Index of the file.
    pub file: u32,
    /// Number of the first line.
    pub first: u32,
    /// The lines, without line ends. Long lines are truncated.
    pub text: Vec<String>,
}

/// A source file, and its text if a runtime's file or a source map has it.
#[derive(Debug)]
pub struct SourceText {
    /// The file, as the runtime or a source map names it.
    pub name: SourceName,
    /// Text of the file.
    pub text: Option<Vec<u8>>,
}

/// Lines of a file to show.
#[derive(Debug)]
pub struct WantedLines {
    /// Index of the file.
    pub file: u32,
    /// Numbers of the lines, sorted.
    pub lines: Vec<u32>,
}

impl Texts<'_> {
    /// Returns excerpts with the wanted lines of each file, as far as there is room. Counts lines that are left out, and files
    /// that cannot be read.
    pub fn excerpts(&mut self, files: &[SourceText], wanted: &[WantedLines]) -> Vec<Excerpt> {
        let mut excerpts = Vec::new();
        let mut left = MAX_TEXT;
        for WantedLines { file, lines } in wanted {
            let Some(source) = files.get(*file as usize) else {
                continue;
            };
            let read;
            let text = match &source.text {
                Some(text) => text,
                None => match self.read(&source.name) {
                    Ok(text) => {
                        read = text;
                        &read
                    }
                    Err(issue) => {
                        self.faults.add(issue, 0);
                        continue;
                    }
                },
            };
            for mut excerpt in cut(*file, text, lines) {
                let kept = take_room(&excerpt.text, &mut left);
                let left_out = excerpt.text.len().saturating_sub(kept);
                self.faults.add_many(Issue::LinesNotShown, left_out as u64, 0);
                excerpt.text.truncate(kept);
                excerpts.extend((kept > 0).then_some(excerpt));
            }
        }
        excerpts
    }
}

/// Takes the room of lines from the `left` bytes. Returns how many of them fit; after one that does not, nothing is left.
fn take_room(lines: &[String], left: &mut usize) -> usize {
    let fits = |line: &&String| {
        let rest = left.checked_sub(line.len());
        *left = rest.unwrap_or(0);
        rest.is_some()
    };
    lines.iter().take_while(fits).count()
}

/// Returns the wanted lines of a text, with those around them.
fn cut(file: u32, text: &[u8], wanted: &[u32]) -> Vec<Excerpt> {
    let mut excerpts: Vec<Excerpt> = Vec::new();
    let mut wanted = wanted.iter().peekable();
    // Last line to show.
    let mut end = 0;
    for (number, line) in (1_u32..).zip(text.split(|&byte| byte == b'\n')) {
        while let Some(next) = wanted.next_if(|next| next.saturating_sub(CONTEXT) <= number) {
            end = next.saturating_add(CONTEXT);
        }
        if number > end {
            if wanted.peek().is_none() {
                break;
            }
            continue;
        }
        let follows = |excerpt: &&mut Excerpt| {
            u64::from(excerpt.first) + excerpt.text.len() as u64 == u64::from(number)
        };
        match excerpts.last_mut().filter(follows) {
            Some(excerpt) => excerpt.text.push(shown(line)),
            None => excerpts.push(Excerpt {
                file,
                first: number,
                text: vec![shown(line)],
            }),
        }
    }
    excerpts
}

/// Returns a line as it is shown.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A character has up to four bytes.
    let line = line.get(..4 * MAX_LINE).unwrap_or(line);
    let text = String::from_utf8_lossy(line).replace('\t', "    ");
    let cut: String = text.chars().take(MAX_LINE).collect();
    printable(cut.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::source_files::SourceOptions;
    use crate::load::LoadOptions;

    #[test]
    fn lines_are_shown_with_those_around_them() {
        let text: String = (1..=40).map(|line| format!("line {line}\r\n")).collect();
        let found = cut(7, text.as_bytes(), &[1, 12, 18, 40]);
        let ranges: Vec<(u32, usize)> = found
            .iter()
            .map(|excerpt| (excerpt.first, excerpt.text.len()))
            .collect();
        // The text ends with an empty line.
        assert_eq!(ranges, [(1, 5), (8, 15), (36, 6)]);
        assert_eq!((&*found[0].text[4], found[0].file), ("line 5", 7));
        assert!(cut(0, b"one line", &[9]).is_empty());
        assert!(cut(0, b"", &[]).is_empty());
    }

    #[test]
    fn long_lines_and_controls_are_not_shown_as_they_are() {
        let long = "ä".repeat(10_000);
        assert_eq!(shown(long.as_bytes()).chars().count(), 240);
        assert_eq!(shown(b"\ta\x1b[2J\xff\r"), "    a\\u{1b}[2J\u{fffd}");
        assert_eq!(shown("a\u{202e}b".as_bytes()), "a\\u{202e}b");
    }

    #[test]
    fn two_mebibytes_of_text_are_shown_and_the_lines_left_out_are_counted() {
        let (load, sources) = (LoadOptions::default(), SourceOptions::default());
        let show = |counts: [u32; 2]| {
            let files = counts.map(|count| SourceText {
                name: SourceName {
                    owner: 0,
                    path: Vec::new(),
                    script: None,
                },
                text: Some(vec!["x".repeat(128); count as usize].join("\n").into()),
            });
            let wanted = [0, 1].map(|file| WantedLines {
                file,
                lines: (1..=counts[file as usize]).collect(),
            });
            let mut texts = Texts::new(&load, &sources);
            let excerpts = texts.excerpts(&files, &wanted);
            let shown: usize = excerpts.iter().map(|excerpt| excerpt.text.len()).sum();
            let faults = texts.faults.iter();
            let left_out: Vec<(Issue, u64)> = faults.map(|(issue, fault)| (issue, fault.count)).collect();
            (shown, left_out)
        };
        assert_eq!(show([16_000, 384]), (16_384, vec![]));
        assert_eq!(show([16_000, 386]), (16_384, vec![(Issue::LinesNotShown, 2)]));
    }
}
