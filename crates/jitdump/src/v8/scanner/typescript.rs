//! What TypeScript adds to JavaScript. Node.js blanks it, and so does the scanner.
//!
//! The scanner takes a script for JavaScript until something cannot be. Then it starts again, with the types of
//! TypeScript: what JavaScript reads as comparisons in `f<T>(x)` are type arguments.

use crate::v8::brackets::{Bracket, BracketKind, Parenthesis};
use crate::v8::lexer::{Lexer, Slash, Token, TokenKind};
use crate::v8::scanner::{After, Scanner};

/// What starts with a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TypeSyntax {
    /// The token, without anything after it: `private`, or `?` of `a?: T`.
    Token,
    /// A type follows.
    Type,
    /// Types with commas between them follow.
    Types,
    /// Type arguments or parameters follow.
    Arguments,
    /// A declaration with a block: `interface A { }`.
    Declaration,
    /// `type A = T`.
    Alias,
}

impl<'t> Scanner<'t> {
    /// Returns what starts with a token, if JavaScript does not have it there.
    pub(super) fn type_syntax(&mut self, token: &Token) -> Option<TypeSyntax> {
        let bracket = *self.brackets.innermost()?;
        match token.kind {
            TokenKind::Word => self.type_word(token, &bracket),
            TokenKind::Punctuation(b':') => self.is_annotation(&bracket).then_some(TypeSyntax::Type),
            TokenKind::Punctuation(b'?') => self.is_optional(&bracket).then_some(TypeSyntax::Token),
            TokenKind::Punctuation(b'!') => {
                let is_postfix = self.after == After::Operand && !token.on_new_line;
                let is_certain =
                    || matches!(self.lexer.peek(), Some(b'.' | b')' | b']' | b',' | b';' | b':'));
                (is_postfix && (self.is_typescript || is_certain())).then_some(TypeSyntax::Token)
            }
            TokenKind::Punctuation(b'<') => {
                let is_certain =
                    self.is_typescript || self.is_in_head(&bracket) || self.is_call_without_arguments();
                is_certain.then_some(TypeSyntax::Arguments)
            }
            _ => None,
        }
    }

    /// Whether `?` is not that of a conditional.
    fn is_optional(&self, bracket: &Bracket) -> bool {
        let in_class = matches!(bracket.kind, BracketKind::Class(_));
        match self.lexer.peek() {
            Some(b':' | b')' | b',' | b';' | b'=' | b'}') => true,
            Some(b'(' | b'<') => self.is_typescript && in_class && self.starts_statement,
            _ => false,
        }
    }

    /// Whether the parameters of a function or the body of a class follow.
    fn is_in_head(&self, bracket: &Bracket) -> bool {
        self.function.is_some() || bracket.class.is_some()
    }

    /// Whether type arguments follow, and `()`. Nothing that is compared to something looks like this.
    fn is_call_without_arguments(&mut self) -> bool {
        if self.after != After::Operand {
            return false;
        }
        let Some(mut after) = self.types.after_arguments(&self.lexer) else {
            return false;
        };
        after.next(Slash::Division).is_some_and(|next| next.is(b'(')) && after.peek() == Some(b')')
    }

    /// Whether a type follows `:`.
    fn is_annotation(&self, bracket: &Bracket) -> bool {
        let Some(last) = self.previous(0) else {
            return false;
        };
        let closed = self.closed.filter(|_| last.is(b')'));
        if bracket.open_conditionals > 0 {
            let is_empty = || self.previous(1).is_some_and(|token| token.is(b'('));
            return closed.is_some_and(|(parenthesis, _)| {
                let is_arrow = parenthesis.is_typed || (!parenthesis.is_after_operand && is_empty());
                is_arrow || parenthesis.function.is_some()
            });
        }
        match bracket.kind {
            BracketKind::Parenthesis(_)
            | BracketKind::Square
            | BracketKind::Substitution
            | BracketKind::Class(_) => true,
            BracketKind::Object => closed.is_some(),
            BracketKind::Block | BracketKind::Function { .. } if bracket.is_case => false,
            BracketKind::Block | BracketKind::Function { .. } => {
                let is_word = last.kind == TokenKind::Word;
                let is_label = is_word && (self.starts_statement || self.text(&last) == b"default");
                let is_declared = || {
                    let before = self.previous(1).map(|token| self.text(&token));
                    is_word && matches!(before, Some(b"let" | b"const" | b"var"))
                };
                closed.is_some() || (self.is_typescript && !is_label) || is_declared()
            }
        }
    }

    /// Returns the syntax of types that a word starts, if it does there.
    fn type_word(&self, token: &Token, bracket: &Bracket) -> Option<TypeSyntax> {
        let is_member = matches!(bracket.kind, BracketKind::Class(_));
        let is_statement = matches!(bracket.kind, BracketKind::Block | BracketKind::Function { .. });
        let text = self.text(token);
        let syntax = match text {
            b"as" | b"satisfies" => self.is_type_operator(token, bracket).then_some(TypeSyntax::Type),
            b"implements" => bracket.class.map(|_| TypeSyntax::Types),
            b"abstract" | b"declare" | b"override" | b"private" | b"protected" | b"public" | b"readonly"
                if is_member =>
            {
                self.is_modifier().then_some(TypeSyntax::Token)
            }
            b"abstract" | b"declare" | b"interface" | b"module" | b"namespace" | b"type" if is_statement => {
                self.declaration(text)
            }
            _ => None,
        };
        // `{ a: {} as (b) => c }` does not have a method.
        let is_after_operand =
            || self.after == After::Operand && self.previous(0).is_some_and(|last| last.is(b'}'));
        syntax.filter(|_| !self.is_property_name() || is_after_operand())
    }

    /// Whether `as` or `satisfies` is an operator, before a type.
    fn is_type_operator(&self, token: &Token, bracket: &Bracket) -> bool {
        let next = self.lexer.clone().next(Slash::Division);
        let is_certain = |next: &Token| {
            // `as` also is in `import { a as b }`.
            let is_import = bracket.kind == BracketKind::Block && self.brackets.depth() > 1;
            !is_import && !next.on_new_line && !matches!(next.kind, TokenKind::Punctuation(_))
        };
        let starts_type = |next: &Token| match next.kind {
            TokenKind::Word => !matches!(self.text(next), b"in" | b"of" | b"instanceof" | b"from"),
            TokenKind::Literal | TokenKind::Template | TokenKind::TemplateHead => true,
            TokenKind::Punctuation(character) => b"{[(<-|&".contains(&character),
            _ => false,
        };
        // `for (a of as)`
        let is_operand = self
            .previous(0)
            .is_some_and(|last| matches!(self.text(&last), b"of" | b"async"));
        let is_operator = self.after == After::Operand && !token.on_new_line && !is_operand;
        is_operator
            && next.is_some_and(|next| starts_type(&next) && (self.is_typescript || is_certain(&next)))
    }

    /// Whether the word that was just read, such as `private` or `readonly`, is a modifier of a member of a class, and not the name
    /// of one: `private x` and `static readonly x` have modifiers, `private() {}` and `readonly = 1` have none.
    fn is_modifier(&self) -> bool {
        let is_first = self.after == After::Statement
            || self.previous(0).is_some_and(|last| self.text(&last) == b"static");
        let next = self
            .lexer
            .clone()
            .next(Slash::Division)
            .filter(|next| !next.on_new_line);
        let is_name = next.is_some_and(|next| match next.kind {
            TokenKind::Word => true,
            // `private "x"`, `readonly [x]` and `private *x()`. In JavaScript, the last two could be expressions.
            TokenKind::Literal | TokenKind::Punctuation(b'[' | b'*') => self.is_typescript,
            _ => false,
        });
        is_first && is_name
    }

    /// Returns what starts with the first word of a statement.
    fn declaration(&self, word: &[u8]) -> Option<TypeSyntax> {
        let is_first = self.after == After::Statement
            || self
                .previous(0)
                .is_some_and(|last| matches!(self.text(&last), b"export" | b"default"));
        let mut lexer = self.lexer.clone();
        let next = lexer
            .next(Slash::Division)
            .filter(|next| is_first && !next.on_new_line)?;
        let after_next = lexer.next(Slash::Division)?;
        let is_name = next.kind == TokenKind::Word;
        let is_declaration = match word {
            b"interface" => {
                is_name
                    && (after_next.is(b'{') || after_next.is(b'<') || self.text(&after_next) == b"extends")
            }
            b"module" | b"namespace" => is_name && (after_next.is(b'{') || after_next.is(b'.')),
            b"type" => {
                let is_alias = is_name && (after_next.is(b'=') || after_next.is(b'<'));
                return is_alias.then_some(TypeSyntax::Alias);
            }
            b"abstract" => return (self.text(&next) == b"class").then_some(TypeSyntax::Token),
            _ => match self.text(&next) {
                b"const" => {
                    let is_enum = self.text(&after_next) == b"enum";
                    return Some(if is_enum {
                        TypeSyntax::Declaration
                    } else {
                        TypeSyntax::Token
                    });
                }
                b"function" | b"let" | b"var" | b"type" => return Some(TypeSyntax::Token),
                b"abstract" | b"class" | b"enum" | b"global" | b"interface" | b"module" | b"namespace" => {
                    true
                }
                _ => false,
            },
        };
        is_declaration.then_some(TypeSyntax::Declaration)
    }

    /// Skips what starts with a token. Returns whether it is a type; `None` if it is not valid.
    pub(super) fn skip_type(&mut self, syntax: TypeSyntax, token: &Token) -> Option<bool> {
        match syntax {
            TypeSyntax::Token => {}
            TypeSyntax::Type => {
                self.lexer = self.types.after_type(&self.lexer)?;
                if token.is(b':') {
                    self.add_annotation()?;
                }
            }
            TypeSyntax::Types => self.lexer = self.types.after_types(&self.lexer)?,
            TypeSyntax::Arguments => {
                let Some(lexer) = self
                    .types
                    .after_arguments(&self.lexer)
                    .filter(|lexer| self.ends_arguments(lexer))
                else {
                    return Some(false);
                };
                self.lexer = lexer;
            }
            TypeSyntax::Declaration => {
                self.lexer = self.types.after_block(&self.lexer)?;
                self.after = After::Statement;
            }
            TypeSyntax::Alias => {
                self.lexer.next(Slash::Division)?;
                let mut token = self.lexer.next(Slash::Division)?;
                if token.is(b'<') {
                    self.lexer = self.types.after_arguments(&self.lexer)?;
                    token = self.lexer.next(Slash::Division)?;
                }
                self.lexer = self.types.after_type(&self.lexer).filter(|_| token.is(b'='))?;
                self.after = After::Statement;
            }
        }
        Some(true)
    }

    /// Notes that a type was after `:`.
    fn add_annotation(&mut self) -> Option<()> {
        let closed = self
            .closed
            .filter(|_| self.previous(0).is_some_and(|last| last.is(b')')));
        let bracket = self.brackets.innermost_mut()?;
        match (&mut bracket.kind, closed) {
            (BracketKind::Parenthesis(parenthesis), _) => parenthesis.is_typed = true,
            // The method may have no body.
            (BracketKind::Class(_), Some((parenthesis, _))) => self.forget_call(&parenthesis),
            _ => {}
        }
        Some(())
    }

    /// Whether what follows can be after type arguments: after an operand, no other one is.
    fn ends_arguments(&self, after: &Lexer<'t>) -> bool {
        let is_in_head = || {
            self.brackets
                .innermost()
                .is_some_and(|bracket| self.is_in_head(bracket))
        };
        if self.after != After::Operand || is_in_head() {
            return true;
        }
        let is_shift = self.lexer.next_byte() == Some(b'<');
        let next = after.clone().next(Slash::Division);
        let is_end = next.is_none_or(|next| match next.kind {
            TokenKind::Template | TokenKind::TemplateHead | TokenKind::Operator | TokenKind::Arrow => true,
            TokenKind::Punctuation(character) => next.on_new_line || b"(),.;:]}?=|&*".contains(&character),
            TokenKind::Word | TokenKind::Literal | TokenKind::Update => next.on_new_line,
        });
        is_end && !is_shift
    }

    /// Removes the call that the name of a method looks like.
    pub(super) fn forget_call(&mut self, parenthesis: &Parenthesis) {
        if let Some(call) = self.calls.get_mut(parenthesis.calls)
            && Some((call.name.start, call.name.end)) == parenthesis.name
        {
            call.name = 0..0;
        }
    }
}
