//! Types in TypeScript, which start and end where its grammar says. What is in their brackets does not matter.

use std::collections::BTreeSet;

use crate::v8::lexer::{Lexer, Token, TokenKind};

/// Maximum nesting depth of brackets in a type.
const MAX_DEPTH: usize = 64;

/// A reader of types.
#[derive(Debug, Default)]
pub struct Types {
    /// Offsets after each `<` that is a comparison. Reading from each up to where the outer one fails would take a multiple
    /// of the time.
    comparisons: BTreeSet<u32>,
}

impl Types {
    /// Returns the lexer after the type that follows; `None` if none does.
    pub fn after_type<'t>(&mut self, lexer: &Lexer<'t>) -> Option<Lexer<'t>> {
        self.after_nested_type(lexer, 0)
    }

    /// Returns the lexer after the types that follow, with commas between them.
    pub fn after_types<'t>(&mut self, lexer: &Lexer<'t>) -> Option<Lexer<'t>> {
        let mut lexer = self.after_type(lexer)?;
        while lexer.peek() == Some(b',') {
            lexer.next(false);
            lexer = self.after_type(&lexer)?;
        }
        Some(lexer)
    }

    /// Returns the lexer after the arguments or parameters that follow `<`, and their `>`.
    pub fn after_arguments<'t>(&mut self, lexer: &Lexer<'t>) -> Option<Lexer<'t>> {
        let offset = lexer.offset();
        while self.comparisons.first().is_some_and(|&first| first < offset) {
            self.comparisons.pop_first();
        }
        let mut lexer = lexer.clone();
        self.skip_arguments(&mut lexer, 0)?;
        Some(lexer)
    }

    /// Returns the lexer after the block of the declaration that follows, or after `;` if it has none.
    pub fn after_block<'t>(&mut self, lexer: &Lexer<'t>) -> Option<Lexer<'t>> {
        let mut lexer = lexer.clone();
        loop {
            let token = lexer.next(false)?;
            if token.is(b'<') {
                self.skip_arguments(&mut lexer, 0)?;
            } else if token.is(b'{') {
                skip_brackets(&mut lexer, &token)?;
                return Some(lexer);
            } else if token.is(b';') {
                return Some(lexer);
            }
        }
    }

    /// Returns the lexer after a type that starts here, inside `depth` others; `None` if there is none.
    fn after_nested_type<'t>(&mut self, lexer: &Lexer<'t>, depth: usize) -> Option<Lexer<'t>> {
        let mut lexer = lexer.clone();
        // Whether `|` or `&` may be before the operand.
        let mut may_lead = true;
        // The token that started the last operand, if an operator or the end follows.
        let mut operand: Option<Token> = None;
        let mut has_extends = false;
        let mut open_conditionals = 0u32;
        loop {
            let mut ahead = lexer.clone();
            let Some(token) = ahead.next(false) else {
                return operand.map(|_| lexer);
            };
            let text = ahead.text(&token);
            if let Some(last) = operand {
                match token.kind {
                    TokenKind::Punctuation(b'.') => operand = None,
                    TokenKind::Punctuation(b'[') if !token.on_new_line => skip_brackets(&mut ahead, &token)?,
                    TokenKind::Punctuation(b'<') if !token.on_new_line => {
                        if self.skip_arguments(&mut ahead, depth).is_none() {
                            return Some(lexer);
                        }
                    }
                    // `||` and `&&` are operators of expressions.
                    TokenKind::Punctuation(character @ (b'|' | b'&'))
                        if ahead.next_byte() != Some(character) =>
                    {
                        operand = None;
                    }
                    TokenKind::Punctuation(b'?') if has_extends => {
                        open_conditionals = open_conditionals.saturating_add(1);
                        operand = None;
                    }
                    TokenKind::Punctuation(b':') if open_conditionals > 0 => {
                        open_conditionals = open_conditionals.saturating_sub(1);
                        operand = None;
                    }
                    TokenKind::Word if text == b"extends" && !token.on_new_line => {
                        has_extends = true;
                        operand = None;
                    }
                    TokenKind::Word
                        if text == b"is" && !token.on_new_line && last.kind == TokenKind::Word =>
                    {
                        operand = None;
                    }
                    _ => return Some(lexer),
                }
            } else {
                match token.kind {
                    TokenKind::Word if is_prefix(text, ahead.peek()) => {}
                    TokenKind::Word | TokenKind::Literal | TokenKind::Template => operand = Some(token),
                    TokenKind::Punctuation(b'[' | b'{') | TokenKind::TemplateHead => {
                        skip_brackets(&mut ahead, &token)?;
                        operand = Some(token);
                    }
                    TokenKind::Punctuation(b'(') => {
                        let may_be_function = has_parameters(&ahead)?;
                        skip_brackets(&mut ahead, &token)?;
                        let mut after_arrow = ahead.clone();
                        let arrow = after_arrow.next(false);
                        let is_arrow = arrow.is_some_and(|arrow| arrow.kind == TokenKind::Arrow);
                        if may_be_function && is_arrow {
                            ahead = after_arrow;
                        } else {
                            operand = Some(token);
                        }
                    }
                    TokenKind::Punctuation(b'<') => self.skip_arguments(&mut ahead, depth)?,
                    TokenKind::Punctuation(b'-') => {}
                    TokenKind::Punctuation(b'|' | b'&') if may_lead => {}
                    _ => return None,
                }
            }
            may_lead =
                token.kind != TokenKind::Punctuation(b'|') && token.kind != TokenKind::Punctuation(b'&');
            lexer = ahead;
        }
    }

    /// Skips the arguments or parameters after `<`, and their `>`.
    fn skip_arguments(&mut self, lexer: &mut Lexer<'_>, depth: usize) -> Option<()> {
        let offset = lexer.offset();
        if self.comparisons.contains(&offset) {
            return None;
        }
        let depth = depth.checked_add(1).filter(|&depth| depth <= MAX_DEPTH);
        let skipped = depth.and_then(|depth| self.skip_list(lexer, depth));
        if skipped.is_none() {
            self.comparisons.insert(offset);
        }
        skipped
    }

    /// Skips type arguments up to their end, inside `depth` others; `None` if these are none.
    fn skip_list(&mut self, lexer: &mut Lexer<'_>, depth: usize) -> Option<()> {
        loop {
            let mut ahead = lexer.clone();
            let token = ahead.next(false)?;
            let next = ahead.peek();
            match ahead.text(&token) {
                b">" => {
                    *lexer = ahead;
                    return Some(());
                }
                b"const" | b"in" | b"out" if !matches!(next, Some(b',' | b'>' | b'=')) => {
                    *lexer = ahead;
                    continue;
                }
                _ => {}
            }
            *lexer = self.after_nested_type(lexer, depth)?;
            if lexer.peek() != Some(b'>') {
                let separator = lexer.next(false)?;
                if !separator.is(b',') && !separator.is(b'=') {
                    return None;
                }
            }
        }
    }
}

/// Whether a word is not the type itself, by the next byte.
fn is_prefix(word: &[u8], next: Option<u8>) -> bool {
    let is_before_word =
        || next.is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | 0x80..));
    match word {
        b"new" | b"import" => matches!(next, Some(b'(' | b'<')),
        b"typeof" | b"keyof" | b"readonly" => true,
        b"infer" | b"unique" | b"asserts" | b"abstract" => is_before_word(),
        _ => false,
    }
}

/// Whether what follows `(` can be the parameters of a function.
fn has_parameters(lexer: &Lexer<'_>) -> Option<bool> {
    let mut lexer = lexer.clone();
    let first = lexer.next(false)?;
    match first.kind {
        TokenKind::Punctuation(b')') | TokenKind::Operator => return Some(true),
        TokenKind::Word => {}
        TokenKind::Punctuation(b'[' | b'{') => skip_brackets(&mut lexer, &first)?,
        _ => return Some(false),
    }
    Some(matches!(lexer.peek(), Some(b':' | b',' | b'?' | b'=' | b')')))
}

/// Skips what is in a bracket, up to its end; `None` without a matching one, or if it has too many brackets inside.
fn skip_brackets(lexer: &mut Lexer<'_>, open: &Token) -> Option<()> {
    let mut ends = vec![end_of(open)?];
    while let Some(&end) = ends.last() {
        let token = lexer.next(false)?;
        match token.kind {
            TokenKind::Punctuation(b'}') if end == b'`' => {
                if lexer.template_rest().kind != TokenKind::TemplateHead {
                    ends.pop();
                }
            }
            TokenKind::Punctuation(character @ (b')' | b']' | b'}')) => {
                if ends.pop() != Some(character) {
                    return None;
                }
            }
            _ => ends.extend(end_of(&token)),
        }
        if ends.len() > MAX_DEPTH {
            return None;
        }
    }
    Some(())
}

/// Character that ends a bracket: `` ` `` for one in a template.
fn end_of(open: &Token) -> Option<u8> {
    match open.kind {
        TokenKind::Punctuation(b'(') => Some(b')'),
        TokenKind::Punctuation(b'[') => Some(b']'),
        TokenKind::Punctuation(b'{') => Some(b'}'),
        TokenKind::TemplateHead => Some(b'`'),
        _ => None,
    }
}
