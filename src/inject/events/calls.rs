//! The calls that threads are in, by what is told of entries and exits.

use std::hash::Hash;

use crate::code::call_tree::{CallTree, Exit, Stack};
use crate::inject::events::Loss;
use crate::tally::Tally;

/// A function was entered or left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<F> {
    /// Entered.
    Enter(F),
    /// Left, by whatever way.
    Exit(F),
}

/// All stacks of calls that threads were in.
#[derive(Clone, Debug)]
pub struct Calls<F> {
    tree: CallTree<F>,
}

impl<F> Default for Calls<F> {
    fn default() -> Self {
        Self {
            tree: CallTree::default(),
        }
    }
}

impl<F: Copy + Eq + Hash> Calls<F> {
    /// The stack behind a step that is told of at `offset` of a file. Whatever the step is, there is one: what does not
    /// fit is counted.
    pub fn follow(&mut self, stack: Stack, step: Step<F>, offset: u64, losses: &mut Tally<Loss>) -> Stack {
        match step {
            Step::Enter(function) => self.tree.enter(stack, function).unwrap_or_else(|| {
                losses.add(Loss::Stacks, offset);
                stack
            }),
            Step::Exit(function) => match self.tree.exit(stack, function) {
                Exit::Left { stack, lost } => {
                    losses.add_many(Loss::LostExit, lost.into(), offset);
                    stack
                }
                Exit::Unmatched => {
                    losses.add(Loss::UnmatchedExit, offset);
                    stack
                }
            },
        }
    }

    /// The functions of a stack, innermost first.
    pub fn functions(&self, stack: Stack) -> impl Iterator<Item = F> {
        self.tree.functions(stack)
    }
}
