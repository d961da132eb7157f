//! Calls that a thread is in, to find exits that are missing.

use std::hash::Hash;

use crate::collections::hash::HashMap;

/// Functions that a thread is in.
pub(super) struct CallStack<F> {
    functions: Vec<F>,
    /// Number of open calls of each function, so that the stack is searched only for functions in it.
    open_calls: HashMap<F, u64>,
}

impl<F> Default for CallStack<F> {
    fn default() -> Self {
        Self {
            functions: Vec::new(),
            open_calls: HashMap::default(),
        }
    }
}

impl<F: Copy + Eq + Hash> CallStack<F> {
    /// Enters a function.
    pub fn enter(&mut self, function: F) {
        self.functions.push(function);
        let open_calls = self.open_calls.entry(function).or_default();
        *open_calls = open_calls.saturating_add(1);
    }

    /// Leaves a function. Returns the number of calls inside it that had no exit; `None` if it was not entered.
    pub fn exit(&mut self, function: F) -> Option<u64> {
        if self.open_calls.get(&function).is_none_or(|&count| count == 0) {
            return None;
        }
        let mut lost = 0_u64;
        while let Some(left) = self.functions.pop() {
            if let Some(open_calls) = self.open_calls.get_mut(&left) {
                *open_calls = open_calls.saturating_sub(1);
            }
            if left == function {
                break;
            }
            lost = lost.saturating_add(1);
        }
        Some(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_ends_takes_those_that_it_has_made_with_it() {
        let mut stack = CallStack::default();
        for function in [1, 2, 1, 3] {
            stack.enter(function);
        }
        assert_eq!(stack.exit(4), None);
        assert_eq!(stack.exit(1), Some(1));
        assert_eq!(stack.exit(1), Some(1));
        assert_eq!(stack.exit(1), None);
    }
}
