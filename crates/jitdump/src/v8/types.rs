//! Types in TypeScript, which start and end where its grammar says. What is in their brackets does not matter.

use crate::v8::lexer::{Lexer, Token, TokenKind};

/// Maximum nesting depth of brackets in a type.
const MAX_DEPTH: usize = 64;

/// Returns the lexer after the type that follows; `None` if none does.
pub fn after_type<'t>(lexer: &Lexer<'t>) -> Option<Lexer<'t>> {
    after_nested_type(lexer, 0)
}

/// Returns the lexer after the arguments or parameters that follow `<`, and their `>`.
pub fn after_type_arguments<'t>(lexer: &Lexer<'t>) -> Option<Lexer<'t>> {
    let mut lexer = lexer.clone();
    skip_type_arguments(&mut lexer, 0)?;
    Some(lexer)
}

/// Returns the lexer after the types that follow, with commas between them.
pub fn after_types<'t>(lexer: &Lexer<'t>) -> Option<Lexer<'t>> {
    let mut lexer = after_type(lexer)?;
    while lexer.peek() == Some(b',') {
        lexer.next(false);
        lexer = after_type(&lexer)?;
    }
    Some(lexer)
}

/// Returns the lexer after the block of the declaration that follows, or after `;` if it has none.
pub fn after_block<'t>(lexer: &Lexer<'t>) -> Option<Lexer<'t>> {
    let mut lexer = lexer.clone();
    loop {
        let token = lexer.next(false)?;
        if token.is(b'<') {
            skip_type_arguments(&mut lexer, 0)?;
        } else if token.is(b'{') {
            skip_brackets(&mut lexer, &token)?;
            return Some(lexer);
        } else if token.is(b';') {
            return Some(lexer);
        }
    }
}

fn after_nested_type<'t>(lexer: &Lexer<'t>, depth: usize) -> Option<Lexer<'t>> {
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
                    if skip_type_arguments(&mut ahead, depth).is_none() {
                        return Some(lexer);
                    }
                }
                // `||` and `&&` are operators of expressions.
                TokenKind::Punctuation(character @ (b'|' | b'&')) if ahead.next_byte() != Some(character) => {
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
                TokenKind::Word if text == b"is" && !token.on_new_line && last.kind == TokenKind::Word => {
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
                TokenKind::Punctuation(b'<') => skip_type_arguments(&mut ahead, depth)?,
                TokenKind::Punctuation(b'-') => {}
                TokenKind::Punctuation(b'|' | b'&') if may_lead => {}
                _ => return None,
            }
        }
        may_lead = token.kind != TokenKind::Punctuation(b'|') && token.kind != TokenKind::Punctuation(b'&');
        lexer = ahead;
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

fn skip_type_arguments(lexer: &mut Lexer<'_>, depth: usize) -> Option<()> {
    let depth = depth.checked_add(1).filter(|&depth| depth <= MAX_DEPTH)?;
    loop {
        let mut ahead = lexer.clone();
        let token = ahead.next(false)?;
        if token.is(b'>') {
            *lexer = ahead;
            return Some(());
        }
        let is_modifier = matches!(ahead.text(&token), b"const" | b"in" | b"out")
            && !matches!(ahead.peek(), Some(b',' | b'>' | b'='));
        if is_modifier {
            *lexer = ahead;
            continue;
        }
        *lexer = after_nested_type(lexer, depth)?;
        if !matches!(lexer.peek(), Some(b',' | b'=' | b'>')) {
            return None;
        }
        if lexer.peek() != Some(b'>') {
            let separator = lexer.next(false)?;
            if separator.kind != TokenKind::Punctuation(b',')
                && separator.kind != TokenKind::Punctuation(b'=')
            {
                return None;
            }
        }
    }
}

/// Skips what is in a bracket, up to its end.
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
