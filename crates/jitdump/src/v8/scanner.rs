//! Finds functions and calls in the tokens of a script, in one pass (TypeScript takes two) and without recursion, except up to
//! 64 levels in types.
//!
//! It keeps the open brackets, and from each knows what its end is: of an operand, after which a slash divides, or of a
//! statement, after which a slash starts a regular expression. The rest of the grammar does not matter. Invalid
//! scripts are not detected: the result of a text that is not JavaScript means nothing.

mod typescript;

use std::ops::Range;

use crate::v8::brackets::{Bracket, BracketKind, Brackets, FunctionKeyword, Parenthesis};
use crate::v8::functions::{NamedCall, ScriptFunction, bit};
use crate::v8::lexer::{Lexer, Slash, Token, TokenKind};
use crate::v8::types::Types;

/// Maximum number of functions, and of calls. Each takes a few bytes of text, and many more of memory.
const MAX_FUNCTIONS: usize = 1 << 20;
const MAX_CALLS: usize = 1 << 22;

/// What a script contains.
#[derive(Debug)]
pub struct ScannedScript {
    /// Functions in the order of their ends; parents are not set.
    pub functions: Vec<ScriptFunction>,
    /// Calls in no order; their functions are not set.
    pub calls: Vec<NamedCall>,
    /// A bit for each byte: whether a token starts there.
    pub token_starts: Vec<u64>,
}

/// Scans a text of less than 4 GiB; `None` if brackets do not match, or are nested too deeply, or there are too many
/// functions.
pub fn scan(bytes: &[u8]) -> Option<ScannedScript> {
    let mut scanner = Scanner::new(bytes, false);
    let mut added = scanner.add_all();
    if scanner.has_types {
        scanner = Scanner::new(bytes, true);
        added = scanner.add_all();
    }
    added?;
    let is_whole = scanner.brackets.depth() == 1 && !scanner.lexer.has_failed;
    scanner.end_arrows(bytes.len() as u32, None);
    scanner.calls.retain(|call| !call.name.is_empty());
    is_whole.then_some(ScannedScript {
        functions: scanner.functions,
        calls: scanner.calls,
        token_starts: scanner.token_starts,
    })
}

/// What may follow the last token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    /// The token ended an operand: an operator or the end of the expression follows.
    Operand,
    /// An operand follows.
    Operator,
    /// A statement follows, and so does an operand.
    Statement,
    /// A control parenthesis ended: a statement follows.
    Control,
}

/// An arrow function without braces.
#[derive(Clone, Copy, Debug)]
struct OpenArrow {
    function: u32,
    /// Number of open brackets.
    depth: usize,
    /// Number of open conditionals in the innermost one.
    conditionals: u32,
}

/// Number of previous tokens to remember: as in `name = async function* (`.
const REMEMBERED: usize = 6;

struct Scanner<'t> {
    lexer: Lexer<'t>,
    brackets: Brackets,
    functions: Vec<ScriptFunction>,
    calls: Vec<NamedCall>,
    token_starts: Vec<u64>,
    arrows: Vec<OpenArrow>,
    after: After,
    /// Whether types are skipped.
    is_typescript: bool,
    /// Whether something was found that is TypeScript.
    has_types: bool,
    types: Types,
    /// The last tokens, the latest one first.
    last: [Option<Token>; REMEMBERED],
    /// Whether the last token starts a statement, or a member of a class.
    starts_statement: bool,
    /// `function`, until its parameters begin.
    function: Option<FunctionKeyword>,
    /// The parenthesis that ended last, with its start.
    closed: Option<(Parenthesis, u32)>,
    /// The arrow function whose body begins next.
    body: Option<u32>,
    /// Names of the base classes of the open classes.
    bases: Vec<Option<Range<u32>>>,
    /// The rest of a template after the last token.
    template: Option<Token>,
}

impl<'t> Scanner<'t> {
    /// Starts at the beginning of a text.
    fn new(bytes: &'t [u8], is_typescript: bool) -> Self {
        let script = ScriptFunction {
            range: 0..(bytes.len() as u32).saturating_add(1),
            name: 0..0,
            parent: 0,
        };
        Self {
            lexer: Lexer::new(bytes),
            brackets: Brackets::new(),
            functions: vec![script],
            calls: Vec::new(),
            token_starts: vec![0; (bytes.len() / 64).saturating_add(1)],
            arrows: Vec::new(),
            after: After::Statement,
            is_typescript,
            has_types: false,
            types: Types::default(),
            last: [None; REMEMBERED],
            starts_statement: false,
            function: None,
            closed: None,
            body: None,
            bases: Vec::new(),
            template: None,
        }
    }

    /// A division follows an operand; elsewhere, one starts.
    fn slash(&self) -> Slash {
        match self.after {
            After::Operand => Slash::Division,
            After::Operator | After::Statement | After::Control => Slash::RegularExpression,
        }
    }

    fn text(&self, token: &Token) -> &'t [u8] {
        self.lexer.text(token)
    }

    /// The previous token number `back`, from 0.
    fn previous(&self, back: usize) -> Option<Token> {
        self.last.get(back).copied().flatten()
    }

    fn add_all(&mut self) -> Option<()> {
        while let Some(token) = self.lexer.next(self.slash()) {
            self.add(token)?;
        }
        Some(())
    }

    /// Follows a token; `None` if no script can have it here.
    fn add(&mut self, token: Token) -> Option<()> {
        // An operand after an expression starts a statement, if it is on a new line.
        let ends_expression =
            self.after == After::Operand || self.previous(0).is_some_and(|last| last.is(b'}'));
        if token.on_new_line && ends_expression && self.starts_operand(&token) {
            self.end_arrows(self.end_of_last_token(), None);
            self.after = After::Statement;
        }
        if let Some(syntax) = self.type_syntax(&token) {
            self.has_types = true;
            if !self.is_typescript {
                return None;
            }
            if self.skip_type(syntax, &token)? {
                return Some(());
            }
        }
        if let Some(word) = self.token_starts.get_mut(token.start as usize / 64) {
            *word |= bit(token.start);
        }
        let starts_statement = matches!(self.after, After::Statement | After::Control);
        match token.kind {
            TokenKind::Word => self.word(&token),
            TokenKind::Literal | TokenKind::Template => self.after = After::Operand,
            TokenKind::TemplateHead => {
                self.brackets
                    .open(Bracket::new(BracketKind::Substitution, &token))?;
                self.after = After::Operator;
            }
            TokenKind::Arrow => self.arrow()?,
            // After an operand, they end one.
            TokenKind::Update if self.after == After::Operand && !token.on_new_line => {}
            TokenKind::Update | TokenKind::Operator => self.after = After::Operator,
            TokenKind::Punctuation(character) => self.punctuation(character, &token)?,
        }
        let last = self.template.take().unwrap_or(token);
        self.remember(last);
        self.starts_statement = starts_statement;
        let is_within_limits = self.functions.len() <= MAX_FUNCTIONS && self.calls.len() <= MAX_CALLS;
        is_within_limits.then_some(())
    }

    /// Makes a token the latest one of those before the next.
    fn remember(&mut self, token: Token) {
        self.last.rotate_right(1);
        let [latest, ..] = &mut self.last;
        *latest = Some(token);
    }

    fn end_of_last_token(&self) -> u32 {
        self.previous(0).map_or(0, |token| token.end)
    }

    /// Whether an operand starts with a token: a word, a literal or an object.
    fn starts_operand(&self, token: &Token) -> bool {
        match token.kind {
            TokenKind::Word => !matches!(self.text(token), b"in" | b"instanceof"),
            TokenKind::Literal => true,
            TokenKind::Punctuation(character) => character == b'{',
            _ => false,
        }
    }

    /// Whether a word here is the name of a property, even if it is a keyword.
    fn is_property_name(&self) -> bool {
        let Some(last) = self.previous(0) else {
            return false;
        };
        if last.is(b'.') || (last.kind == TokenKind::Operator && self.text(&last) == b"?.") {
            return true;
        }
        let is_first = [b'{', b',', b';', b'}', b'*']
            .iter()
            .any(|&character| last.is(character))
            || matches!(self.text(&last), b"get" | b"set" | b"async" | b"static");
        let is_member = self.brackets.innermost().is_some_and(Bracket::has_members);
        let next = self.lexer.peek();
        let is_last = matches!(next, Some(b'(' | b':' | b',' | b'=' | b'}' | b';'))
            || (self.is_typescript && matches!(next, Some(b'<' | b'?' | b'!')));
        is_member && is_first && is_last
    }

    /// Follows a word: a keyword, a name or part of an operand.
    fn word(&mut self, token: &Token) {
        if self.is_property_name() {
            self.after = After::Operand;
            return;
        }
        let is_operand = self.after == After::Operator;
        self.after = match self.text(token) {
            b"function" => {
                self.function = Some(FunctionKeyword {
                    name: None,
                    is_operand,
                });
                After::Operator
            }
            b"class" => {
                let initializer = token.start;
                if let Some(bracket) = self.brackets.innermost_mut() {
                    bracket.class = Some(initializer);
                }
                // Whether the class is an operand.
                if is_operand {
                    After::Operator
                } else {
                    After::Statement
                }
            }
            b"else" | b"do" | b"try" | b"finally" => After::Statement,
            b"case" => {
                if let Some(bracket) = self.brackets.innermost_mut() {
                    bracket.is_case = true;
                }
                After::Operator
            }
            b"return" | b"typeof" | b"instanceof" | b"in" | b"new" | b"void" | b"delete" | b"throw"
            | b"extends" | b"default" | b"yield" | b"await" | b"var" | b"let" | b"const" => After::Operator,
            _ => {
                if let Some(function) = self.function.as_mut().filter(|function| function.name.is_none()) {
                    function.name = Some((token.start, token.end));
                }
                After::Operand
            }
        };
    }

    /// Name of the variable or property that a function is assigned to, if it starts after the token number `back`.
    fn inferred_name(&self, back: usize) -> Option<(u32, u32)> {
        let assignment = self.previous(back)?;
        let name = self.previous(back.checked_add(1)?)?;
        let is_assigned = assignment.is(b'=') || assignment.is(b':');
        let is_name = matches!(name.kind, TokenKind::Word | TokenKind::Literal);
        (is_assigned && is_name).then(|| self.name_range(&name))
    }

    /// Range of a name, without the quotes of a string.
    fn name_range(&self, token: &Token) -> (u32, u32) {
        let inside = || (token.start.saturating_add(1), token.end.saturating_sub(1));
        match self.text(token).first() {
            Some(b'"' | b'\'') if token.end > token.start.saturating_add(1) => inside(),
            _ => (token.start, token.end),
        }
    }

    fn is_async(&self, token: &Token) -> bool {
        token.kind == TokenKind::Word && self.text(token) == b"async"
    }

    /// Adds a function whose end is not known yet.
    fn open_function(&mut self, start: u32, name: Option<(u32, u32)>) -> u32 {
        let index = self.functions.len() as u32;
        let (from, to) = name.unwrap_or_default();
        self.functions.push(ScriptFunction {
            range: start..start,
            name: from..to,
            parent: 0,
        });
        index
    }

    fn end_function(&mut self, index: u32, end: u32) {
        if let Some(function) = self.functions.get_mut(index as usize) {
            function.range.end = end;
        }
    }

    /// Starts an arrow function at `=>`, whose parameters were read before.
    fn arrow(&mut self) -> Option<()> {
        let last = self.previous(0)?;
        let (start, name) = match self.closed.take().filter(|_| last.is(b')')) {
            Some((parenthesis, start)) => (parenthesis.is_async.unwrap_or(start), parenthesis.inferred_name),
            None => match self.previous(1).filter(|token| self.is_async(token)) {
                Some(token) => (token.start, self.inferred_name(2)),
                None => (last.start, self.inferred_name(1)),
            },
        };
        let index = self.open_function(start, name);
        self.after = After::Operator;
        if self.lexer.peek() == Some(b'{') {
            self.body = Some(index);
            return Some(());
        }
        let depth = self.brackets.depth();
        let bracket = self.brackets.innermost()?;
        self.arrows.push(OpenArrow {
            function: index,
            depth,
            conditionals: bracket.open_conditionals,
        });
        Some(())
    }

    /// Ends the arrow functions without braces that are directly in the innermost bracket: all of them, or those inside
    /// a conditional that `:` goes on with.
    fn end_arrows(&mut self, end: u32, conditionals: Option<u32>) {
        let depth = self.brackets.depth();
        let is_ended = |arrow: &OpenArrow| {
            arrow.depth >= depth && conditionals.is_none_or(|open| arrow.conditionals >= open)
        };
        while let Some(arrow) = self.arrows.pop_if(|arrow| is_ended(arrow)) {
            self.end_function(arrow.function, end);
        }
    }

    /// Follows a punctuation character; `None` if brackets do not match.
    fn punctuation(&mut self, character: u8, token: &Token) -> Option<()> {
        match character {
            b'(' => self.open_parenthesis(token)?,
            b'[' => {
                self.brackets.open(Bracket::new(BracketKind::Square, token))?;
                self.after = After::Operator;
            }
            b'{' => self.open_brace(token)?,
            b')' | b']' | b'}' => self.close(character, token)?,
            b';' => {
                self.end_arrows(self.end_of_last_token(), None);
                self.after = After::Statement;
            }
            b',' => {
                self.end_arrows(self.end_of_last_token(), None);
                self.after = After::Operator;
            }
            b'?' => {
                let bracket = self.brackets.innermost_mut()?;
                bracket.open_conditionals = bracket.open_conditionals.saturating_add(1);
                self.after = After::Operator;
            }
            b':' => self.colon()?,
            _ => self.after = After::Operator,
        }
        Some(())
    }

    /// Follows a colon: after a label or `case`, in a conditional, or in an object.
    fn colon(&mut self) -> Option<()> {
        let bracket = self.brackets.innermost_mut()?;
        let is_block = !matches!(bracket.kind, BracketKind::Object);
        self.after = match bracket.open_conditionals {
            0 if is_block => {
                bracket.is_case = false;
                After::Statement
            }
            0 => After::Operator,
            open => {
                bracket.open_conditionals = open.saturating_sub(1);
                self.end_arrows(self.end_of_last_token(), Some(open));
                After::Operator
            }
        };
        Some(())
    }

    /// Opens a parenthesis: of parameters, a call, a keyword or an expression, by the tokens in front of it.
    fn open_parenthesis(&mut self, token: &Token) -> Option<()> {
        let function = self.function.take();
        let last = self.previous(0);
        let mut parenthesis = Parenthesis {
            function,
            calls: self.calls.len(),
            is_after_operand: self.after == After::Operand,
            ..Parenthesis::default()
        };
        if let Some(last) = last.filter(|_| function.is_none()) {
            let is_property = self.previous(1).is_some_and(|token| token.is(b'.'));
            let is_async = self.is_async(&last) && !is_property && self.after == After::Operand;
            let is_name =
                matches!(last.kind, TokenKind::Word | TokenKind::Literal) && self.after == After::Operand;
            let has_members = self.brackets.innermost().is_some_and(Bracket::has_members);
            let is_keyword = matches!(
                self.text(&last),
                b"if" | b"while" | b"for" | b"with" | b"switch" | b"catch"
            );
            let is_awaited = self.text(&last) == b"await"
                && self.previous(1).is_some_and(|token| self.text(&token) == b"for");
            parenthesis.is_control = (is_keyword && !is_property && !has_members) || is_awaited;
            parenthesis.is_async = is_async.then_some(last.start);
            parenthesis.name = is_name.then(|| self.name_range(&last));
            parenthesis.inferred_name = self.inferred_name(usize::from(is_async));
            if is_name && !parenthesis.is_control && last.kind == TokenKind::Word {
                self.add_call(&last);
            }
        }
        if let Some(function) = parenthesis.function.as_mut() {
            function.name = function.name.or_else(|| self.name_before_keywords());
        }
        self.brackets
            .open(Bracket::new(BracketKind::Parenthesis(parenthesis), token))?;
        self.after = After::Operator;
        Some(())
    }

    /// Adds a call of a name, which is that of the base class for `super`. The function that it is in is found later.
    fn add_call(&mut self, name: &Token) {
        let base = || self.bases.last().cloned().flatten();
        let base = (self.text(name) == b"super").then(base).flatten();
        self.calls.push(NamedCall {
            name: base.unwrap_or(name.range()),
            start: name.start,
            function: 0,
        });
    }

    /// Name that a function without one gets: `name = function (`, `name = async function* (`.
    fn name_before_keywords(&self) -> Option<(u32, u32)> {
        let is_keyword = |token: Token| token.is(b'*') || matches!(self.text(&token), b"function" | b"async");
        let is_before = |&back: &usize| self.previous(back).is_some_and(is_keyword);
        self.inferred_name((0..REMEMBERED).take_while(is_before).count())
    }

    fn open_brace(&mut self, token: &Token) -> Option<()> {
        let kind = self.brace_kind(token)?;
        self.brackets.open(Bracket::new(kind, token))?;
        self.after = match kind {
            BracketKind::Object => After::Operator,
            _ => After::Statement,
        };
        Some(())
    }

    /// Returns what a brace opens, by the tokens in front of it.
    fn brace_kind(&mut self, token: &Token) -> Option<BracketKind> {
        if let Some(index) = self.body.take() {
            // Nothing can divide an arrow function.
            return Some(BracketKind::Function {
                index,
                is_operand: false,
            });
        }
        let last = self.previous(0);
        let is_after = |character: u8| last.is_some_and(|last| last.is(character));
        let is_extended = last.is_some_and(|last| self.text(&last) == b"extends");
        let bracket = self.brackets.innermost_mut()?;
        if let Some(class) = bracket.class.take_if(|_| !is_extended) {
            let initializer = self.open_function(class, None);
            self.end_function(initializer, token.end);
            self.bases.push(self.base_class());
            return Some(BracketKind::Class(initializer));
        }
        let has_members = bracket.has_members();
        if is_after(b')') {
            let (parenthesis, start) = self.closed.take()?;
            if let Some(function) = parenthesis.function {
                let index = self.open_function(start, function.name);
                return Some(BracketKind::Function {
                    index,
                    is_operand: function.is_operand,
                });
            }
            if has_members {
                self.forget_call(&parenthesis);
                let index = self.open_function(start, parenthesis.name);
                return Some(BracketKind::Function {
                    index,
                    is_operand: true,
                });
            }
            return Some(BracketKind::Block);
        }
        Some(match self.after {
            After::Operator => BracketKind::Object,
            After::Operand | After::Statement | After::Control => BracketKind::Block,
        })
    }

    /// Returns the name before the body of a class, if it is that of the base class: `B` in `extends B` or `extends a.B`.
    fn base_class(&self) -> Option<Range<u32>> {
        let name = self.previous(0).filter(|name| name.kind == TokenKind::Word)?;
        let before = self.previous(1)?;
        (before.is(b'.') || self.text(&before) == b"extends").then(|| name.range())
    }

    /// Closes the innermost bracket, and the function that ends with it; `None` if the bracket is another one.
    fn close(&mut self, character: u8, token: &Token) -> Option<()> {
        self.end_arrows(self.end_of_last_token(), None);
        let bracket = self.brackets.close()?;
        let expected = match bracket.kind {
            BracketKind::Parenthesis(_) => b')',
            BracketKind::Square => b']',
            _ => b'}',
        };
        if character != expected {
            return None;
        }
        self.after = match bracket.kind {
            BracketKind::Parenthesis(parenthesis) => {
                self.closed = Some((parenthesis, bracket.start));
                if parenthesis.is_control {
                    After::Control
                } else {
                    After::Operand
                }
            }
            BracketKind::Square | BracketKind::Object => After::Operand,
            BracketKind::Block => After::Statement,
            BracketKind::Class(initializer) => {
                self.bases.pop();
                self.end_function(initializer, token.end);
                After::Operand
            }
            BracketKind::Function { index, is_operand } => {
                self.end_function(index, token.end);
                let is_member = self.brackets.innermost().is_some_and(Bracket::has_members);
                if is_operand && !is_member {
                    After::Operand
                } else {
                    After::Statement
                }
            }
            BracketKind::Substitution => {
                let rest = self.lexer.template_rest();
                self.template = Some(rest);
                if rest.kind == TokenKind::TemplateHead {
                    self.brackets
                        .open(Bracket::new(BracketKind::Substitution, &rest))?;
                    After::Operator
                } else {
                    After::Operand
                }
            }
        };
        Some(())
    }
}

#[cfg(test)]
mod tests;
