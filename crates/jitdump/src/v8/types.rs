//! Types in TypeScript, which start and end where its grammar says. What is in their brackets does not matter.

use std::collections::BTreeSet;

use crate::v8::lexer::{Lexer, Slash, Token, TokenKind};

/// Maximum nesting depth of brackets in a type.
const MAX_DEPTH: usize = 64;

/// A reader of types.
#[derive(Debug, Default)]
pub struct Types {
    /// Offsets after each `<` that is a comparison. Reading from each up to where the outer one fails would take a multiple
    /// of the time.
    comparisons: BTreeSet<u32>,
}

/// What was read of a type.
#[derive(Debug, Default)]
struct PartOfType {
    /// Number of types that it is inside.
    depth: usize,
    /// The token that started the last operand, if an operator or the end follows.
    operand: Option<Token>,
    /// Whether the last token was `|` or `&`, which another one cannot follow.
    ends_with_join: bool,
    /// Whether `?` can belong to it, as in `A extends B ? C : D`.
    has_extends: bool,
    /// Number of such `?` without their `:`.
    open_conditionals: u32,
}

/// What a token is after an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A part of the type.
    Part,
    /// The first one after the type.
    End,
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
            lexer.next(Slash::Division);
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
            let token = lexer.next(Slash::Division)?;
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
        let mut read = PartOfType {
            depth,
            ..PartOfType::default()
        };
        loop {
            let mut ahead = lexer.clone();
            let Some(token) = ahead.next(Slash::Division) else {
                return read.operand.map(|_| lexer);
            };
            match read.operand {
                Some(operand) => {
                    if self.follow_operand(operand, &token, &mut ahead, &mut read)? == Step::End {
                        return Some(lexer);
                    }
                }
                None => self.start_operand(&token, &mut ahead, &mut read)?,
            }
            read.ends_with_join = matches!(token.kind, TokenKind::Punctuation(b'|' | b'&'));
            lexer = ahead;
        }
    }

    /// Goes on after an operand; `None` if what follows is no type. `ahead` is after the token, and moves on if more belongs to it.
    fn follow_operand(
        &mut self,
        operand: Token,
        token: &Token,
        ahead: &mut Lexer<'_>,
        read: &mut PartOfType,
    ) -> Option<Step> {
        let text = ahead.text(token);
        match token.kind {
            // An index or an array.
            TokenKind::Punctuation(b'[') if !token.on_new_line => {
                skip_brackets(ahead, token)?;
                return Some(Step::Part);
            }
            TokenKind::Punctuation(b'<') if !token.on_new_line => {
                let is_comparison = self.skip_arguments(ahead, read.depth).is_none();
                return Some(if is_comparison { Step::End } else { Step::Part });
            }
            TokenKind::Punctuation(b'.') => {}
            // `||` and `&&` are operators of expressions.
            TokenKind::Punctuation(character @ (b'|' | b'&')) if ahead.next_byte() != Some(character) => {}
            TokenKind::Punctuation(b'?') if read.has_extends => {
                read.open_conditionals = read.open_conditionals.saturating_add(1);
            }
            TokenKind::Punctuation(b':') if read.open_conditionals > 0 => {
                read.open_conditionals = read.open_conditionals.saturating_sub(1);
            }
            TokenKind::Word if text == b"extends" && !token.on_new_line => read.has_extends = true,
            // `value is string`
            TokenKind::Word if text == b"is" && !token.on_new_line && operand.kind == TokenKind::Word => {}
            _ => return Some(Step::End),
        }
        read.operand = None;
        Some(Step::Part)
    }

    /// Reads an operand, or what is before one; `None` if the token can be neither. `ahead` is after the token, and moves on if more
    /// belongs to it.
    fn start_operand(&mut self, token: &Token, ahead: &mut Lexer<'_>, read: &mut PartOfType) -> Option<()> {
        match token.kind {
            TokenKind::Word if is_prefix(ahead.text(token), ahead.peek()) => {}
            TokenKind::Word | TokenKind::Literal | TokenKind::Template => read.operand = Some(*token),
            TokenKind::Punctuation(b'[' | b'{') | TokenKind::TemplateHead => {
                skip_brackets(ahead, token)?;
                read.operand = Some(*token);
            }
            TokenKind::Punctuation(b'(') => {
                let may_be_function = has_parameters(ahead)?;
                skip_brackets(ahead, token)?;
                let mut after_arrow = ahead.clone();
                let arrow = after_arrow.next(Slash::Division);
                let is_arrow = arrow.is_some_and(|arrow| arrow.kind == TokenKind::Arrow);
                if may_be_function && is_arrow {
                    // What the function returns is the operand.
                    *ahead = after_arrow;
                } else {
                    read.operand = Some(*token);
                }
            }
            // The parameters of a function: `<T>(item: T) => T`.
            TokenKind::Punctuation(b'<') => self.skip_arguments(ahead, read.depth)?,
            TokenKind::Punctuation(b'-') => {}
            TokenKind::Punctuation(b'|' | b'&') if !read.ends_with_join => {}
            _ => return None,
        }
        Some(())
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
            let token = ahead.next(Slash::Division)?;
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
                let separator = lexer.next(Slash::Division)?;
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
    let first = lexer.next(Slash::Division)?;
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
        let token = lexer.next(Slash::Division)?;
        match token.kind {
            TokenKind::Punctuation(b'}') if end == BracketEnd::OfSubstitution => {
                // The template goes on. Its next substitution, if there is one, takes the place of this one.
                if lexer.template_rest().kind != TokenKind::TemplateHead {
                    ends.pop();
                }
            }
            TokenKind::Punctuation(character @ (b')' | b']' | b'}')) => {
                if ends.pop() != Some(BracketEnd::Character(character)) {
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

/// What ends a bracket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BracketEnd {
    /// This character.
    Character(u8),
    /// The `}` of a substitution in a template: `${`.
    OfSubstitution,
}

/// Returns what ends the bracket that a token opens; `None` if it opens none.
fn end_of(open: &Token) -> Option<BracketEnd> {
    match open.kind {
        TokenKind::Punctuation(b'(') => Some(BracketEnd::Character(b')')),
        TokenKind::Punctuation(b'[') => Some(BracketEnd::Character(b']')),
        TokenKind::Punctuation(b'{') => Some(BracketEnd::Character(b'}')),
        TokenKind::TemplateHead => Some(BracketEnd::OfSubstitution),
        _ => None,
    }
}
