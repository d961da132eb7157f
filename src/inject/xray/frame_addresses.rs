//! Addresses of the functions that a trace has numbers for.

use crate::hash::HashMap;
use crate::inject::events::SyntheticSymbols;
use crate::inject::xray::binary::Base;
use crate::runtime::xray::Functions;
use crate::units::{Address, AddressRange};

/// Those of a process.
#[derive(Debug)]
pub struct FrameAddresses<'a> {
    /// The functions that the binary has, and where that is.
    known: Option<(&'a Functions, Base)>,
    /// Of others.
    unknown: HashMap<u32, Address>,
    synthetic_symbols: SyntheticSymbols,
}

impl<'a> FrameAddresses<'a> {
    /// For a process with the binary at some place, if it is known, and with `taken` addresses.
    pub fn new(
        known: Option<(&'a Functions, Base)>,
        taken: impl Iterator<Item = AddressRange>,
        is_64: bool,
    ) -> Self {
        Self {
            known,
            unknown: HashMap::default(),
            synthetic_symbols: SyntheticSymbols::new(taken, is_64),
        }
    }

    /// Where a function is.
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

    /// The functions that were made up.
    pub fn synthetic_symbols(&self) -> &SyntheticSymbols {
        &self.synthetic_symbols
    }
}
