//! The nearest function that all chains of calls to a function lead through.

use crate::debug_info::MAX_DEPTH;

/// Maximum number of rounds in which functions are moved outwards. Two are enough, unless functions call each other in
/// circles that are entered at several places.
const MAX_ROUNDS: usize = 8;

/// Maximum number of steps from two functions to their common caller: the depth of both, with a name before each
/// function.
const MAX_STEPS: u32 = 4 * MAX_DEPTH;

/// Returns for each function the nearest one that all chains of calls from the outer function, which is the first, lead
/// through. `called` has the names that each function calls, and `named` the functions with each name, without the
/// outer one. What it does not lead to is called in unknown ways, so it may be from anywhere in it.
pub(super) fn common_callers(called: &[Vec<usize>], named: &[Vec<usize>]) -> Vec<usize> {
    let count = called.len();
    // The nodes are the functions, followed by the names: one name may have many callers and functions.
    let names_of = |names: &Vec<usize>| -> Vec<usize> {
        let numbers = names.iter().map(|name| name.saturating_add(count));
        numbers.collect()
    };
    let mut next: Vec<Vec<usize>> = called.iter().map(names_of).chain(named.iter().cloned()).collect();
    call_all_from_outer(&mut next, count);
    let nodes = ReachedNodes::of(&next);
    let callers = nodes.callers(&next, count);
    let around = nearest_around_callers(nodes.around(), &callers);
    functions_around(&nodes.order, &around, count)
}

/// Makes the outer function call all others, after the names that it is known to call, so that all are reached.
fn call_all_from_outer(next: &mut [Vec<usize>], count: usize) {
    let known = next.first().map_or(0, Vec::len);
    call_from_outer(next, known, (1..count).collect());
    // Functions that call others are reached before those.
    let (mut order, _) = post_order(next);
    order.retain(|node| (1..count).contains(node));
    order.reverse();
    call_from_outer(next, known, order);
}

/// Makes the outer function call functions after the first `known` nodes that it calls.
fn call_from_outer(next: &mut [Vec<usize>], known: usize, functions: Vec<usize>) {
    if let Some(outer) = next.first_mut() {
        outer.truncate(known);
        outer.extend(functions);
    }
}

/// The nodes that the outer function leads to. They have numbers by which callers precede what they call, except in circles.
struct ReachedNodes {
    /// The nodes by their numbers.
    order: Vec<usize>,
    /// The numbers by the nodes.
    numbers: Vec<Option<usize>>,
    /// From which node each was reached.
    from: Vec<Option<usize>>,
}

impl ReachedNodes {
    fn of(next: &[Vec<usize>]) -> Self {
        let (mut order, from) = post_order(next);
        order.reverse();
        let mut numbers = vec![None; next.len()];
        for (number, &node) in order.iter().enumerate() {
            if let Some(place) = numbers.get_mut(node) {
                *place = Some(number);
            }
        }
        Self { order, numbers, from }
    }

    fn number_of(&self, node: usize) -> Option<usize> {
        self.numbers.get(node).copied().flatten()
    }

    fn reached_from(&self, node: usize) -> Option<usize> {
        self.from.get(node).copied().flatten()
    }

    /// Returns by number the number of a node around each: that from which it was reached.
    fn around(&self) -> Vec<usize> {
        let around = self.order.iter().map(|&node| {
            let from = self.reached_from(node);
            from.and_then(|from| self.number_of(from)).unwrap_or_default()
        });
        around.collect()
    }

    /// Returns by number the numbers of all nodes that lead to each. The outer function counts for another one of the `count`
    /// functions only if nothing else has reached that.
    fn callers(&self, next: &[Vec<usize>], count: usize) -> Vec<Vec<usize>> {
        let mut callers = vec![Vec::new(); self.order.len()];
        for (node, next) in next.iter().enumerate() {
            let is_known =
                |&&child: &&usize| node > 0 || child >= count || self.reached_from(child) == Some(0);
            for &child in next.iter().filter(is_known) {
                let callers = self.number_of(child).and_then(|child| callers.get_mut(child));
                if let (Some(callers), Some(node)) = (callers, self.number_of(node)) {
                    callers.push(node);
                }
            }
        }
        callers
    }
}

/// Moves the node `around` each one outwards to the nearest one that is around all of its callers, too. All are numbers.
fn nearest_around_callers(mut around: Vec<usize>, callers: &[Vec<usize>]) -> Vec<usize> {
    for _ in 0..MAX_ROUNDS {
        let mut is_changed = false;
        for (node, callers) in callers.iter().enumerate() {
            let last = around.get(node).copied().unwrap_or_default();
            let callers = callers.iter();
            let common = callers.fold(last, |common, &caller| common_of(&around, common, caller));
            if let Some(around) = around.get_mut(node).filter(|_| common != last) {
                *around = common;
                is_changed = true;
            }
        }
        if !is_changed {
            break;
        }
    }
    around
}

/// Returns the function around each function: a name counts for the function around it.
fn functions_around(order: &[usize], around: &[usize], count: usize) -> Vec<usize> {
    // By number. A node has a larger number than the one around it, so that is known already.
    let mut functions: Vec<usize> = Vec::with_capacity(order.len());
    let mut callers = vec![0; count];
    for (&node, &around) in order.iter().zip(around) {
        let function = order.get(around).copied().filter(|&node| node < count);
        let function = function
            .or_else(|| functions.get(around).copied())
            .unwrap_or_default();
        functions.push(function);
        if let Some(caller) = callers.get_mut(node) {
            *caller = function;
        }
    }
    callers
}

/// Returns the nodes that the first one leads to, each after those that it leads to, and for each node from which it
/// was reached.
fn post_order(next: &[Vec<usize>]) -> (Vec<usize>, Vec<Option<usize>>) {
    let mut from: Vec<Option<usize>> = vec![None; next.len()];
    let mut order = Vec::new();
    let mut open = vec![(0usize, 0usize)];
    while let Some((node, at)) = open.last_mut() {
        let node = *node;
        let child = next.get(node).and_then(|next| next.get(*at)).copied();
        *at = at.saturating_add(1);
        let Some(child) = child else {
            order.push(node);
            open.pop();
            continue;
        };
        if let Some(from) = from.get_mut(child).filter(|from| from.is_none()) {
            *from = Some(node);
            open.push((child, 0));
        }
    }
    (order, from)
}

/// Returns the nearest node around two nodes, or the first one if they are too deep. `around` has the one around each.
fn common_of(around: &[usize], mut one: usize, mut other: usize) -> usize {
    for _ in 0..MAX_STEPS {
        if one == other {
            return one;
        }
        let inner = if one > other { &mut one } else { &mut other };
        *inner = around.get(*inner).copied().unwrap_or_default();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each function has a name of its own, one less than its number.
    fn callers(called: &[&[usize]]) -> Vec<usize> {
        let names = |functions: &&[usize]| -> Vec<usize> { functions.iter().map(|at| at - 1).collect() };
        let called: Vec<Vec<usize>> = called.iter().map(names).collect();
        let named: Vec<Vec<usize>> = (1..called.len()).map(|function| vec![function]).collect();
        common_callers(&called, &named)
    }

    #[test]
    fn all_chains_of_calls_lead_through_the_common_caller() {
        // The outer function calls 1, that calls 2 and 3, and both call 4, which calls 5.
        assert_eq!(
            callers(&[&[1], &[2, 3], &[4], &[4], &[5], &[]]),
            [0, 0, 1, 1, 1, 4]
        );
        // A longer way leads to 2, too.
        assert_eq!(callers(&[&[1, 3], &[2], &[], &[4], &[2]]), [0, 0, 0, 0, 3]);
        // Functions call themselves and those that call them.
        assert_eq!(callers(&[&[1], &[2], &[3, 2], &[1, 3]]), [0, 0, 1, 2]);
        // 3 and 4 call each other, and may be called from 1 and 2.
        assert_eq!(callers(&[&[1, 2], &[3], &[4], &[4], &[3]]), [0, 0, 0, 0, 0]);
        // Nobody is known to call 3 and 2, which call each other; 1 is called by them.
        assert_eq!(callers(&[&[], &[], &[1, 3], &[2]]), [0, 2, 0, 2]);
    }

    #[test]
    fn functions_of_one_name_have_the_same_caller() {
        // The outer function calls 1; that calls the name of 2 and 3, which call it, too, and the name of 4.
        let called = [vec![0], vec![1], vec![1, 2], vec![1, 2], vec![]];
        let named = [vec![1], vec![2, 3], vec![4]];
        assert_eq!(common_callers(&called, &named), [0, 0, 1, 1, 1]);
    }

    #[test]
    fn chains_of_any_length_have_callers() {
        // Each function calls the next one, and all call the last one.
        let count = 10_000;
        let called = (0..count).map(|at| vec![at, count - 1]).chain([vec![]]);
        let called: Vec<Vec<usize>> = called.collect();
        let named: Vec<Vec<usize>> = (1..=count).map(|function| vec![function]).collect();
        let found = common_callers(&called, &named);
        assert_eq!((found[1], found[count - 1], found[count]), (0, count - 2, 0));
    }
}
