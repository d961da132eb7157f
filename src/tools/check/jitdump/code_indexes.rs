//! Checks of each `code_index`: whether it is unique, and in a MOVE record that of the function at the old address.

use jitdump::internals::format::{Load, Move};
use jitdump::{Address, Dump};

use crate::collections::hash::{HashMap, HashSet};
use crate::tools::check::findings::truncated_name;

/// Functions by address and `code_index`, as of some record in the file. Functions are indexes in file order.
#[derive(Debug, Default)]
pub(super) struct CodeIndexes {
    /// Last function of each process and `code_index`.
    by_index: HashMap<(u32, u64), u32>,
    /// Last function of each process and address.
    by_address: HashMap<(u32, Address), u32>,
    /// Each `code_index` and address used in any process.
    indexes: HashSet<u64>,
    addresses: HashSet<Address>,
    /// Offset of the first move of each process and `code_index` that was not loaded before.
    early: HashMap<(u32, u64), u64>,
}

impl CodeIndexes {
    /// Adds a function. Returns the one of its process that had the same `code_index`.
    pub(super) fn add_load(&mut self, number: u32, load: &Load<'_>) -> Option<u32> {
        self.set_address(load.pid, load.start, number);
        self.indexes.insert(load.code_index);
        self.by_index.insert((load.pid, load.code_index), number)
    }

    /// Notes a move whose function has not been loaded so far.
    pub(super) fn note_early_move(&mut self, moved: &Move) {
        let key = (moved.pid, moved.code_index);
        if !self.by_index.contains_key(&key) {
            self.early.entry(key).or_insert(moved.offset);
        }
    }

    /// Returns the offset of the first move that came before the load of its function, once.
    pub(super) fn take_early_move(&mut self, load: &Load<'_>) -> Option<u64> {
        self.early.remove(&(load.pid, load.code_index))
    }

    fn set_address(&mut self, pid: u32, address: Address, number: u32) {
        self.by_address.insert((pid, address), number);
        self.addresses.insert(address);
    }

    /// Applies a move, and returns a message if it does not match its function. Errors that the reader reports are left
    /// out. The reader accepts a function that is only in another process, as inherited code.
    pub(super) fn apply_move(&mut self, moved: &Move, dump: &Dump<'_>) -> Option<String> {
        let Move {
            pid,
            from,
            to,
            code_index,
            ..
        } = *moved;
        let by_index = self.by_index.get(&(pid, code_index)).copied();
        let by_address = self.by_address.remove(&(pid, from));
        let is_known_elsewhere = self.indexes.contains(&code_index) || self.addresses.contains(&from);
        // A repeated move, for example because a buffer was flushed twice.
        let is_there = by_index.is_some_and(|number| self.by_address.get(&(pid, to)) == Some(&number));
        if let Some(number) = by_address.or(by_index) {
            self.set_address(pid, to, number);
        }
        let name = |number| {
            let function = dump.function(number);
            truncated_name(function.map_or(&b""[..], |function| function.name))
        };
        let size = |number| {
            dump.function_records(number)
                .map(|function| u64::from(function.size))
        };
        match (by_index, by_address) {
            (None, None) if !is_known_elsewhere => None,
            (None, _) => Some(format!(
                "index {code_index} is of no function of process {pid} before"
            )),
            (Some(_), None) if is_there => None,
            (Some(number), None) => Some(format!(
                "index {code_index} is that of {}, which is not at {from}",
                name(number)
            )),
            (Some(number), Some(there)) if number != there => Some(format!(
                "index {code_index} is that of {}, and at {from} is {}",
                name(number),
                name(there)
            )),
            (Some(number), Some(_)) => {
                let size = size(number).filter(|&size| size != moved.size)?;
                Some(format!("{} bytes, and LOAD has {size}", moved.size))
            }
        }
    }
}
