//! Tokens of JavaScript (ECMA-262, 12).
//!
//! The lexer does not decide whether a slash is a division or starts a regular expression, nor where a template goes
//! on: the scanner knows, from the tokens before, and asks for it.

use std::ops::Range;

use crate::v8::text::line_terminator;

/// A token and its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    pub kind: TokenKind,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
    /// Whether a line ends between the previous token and this one.
    pub on_new_line: bool,
}

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// An identifier, private name or keyword.
    Word,
    /// A number, string or regular expression.
    Literal,
    /// A template up to its end.
    Template,
    /// A template up to `${`.
    TemplateHead,
    /// `=>`.
    Arrow,
    /// `++` or `--`.
    Update,
    /// `?.`, `...` and other operators of several characters that start like one that matters.
    Operator,
    /// A single character of punctuation.
    Punctuation(u8),
}

impl Token {
    pub fn range(&self) -> Range<u32> {
        self.start..self.end
    }

    pub fn is(&self, punctuation: u8) -> bool {
        self.kind == TokenKind::Punctuation(punctuation)
    }
}

/// What a slash is, which is no comment, where a token is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slash {
    /// An operator.
    Division,
    /// The start of a regular expression.
    RegularExpression,
}

/// A lexer of a text of less than 4 GiB.
#[derive(Clone, Debug)]
pub struct Lexer<'t> {
    bytes: &'t [u8],
    at: usize,
    /// Whether a token was invalid.
    pub(super) has_failed: bool,
}

impl<'t> Lexer<'t> {
    pub fn new(bytes: &'t [u8]) -> Self {
        let mut lexer = Self {
            bytes,
            at: 0,
            has_failed: false,
        };
        if bytes.starts_with(b"#!") {
            lexer.skip_line();
        }
        lexer
    }

    /// Returns the next byte that is neither white space nor in a comment, without moving to it.
    pub fn peek(&self) -> Option<u8> {
        let mut ahead = self.clone();
        ahead.skip_blanks();
        ahead.bytes.get(ahead.at).copied()
    }

    /// Returns the byte after the last token.
    pub fn next_byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Returns the offset after the last token.
    pub fn offset(&self) -> u32 {
        self.at as u32
    }

    /// Returns the text of a token.
    pub fn text(&self, token: &Token) -> &'t [u8] {
        let range = token.start as usize..token.end as usize;
        self.bytes.get(range).unwrap_or_default()
    }

    /// Returns the next token; `None` at the end, and at a regular expression without one, where the lexer has failed.
    pub fn next(&mut self, slash: Slash) -> Option<Token> {
        let on_new_line = self.skip_blanks();
        let start = self.at;
        let rest = self.bytes.get(start..)?;
        let &first = rest.first()?;
        let (kind, size) = match first {
            b'"' | b'\'' => (TokenKind::Literal, string_size(rest)),
            b'0'..=b'9' => (TokenKind::Literal, number_size(rest)),
            b'.' if rest.get(1).is_some_and(u8::is_ascii_digit) => (TokenKind::Literal, number_size(rest)),
            b'`' => {
                self.at = start.saturating_add(1);
                return Some(self.template(start, on_new_line));
            }
            b'/' if slash == Slash::RegularExpression => match regular_expression_size(rest) {
                Some(size) => (TokenKind::Literal, size),
                // Anything may follow. Searching again from each slash would take quadratic time.
                None => return self.fail(),
            },
            b'#' | b'\\' => (TokenKind::Word, word_size(rest).max(1)),
            _ if is_word(first) => (TokenKind::Word, word_size(rest)),
            _ => match rest {
                [b'=', b'>', ..] => (TokenKind::Arrow, 2),
                [b'+', b'+', ..] | [b'-', b'-', ..] => (TokenKind::Update, 2),
                [b'?', b'.', third, ..] if !third.is_ascii_digit() => (TokenKind::Operator, 2),
                [b'.', b'.', b'.', ..] => (TokenKind::Operator, 3),
                [b'?', b'?', ..] | [b'=', b'=', ..] | [b'<' | b'>' | b'!', b'=', ..] => {
                    (TokenKind::Operator, 2)
                }
                _ => (TokenKind::Punctuation(first), 1),
            },
        };
        self.at = start.saturating_add(size);
        Some(self.token(kind, start, on_new_line))
    }

    /// Gives up: there are no more tokens.
    fn fail(&mut self) -> Option<Token> {
        self.has_failed = true;
        None
    }

    /// Returns the part of a template after the `}` that ends a substitution.
    pub fn template_rest(&mut self) -> Token {
        self.template(self.at, false)
    }

    /// Reads a template up to its end or the next substitution. `start` is the start of the token.
    fn template(&mut self, start: usize, on_new_line: bool) -> Token {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(size) = memchr::memchr3(b'`', b'\\', b'$', rest) else {
                self.at = self.bytes.len();
                return self.token(TokenKind::Template, start, on_new_line);
            };
            let (size, kind) = match rest.get(size..) {
                Some([b'`', ..]) => (size.saturating_add(1), Some(TokenKind::Template)),
                Some([b'$', b'{', ..]) => (size.saturating_add(2), Some(TokenKind::TemplateHead)),
                Some([b'\\', ..]) => (size.saturating_add(2), None),
                _ => (size.saturating_add(1), None),
            };
            self.at = self.at.saturating_add(size).min(self.bytes.len());
            if let Some(kind) = kind {
                return self.token(kind, start, on_new_line);
            }
        }
    }

    fn token(&self, kind: TokenKind, start: usize, on_new_line: bool) -> Token {
        Token {
            kind,
            start: start as u32,
            end: self.at as u32,
            on_new_line,
        }
    }

    /// Skips white space and comments. Returns whether they contain the end of a line.
    fn skip_blanks(&mut self) -> bool {
        let mut has_line_end = false;
        while let Some(rest) = self.bytes.get(self.at..) {
            let size = match rest {
                [b' ' | b'\t' | 0x0b | 0x0c, ..] => 1,
                [0xc2, 0xa0, ..] => 2,
                [0xef, 0xbb, 0xbf, ..] => 3,
                [b'/', b'/', ..] => {
                    self.skip_line();
                    continue;
                }
                [b'/', b'*', inside @ ..] => {
                    let size = memchr::memmem::find(inside, b"*/").unwrap_or(inside.len());
                    let comment = inside.get(..size).unwrap_or_default();
                    has_line_end |= memchr::memchr2(b'\n', b'\r', comment).is_some();
                    size.saturating_add(4)
                }
                _ => match line_terminator(rest) {
                    0 => break,
                    size => {
                        has_line_end = true;
                        size
                    }
                },
            };
            self.at = self.at.saturating_add(size).min(self.bytes.len());
        }
        has_line_end
    }

    /// Moves to the end of the line.
    fn skip_line(&mut self) {
        while let Some(rest) = self.bytes.get(self.at..) {
            let Some(size) = memchr::memchr3(b'\n', b'\r', 0xe2, rest) else {
                self.at = self.bytes.len();
                return;
            };
            self.at = self.at.saturating_add(size);
            if self
                .bytes
                .get(self.at..)
                .is_some_and(|rest| line_terminator(rest) > 0)
            {
                return;
            }
            self.at = self.at.saturating_add(1);
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// Size of the identifier that a text starts with, in bytes, with `#` and escapes.
fn word_size(text: &[u8]) -> usize {
    let mut size = usize::from(text.first() == Some(&b'#'));
    while let Some(rest) = text.get(size..) {
        size = size.saturating_add(match rest {
            [0xe2, 0x80, 0xa8 | 0xa9, ..] | [0xc2, 0xa0, ..] => return size,
            [b'\\', b'u', b'{', inside @ ..] => {
                let inside = inside.get(..inside.len().min(16)).unwrap_or_default();
                memchr::memchr(b'}', inside).map_or(3, |size| size.saturating_add(4))
            }
            [b'\\', ..] => 2,
            [byte, ..] if is_word(*byte) => 1,
            _ => return size.min(text.len()),
        });
    }
    text.len()
}

/// Size of a string literal, up to the end of the line if it has no end.
fn string_size(text: &[u8]) -> usize {
    let quote = text.first().copied().unwrap_or_default();
    let mut size = 1usize;
    while let Some(rest) = text.get(size..) {
        let Some(found) = memchr::memchr3(quote, b'\\', b'\n', rest) else {
            return text.len();
        };
        size = size.saturating_add(found);
        match text.get(size..) {
            Some([b'\\', b'\r', b'\n', ..]) => size = size.saturating_add(3),
            Some([b'\\', ..]) => size = size.saturating_add(2),
            Some([b'\n', ..]) => return size,
            _ => return size.saturating_add(1),
        }
    }
    text.len()
}

/// Size of the number that a text starts with. A point that cannot be part of it is that of a property: `1..toFixed()`.
fn number_size(text: &[u8]) -> usize {
    let is_decimal = !matches!(text, [b'0', b'x' | b'X' | b'b' | b'B' | b'o' | b'O', ..]);
    let mut may_have_point = is_decimal;
    let mut last = 0;
    let mut size = 0usize;
    for &byte in text {
        let is_exponent = |byte| is_decimal && matches!(byte, b'e' | b'E');
        let is_part = match byte {
            b'.' => std::mem::take(&mut may_have_point),
            b'+' | b'-' => is_exponent(last),
            _ => byte == b'_' || byte.is_ascii_alphanumeric(),
        };
        if !is_part {
            break;
        }
        may_have_point &= !is_exponent(byte);
        last = byte;
        size = size.saturating_add(1);
    }
    size
}

/// Size of the regular expression that a text starts with; `None` if its line ends before it does.
fn regular_expression_size(text: &[u8]) -> Option<usize> {
    let mut size = 1usize;
    let mut in_class = false;
    loop {
        let rest = text.get(size..)?;
        if line_terminator(rest) > 0 {
            return None;
        }
        match rest.first()? {
            b'\\' if line_terminator(rest.get(1..)?) == 0 => size = size.saturating_add(1),
            b'[' => in_class = true,
            b']' => in_class = false,
            b'/' if !in_class => {
                size = size.saturating_add(1);
                let flags = text.get(size..).unwrap_or_default();
                let flags = flags
                    .iter()
                    .take_while(|byte| byte.is_ascii_alphanumeric())
                    .count();
                return Some(size.saturating_add(flags));
            }
            _ => {}
        }
        size = size.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_ends_at_the_point_of_a_property() {
        for (number, rest) in [
            ("1.", ".toFixed()"),
            ("5.0", ".f()"),
            (".5", ".f()"),
            ("1e-5", ".f()"),
            ("2.5E+3", ".f()"),
            ("0x1e", ".f()"),
            ("0x1e", "+1"),
            ("1_000n", ";"),
            ("10", "-1"),
        ] {
            assert_eq!(
                number_size([number, rest].concat().as_bytes()),
                number.len(),
                "{number}{rest}"
            );
        }
    }
}
