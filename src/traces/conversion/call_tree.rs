//! Call stacks of threads, from function entries and exits.
//!
//! The stacks of all threads are nodes of one tree: a node is a call, and its parent is the caller. A repeated stack
//! is the same node, so memory grows with the number of different stacks and not with the number of calls.

use std::hash::Hash;

use jitdump::Tally;

use crate::collections::hash::HashMap;
use crate::results::diagnostics::Issue;

/// A stack, identified by its innermost call, or an empty stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReplayedStack(u32);

impl ReplayedStack {
    /// The stack without calls.
    pub const EMPTY: Self = Self(0);
}

/// Maximum number of calls to search for an exit, and the number that each exit adds to the unused budget.
const MAX_CALLS_SCANNED: usize = 4096;
const CALLS_PER_EXIT: usize = 64;

/// Budget for searching the call that an exit belongs to. An exception can leave many calls without logging exits,
/// but a crafted file could have exits that match no call, each with millions of calls to search.
#[derive(Clone, Copy, Debug)]
pub struct ScanBudget(usize);

impl Default for ScanBudget {
    fn default() -> Self {
        Self(MAX_CALLS_SCANNED)
    }
}

impl ScanBudget {
    /// Searches calls, from the innermost outwards, for the first that `fits`. Returns the number of calls inside it.
    pub fn find<C>(&mut self, calls: impl Iterator<Item = C>, fits: impl Fn(C) -> bool) -> Option<usize> {
        self.0 = self.0.saturating_add(CALLS_PER_EXIT).min(MAX_CALLS_SCANNED);
        let mut looked = 0usize;
        let found = calls.take(self.0).position(|call| {
            looked = looked.saturating_add(1);
            fits(call)
        });
        self.0 = self.0.saturating_sub(looked);
        found
    }
}

/// Maximum number of different stacks. Programs have a few thousand; each takes 40 bytes.
pub const MAX_STACKS: usize = 1 << 22;

/// A function entry or exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStep<F> {
    /// The function was entered.
    Enter(F),
    /// The function was left, in whatever way.
    Exit(F),
}

/// Call stacks of functions `F`.
#[derive(Clone, Debug, Default)]
pub struct ReplayedCalls<F> {
    /// Caller's stack and function of each stack except the empty one, from stack 1 on.
    calls: Vec<(ReplayedStack, F)>,
    known: HashMap<(ReplayedStack, F), ReplayedStack>,
    scan_budget: ScanBudget,
}

impl<F: Copy + Eq + Hash> ReplayedCalls<F> {
    /// Returns the stack after a step, which was recorded at byte `offset` of a file. Steps that do not match
    /// the stack are counted in `faults`.
    pub fn follow(
        &mut self,
        stack: ReplayedStack,
        step: CallStep<F>,
        offset: u64,
        faults: &mut Tally<Issue>,
    ) -> ReplayedStack {
        let (issue, next) = match step {
            CallStep::Enter(function) => (Issue::TooManyStacks, self.enter(stack, function)),
            CallStep::Exit(function) => {
                let left = self.exit(stack, function);
                let lost = left.map_or(0, |(_, lost)| lost as u64);
                faults.add_many(Issue::CallWithoutEnd, lost, offset);
                (Issue::EndWithoutCall, left.map(|(outer, _)| outer))
            }
        };
        next.unwrap_or_else(|| {
            faults.add(issue, offset);
            stack
        })
    }

    /// Returns the stack after a call of `function` from `stack`; `None` if there are already too many different
    /// stacks.
    fn enter(&mut self, stack: ReplayedStack, function: F) -> Option<ReplayedStack> {
        if let Some(&known) = self.known.get(&(stack, function)) {
            return Some(known);
        }
        if self.calls.len() >= MAX_STACKS {
            return None;
        }
        self.calls.push((stack, function));
        let new = ReplayedStack(u32::try_from(self.calls.len()).ok()?);
        self.known.insert((stack, function), new);
        Some(new)
    }

    /// Returns the stack after an exit from `function`, and the number of calls inside it that had no exits; `None` if
    /// the thread was not in that function.
    fn exit(&mut self, stack: ReplayedStack, function: F) -> Option<(ReplayedStack, usize)> {
        let mut outer = stack;
        let calls = &self.calls;
        let outwards = std::iter::from_fn(|| {
            let (around, called) = *calls.get((outer.0 as usize).checked_sub(1)?)?;
            outer = around;
            Some(called)
        });
        let lost = self.scan_budget.find(outwards, |called| called == function)?;
        Some((outer, lost))
    }

    /// Returns the stack of the caller of a stack's innermost call; `None` for the empty stack.
    pub fn caller(&self, stack: ReplayedStack) -> Option<ReplayedStack> {
        let &(outer, _) = self.calls.get((stack.0 as usize).checked_sub(1)?)?;
        Some(outer)
    }

    /// Returns the functions of a stack, innermost first.
    pub fn functions(&self, stack: ReplayedStack) -> impl Iterator<Item = F> {
        let mut stack = stack;
        std::iter::from_fn(move || {
            let &(outer, function) = self.calls.get((stack.0 as usize).checked_sub(1)?)?;
            stack = outer;
            Some(function)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_comes_again_is_the_one_that_it_was() {
        let mut tree = ReplayedCalls::default();
        let main = tree.enter(ReplayedStack::EMPTY, "main").unwrap();
        let first = tree.enter(main, "work").unwrap();
        let second = tree.enter(main, "work").unwrap();
        assert_eq!(first, second);
        assert_ne!(
            tree.enter(first, "work"),
            Some(first),
            "recursion is another stack"
        );
        assert_eq!(tree.functions(first).collect::<Vec<_>>(), ["work", "main"]);
    }

    #[test]
    fn an_exit_leaves_the_calls_inside_as_well() {
        let mut tree = ReplayedCalls::default();
        let main = tree.enter(ReplayedStack::EMPTY, "main").unwrap();
        let outer = tree.enter(main, "outer").unwrap();
        let thrower = tree.enter(outer, "thrower").unwrap();
        assert_eq!(tree.exit(thrower, "thrower"), Some((outer, 0)));
        assert_eq!(tree.exit(thrower, "main"), Some((ReplayedStack::EMPTY, 2)));
        assert_eq!(tree.exit(thrower, "other"), None);
        assert_eq!(tree.exit(ReplayedStack::EMPTY, "main"), None);
    }

    #[test]
    fn exits_that_belong_to_no_call_are_not_looked_for_again_and_again() {
        let mut tree = ReplayedCalls::default();
        let mut deep = ReplayedStack::EMPTY;
        for function in 0..10_000 {
            deep = tree.enter(deep, function).unwrap();
        }
        let far =
            |tree: &mut ReplayedCalls<u32>| tree.exit(deep, 10_000 - 4000).is_some_and(|left| left.1 == 3999);
        assert!(far(&mut tree));
        assert!(!far(&mut tree), "that has used up what there was");
        // Each of these exits allows 64 more calls to be searched, and searches one.
        for (exits, is_enough) in [(62, false), (63, true)] {
            for _ in 0..exits {
                assert!(tree.exit(deep, 9_999).is_some_and(|left| left.1 == 0));
            }
            assert_eq!(far(&mut tree), is_enough, "{exits}");
        }
    }

    #[test]
    fn there_are_no_more_stacks_than_there_is_room_for() {
        let mut tree = ReplayedCalls::default();
        let main = tree.enter(ReplayedStack::EMPTY, 0).unwrap();
        tree.calls.resize((1 << 22) - 1, (ReplayedStack::EMPTY, 1));
        let last = tree.enter(main, 2).unwrap();
        assert_eq!(tree.functions(last).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(tree.enter(main, 2), Some(last));
        let mut faults = Tally::default();
        assert_eq!(tree.follow(main, CallStep::Enter(3), 7, &mut faults), main);
        assert_eq!(faults.offsets(Issue::TooManyStacks).last(), Some(&7));
    }
}
