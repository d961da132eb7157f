//! Addresses of functions by their XRay function IDs.

use jitdump::Address;

use crate::code::process::Processes;
use crate::traces::conversion::chain::CallChain;
use crate::traces::conversion::synthetic_symbols::SyntheticSymbols;
use crate::traces::xray::binary::LoadBias;
use crate::traces::xray::format::InstrumentationMap;
use crate::units::Pid;

/// Function addresses of a process.
#[derive(Debug)]
pub struct FrameAddresses<'a> {
    /// Functions in the binary, and its load bias.
    known: Option<(&'a InstrumentationMap, LoadBias)>,
    /// Number of functions that the binary does not have, 0 without a binary.
    pub missing: u64,
    /// Symbols of other functions.
    pub synthetic_symbols: SyntheticSymbols<u32>,
}

impl<'a> FrameAddresses<'a> {
    /// Creates the addresses for process `pid`. `known` is the binary with its load bias, if known.
    pub fn new(
        known: Option<(&'a InstrumentationMap, LoadBias)>,
        processes: &Processes,
        pid: Pid,
        is_64: bool,
    ) -> Self {
        Self {
            known,
            missing: 0,
            synthetic_symbols: SyntheticSymbols::new(processes, pid, std::iter::empty(), is_64),
        }
    }

    /// Returns the address of a function, synthetic if it is unknown.
    #[inline]
    pub fn address(&mut self, function: u32) -> Address {
        let known = self
            .known
            .and_then(|(functions, base)| Some((functions.address(function)?, base)));
        match known {
            Some((address, base)) => base.loaded(address),
            None => {
                let missing = &mut self.missing;
                let has_binary = self.known.is_some();
                let name = || {
                    *missing = missing.saturating_add(has_binary.into());
                    format!("[xray #{function}]").into_bytes()
                };
                self.synthetic_symbols.address_of(function, name)
            }
        }
    }

    /// Appends functions to a call chain, innermost first. Returns `false` if the chain is full before all are added.
    #[must_use]
    pub fn add_to(&mut self, chain: &mut CallChain, functions: impl Iterator<Item = u32>) -> bool {
        chain.add(functions.map(|function| self.address(function)))
    }
}
