//! Open brackets, and what the scanner has to remember of each.

use crate::v8::lexer::Token;

/// Maximum nesting depth of brackets. Code that people or tools write stays far below it.
const MAX_DEPTH: usize = 1 << 10;

/// An open bracket.
#[derive(Clone, Copy, Debug)]
pub struct Bracket {
    pub kind: BracketKind,
    /// Offset of the bracket.
    pub start: u32,
    /// Number of `?` inside whose `:` has not come yet.
    pub open_conditionals: u32,
    /// Whether a `class` was inside whose body has not begun: the offset of the keyword.
    pub class: Option<u32>,
    /// Whether a `case` is inside whose `:` has not come yet.
    pub is_case: bool,
}

/// The kind of a bracket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BracketKind {
    /// `(`, with the tokens before it.
    Parenthesis(Parenthesis),
    /// `[`.
    Square,
    /// `{` of statements. Its end is no operand.
    Block,
    /// `{` of an object literal or pattern.
    Object,
    /// `{` of a class: the index of the function of its initializers.
    Class(u32),
    /// `{` of the function with this index.
    Function { index: u32, is_operand: bool },
    /// `${` in a template.
    Substitution,
}

/// What precedes a parenthesis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parenthesis {
    /// Whether a keyword like `if` is before it, so that its end is no operand.
    pub is_control: bool,
    /// Whether it has the parameters of a `function`.
    pub function: Option<FunctionKeyword>,
    /// The token before it, if it may be the name of a method.
    pub name: Option<(u32, u32)>,
    /// Start of `async` before it.
    pub is_async: Option<u32>,
    /// The name that a function gets that starts here.
    pub inferred_name: Option<(u32, u32)>,
    /// Number of calls before it.
    pub calls: usize,
    /// Whether it is after an operand, as in a call.
    pub is_after_operand: bool,
    /// Whether it has the types of parameters.
    pub is_typed: bool,
}

/// A `function` before its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FunctionKeyword {
    /// Range of the name.
    pub name: Option<(u32, u32)>,
    /// Whether the function is an expression.
    pub is_operand: bool,
}

impl Bracket {
    pub fn new(kind: BracketKind, token: &Token) -> Self {
        Self {
            kind,
            start: token.start,
            open_conditionals: 0,
            class: None,
            is_case: false,
        }
    }

    /// Whether methods are directly inside.
    pub fn has_members(&self) -> bool {
        matches!(self.kind, BracketKind::Object | BracketKind::Class(_))
    }
}

/// The open brackets, from the outermost on. The first one is the script itself.
#[derive(Debug)]
pub struct Brackets(Vec<Bracket>);

impl Brackets {
    pub fn new() -> Self {
        let script = Token {
            kind: crate::v8::lexer::TokenKind::Punctuation(b'{'),
            start: 0,
            end: 0,
            on_new_line: false,
        };
        Self(vec![Bracket::new(BracketKind::Block, &script)])
    }

    /// Opens a bracket; `None` if there are too many.
    pub fn open(&mut self, bracket: Bracket) -> Option<()> {
        (self.0.len() < MAX_DEPTH).then(|| self.0.push(bracket))
    }

    /// Closes the innermost bracket; `None` if none is open.
    pub fn close(&mut self) -> Option<Bracket> {
        if self.0.len() > 1 { self.0.pop() } else { None }
    }

    pub fn innermost(&self) -> Option<&Bracket> {
        self.0.last()
    }

    pub fn innermost_mut(&mut self) -> Option<&mut Bracket> {
        self.0.last_mut()
    }

    pub fn depth(&self) -> usize {
        self.0.len()
    }
}
