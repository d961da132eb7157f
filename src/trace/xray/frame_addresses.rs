//! Addresses of functions by their XRay function IDs.

use crate::hash::HashMap;
use crate::runtime::xray::InstrumentationMap;
use crate::trace::synthetic_symbols::SyntheticSymbols;
use crate::trace::xray::binary::LoadBias;
use crate::units::{Address, AddressRange};

/// Function addresses of a process.
#[derive(Debug)]
pub struct FrameAddresses<'a> {
    /// Functions in the binary, and its load bias.
    known: Option<(&'a InstrumentationMap, LoadBias)>,
    /// Synthetic addresses of other functions.
    unknown: HashMap<u32, Address>,
    synthetic_symbols: SyntheticSymbols,
}

impl<'a> FrameAddresses<'a> {
    /// Creates the addresses for a process. `known` is the binary with its load bias, if known; `taken` are the
    /// addresses in use.
    pub fn new(
        known: Option<(&'a InstrumentationMap, LoadBias)>,
        taken: impl Iterator<Item = AddressRange>,
        is_64: bool,
    ) -> Self {
        Self {
            known,
            unknown: HashMap::default(),
            synthetic_symbols: SyntheticSymbols::new(taken, is_64),
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
            None => self.unknown_address(function),
        }
    }

    #[cold]
    fn unknown_address(&mut self, function: u32) -> Address {
        let address = self.unknown.entry(function);
        *address.or_insert_with(|| {
            self.synthetic_symbols
                .address(format!("[xray #{function}]").as_bytes())
        })
    }

    /// Returns the synthetic symbols.
    pub fn synthetic_symbols(&self) -> &SyntheticSymbols {
        &self.synthetic_symbols
    }
}
