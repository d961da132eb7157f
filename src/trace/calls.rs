//! Call stacks of threads, from recorded function entries and exits.

use std::hash::Hash;

use crate::diagnostics::Issue;
use crate::tally::Tally;
use crate::trace::call_tree::{CallTree, Exit, Stack};

/// A function entry or exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<F> {
    /// The function was entered.
    Enter(F),
    /// The function was left, in whatever way.
    Exit(F),
}

/// All call stacks of threads.
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
    /// Returns the stack after a step, which was recorded at byte `offset` of a file. Steps that do not match
    /// the stack are counted in `losses`.
    pub fn follow(&mut self, stack: Stack, step: Step<F>, offset: u64, losses: &mut Tally<Issue>) -> Stack {
        match step {
            Step::Enter(function) => self.tree.enter(stack, function).unwrap_or_else(|| {
                losses.add(Issue::TooManyStacks, offset);
                stack
            }),
            Step::Exit(function) => match self.tree.exit(stack, function) {
                Exit::Left { stack, lost } => {
                    losses.add_many(Issue::CallWithoutEnd, lost.into(), offset);
                    stack
                }
                Exit::Unmatched => {
                    losses.add(Issue::EndWithoutCall, offset);
                    stack
                }
            },
        }
    }

    /// Returns the functions of a stack, innermost first.
    pub fn functions(&self, stack: Stack) -> impl Iterator<Item = F> {
        self.tree.functions(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::call_tree::MAX_STACKS;

    #[test]
    fn stacks_beyond_the_limit_are_counted_for_their_callers() {
        let mut calls = Calls::default();
        let mut losses = Tally::default();
        for function in 0..MAX_STACKS {
            calls.follow(Stack::EMPTY, Step::Enter(function), 0, &mut losses);
        }
        let stack = calls.follow(Stack::EMPTY, Step::Enter(MAX_STACKS), 7, &mut losses);
        assert_eq!(calls.functions(stack).count(), 0);
        assert_eq!(losses.offsets(Issue::TooManyStacks).last(), Some(&7));
    }
}
