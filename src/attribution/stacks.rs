//! The call stacks that a summary lists.

use std::cmp::Reverse;

use crate::attribution::call_tree::Node;
use crate::attribution::functions::Functions;
use crate::hash::HashMap;

/// Maximum number of nodes. A flame graph of that many is already finer than a screen.
const MAX: usize = 30_000;

/// Returns the call stacks of the first event in preorder, as [`crate::summary::profile::ProfileSummary::stacks`]
/// has them, and the number of samples that count in a caller. The nodes with most samples are kept.
pub fn stacks(nodes: &[Node], functions: &Functions) -> (Vec<(i64, u32, u64)>, u64) {
    // Nodes of one function below one caller are one.
    let mut merged: Vec<Merged> = Vec::new();
    let mut known: HashMap<(Option<u32>, u32), u32> = HashMap::default();
    let mut of_nodes: Vec<Option<u32>> = Vec::with_capacity(nodes.len());
    for (node, &function) in nodes.iter().zip(&functions.of_nodes) {
        if node.event != 0 {
            of_nodes.push(None);
            continue;
        }
        let caller = node
            .caller
            .and_then(|caller| of_nodes.get(caller as usize).copied().flatten());
        let next = u32::try_from(merged.len()).unwrap_or(u32::MAX);
        let index = *known.entry((caller, function)).or_insert(next);
        if index == next {
            merged.push(Merged {
                caller,
                function,
                own: 0,
                total: 0,
            });
        }
        of_nodes.push(Some(index));
        if let Some(one) = merged.get_mut(index as usize) {
            one.own = one.own.saturating_add(node.own.samples);
        }
    }
    for index in (0..merged.len()).rev() {
        let Some(&Merged {
            caller, own, total, ..
        }) = merged.get(index)
        else {
            continue;
        };
        let total = own.saturating_add(total);
        if let Some(one) = merged.get_mut(index) {
            one.total = total;
        }
        if let Some(caller) = caller.and_then(|caller| merged.get_mut(caller as usize)) {
            caller.total = caller.total.saturating_add(total);
        }
    }
    keep_largest(merged)
}

/// A function below a caller.
#[derive(Clone, Copy, Debug)]
struct Merged {
    caller: Option<u32>,
    function: u32,
    own: u64,
    total: u64,
}

/// Returns the [`MAX`] nodes with most samples, and the number of samples moved to a caller. A node never has more
/// samples than its caller, which comes first, so that callers are kept.
fn keep_largest(mut nodes: Vec<Merged>) -> (Vec<(i64, u32, u64)>, u64) {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|&index| (Reverse(nodes.get(index).map_or(0, |node| node.total)), index));
    let mut is_kept = vec![false; nodes.len()];
    for &index in order.iter().take(MAX) {
        if let Some(kept) = is_kept.get_mut(index) {
            *kept = true;
        }
    }
    let mut moved = 0u64;
    for index in (0..nodes.len()).rev() {
        let (Some(false), Some(&node)) = (is_kept.get(index), nodes.get(index)) else {
            continue;
        };
        if let Some(caller) = node.caller.and_then(|caller| nodes.get_mut(caller as usize)) {
            caller.own = caller.own.saturating_add(node.own);
        }
        moved = moved.saturating_add(node.own);
    }
    let mut new_index: Vec<i64> = vec![-1; nodes.len()];
    let mut kept = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        if is_kept.get(index) != Some(&true) {
            continue;
        }
        let caller = node
            .caller
            .and_then(|caller| new_index.get(caller as usize).copied());
        if let Some(new) = new_index.get_mut(index) {
            *new = kept.len() as i64;
        }
        kept.push((caller.unwrap_or(-1), node.function, node.own));
    }
    (kept, moved)
}
