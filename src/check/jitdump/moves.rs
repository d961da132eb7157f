//! MOVE records: whether the number in each is that of the function which lies where it says.

use crate::check::findings::shown_name;
use crate::hash::{HashMap, HashSet};
use crate::runtime::jitdump::{Dump, Load, Moved};
use crate::units::Address;

/// Where functions are, as a reader knows that has come up to some record, by their numbers in the file's order.
#[derive(Debug, Default)]
pub(super) struct CodeAddresses {
    /// The last function of each process and `code_index`.
    by_index: HashMap<(u32, u64), u32>,
    /// The last function of each process and address.
    by_address: HashMap<(u32, Address), u32>,
    /// The same of any process.
    indexes: HashSet<u64>,
    addresses: HashSet<Address>,
}

impl CodeAddresses {
    /// Notes a function; returns the one of its process that had the same `code_index`.
    pub(super) fn load(&mut self, number: u32, load: &Load<'_>) -> Option<u32> {
        self.put(load.pid, load.start, number);
        self.indexes.insert(load.index);
        self.by_index.insert((load.pid, load.index), number)
    }

    fn put(&mut self, pid: u32, address: Address, number: u32) {
        self.by_address.insert((pid, address), number);
        self.addresses.insert(address);
    }

    /// Notes a move; returns what is wrong with it beyond what the reader tells, which takes what it can find in
    /// other processes for inherited.
    pub(super) fn moved(&mut self, moved: &Moved, dump: &Dump<'_>) -> Option<String> {
        let Moved {
            pid, from, to, index, ..
        } = *moved;
        let by_index = self.by_index.get(&(pid, index)).copied();
        let by_address = self.by_address.remove(&(pid, from));
        let is_known_elsewhere = self.indexes.contains(&index) || self.addresses.contains(&from);
        // As where a buffer was written out twice.
        let is_there = by_index.is_some_and(|number| self.by_address.get(&(pid, to)) == Some(&number));
        if let Some(number) = by_address.or(by_index) {
            self.put(pid, to, number);
        }
        let name = |number| {
            let function = dump.function(number);
            shown_name(function.map_or(&b""[..], |function| function.name))
        };
        let size = |number| dump.records(number).map(|function| u64::from(function.size));
        match (by_index, by_address) {
            (None, None) if !is_known_elsewhere => None,
            (None, _) => Some(format!("index {index} is of no function of process {pid} before")),
            (Some(_), None) if is_there => None,
            (Some(number), None) => Some(format!(
                "index {index} is that of {}, which is not at {from}",
                name(number)
            )),
            (Some(number), Some(there)) if number != there => Some(format!(
                "index {index} is that of {}, and at {from} is {}",
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
