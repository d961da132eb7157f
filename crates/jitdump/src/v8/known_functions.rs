//! Functions of scripts as a jitdump of V8 describes them: where they start, and which positions their code has.
//!
//! V8 compiles a function from its bytecode, and positions of machine code are positions of bytecode. Baseline code
//! (Sparkplug) has no inlined calls, so its records have all positions of the function and no others.

use crate::collections::hash::HashMap;
use crate::v8::text::TextPosition;

/// A function of a script, as the runtime recorded it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownFunction<'a> {
    /// Path of the script as the runtime wrote it.
    pub path: &'a [u8],
    /// Start of the function: of its parameters, or of an arrow function.
    pub start: TextPosition,
    /// Name without tier and position; may be empty.
    pub name: &'a [u8],
    /// Number of the script.
    script: u32,
    /// All positions of the function, sorted; empty if they are unknown.
    positions: Vec<TextPosition>,
}

/// Functions by their starts and positions.
#[derive(Clone, Debug, Default)]
pub struct KnownFunctions<'a> {
    functions: Vec<KnownFunction<'a>>,
    /// Numbers of scripts by path.
    scripts: HashMap<&'a [u8], u32>,
    by_start: HashMap<(&'a [u8], TextPosition), u32>,
    /// The functions with each position, and those that start there. Those of one script are next to each other.
    by_position: HashMap<TextPosition, Vec<u32>>,
}

impl<'a> KnownFunctions<'a> {
    /// Adds a function that was loaded. `positions` are those of its baseline code, or empty.
    pub fn add(&mut self, path: &'a [u8], start: TextPosition, name: &'a [u8], positions: Vec<TextPosition>) {
        let next = self.functions.len() as u32;
        let index = *self.by_start.entry((path, start)).or_insert(next);
        if index == next {
            let new = self.scripts.len() as u32;
            self.functions.push(KnownFunction {
                path,
                start,
                name,
                script: *self.scripts.entry(path).or_insert(new),
                positions: Vec::new(),
            });
        }
        if let Some(function) = self.functions.get_mut(index as usize) {
            function.positions.extend(positions);
        }
    }

    /// Completes the tables after the last function was added.
    pub fn finish(mut self) -> Self {
        for function in &mut self.functions {
            function.positions.sort_unstable();
            function.positions.dedup();
        }
        let mut by_script: Vec<(&KnownFunction<'a>, u32)> = self.functions.iter().zip(0..).collect();
        by_script.sort_by_key(|(function, _)| function.script);
        for (function, index) in by_script {
            let is_elsewhere = !function.has(function.start);
            let start = is_elsewhere.then_some(function.start);
            for position in function.positions.iter().copied().chain(start) {
                self.by_position.entry(position).or_default().push(index);
            }
        }
        self
    }

    /// Returns all functions, in the order in which they were first added.
    pub fn all(&self) -> &[KnownFunction<'a>] {
        &self.functions
    }

    /// Returns the function that starts at a position of a script.
    pub fn starting_at(&self, path: &[u8], start: TextPosition) -> Option<&KnownFunction<'a>> {
        self.functions.get(*self.by_start.get(&(path, start))? as usize)
    }

    /// Returns the functions that have a position or start there, those of the script `path` first.
    pub fn with_position(
        &self,
        position: TextPosition,
        path: &[u8],
    ) -> impl Iterator<Item = &KnownFunction<'a>> {
        let all = self.by_position.get(&position).map_or(&[][..], Vec::as_slice);
        let script = self.scripts.get(path).copied();
        let script_of = |index: u32| self.functions.get(index as usize).map(|function| function.script);
        let start = all.partition_point(|&index| script_of(index) < script);
        let end = all.partition_point(|&index| script_of(index) <= script);
        let [own, before, after] = [all.get(start..end), all.get(..start), all.get(end..)];
        let indices = [own, before, after].into_iter().flatten().flatten();
        indices.filter_map(|&index| self.functions.get(index as usize))
    }
}

impl KnownFunction<'_> {
    /// Whether all positions of the function are known.
    pub(crate) fn has_positions(&self) -> bool {
        !self.positions.is_empty()
    }

    /// Whether the function is known to have a position.
    #[doc(hidden)]
    pub fn has(&self, position: TextPosition) -> bool {
        self.positions.binary_search(&position).is_ok()
    }
}
