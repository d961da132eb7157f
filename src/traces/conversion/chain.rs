//! Call chains made of functions.

use jitdump::Address;

/// Maximum number of frames in a chain: the kernel's default (`kernel.perf_event_max_stack`). Without a
/// limit, a small file could cause many chains of any size.
pub const MAX_FRAMES: usize = 127;

/// A call chain, innermost frame first, whose memory is reused.
#[derive(Clone, Default, Debug)]
pub struct CallChain {
    addresses: Vec<Address>,
}

impl CallChain {
    /// Starts a new chain with the innermost frame at `leaf`, if that is known.
    pub fn restart(&mut self, leaf: Option<Address>) {
        self.addresses.clear();
        self.addresses.extend(leaf);
    }

    /// Adds functions by their start addresses, innermost first. Returns `false` if not all of them fit.
    ///
    /// Readers look up a caller one byte before its return address, so all frames but the innermost get the
    /// address of the function's second byte.
    #[must_use]
    pub fn add(&mut self, mut starts: impl Iterator<Item = Address>) -> bool {
        while self.addresses.len() < MAX_FRAMES {
            let Some(start) = starts.next() else {
                return true;
            };
            let into = u64::from(!self.addresses.is_empty());
            self.addresses.push(Address(start.0.saturating_add(into)));
        }
        starts.next().is_none()
    }

    /// Adds return addresses, innermost first. Returns `false` if not all of them fit.
    #[must_use]
    pub fn add_return_addresses(&mut self, mut addresses: impl Iterator<Item = Address>) -> bool {
        let room = MAX_FRAMES.saturating_sub(self.addresses.len());
        self.addresses.extend(addresses.by_ref().take(room));
        addresses.next().is_none()
    }

    /// Returns all frames.
    pub fn frames(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns all frames but the innermost.
    pub fn callers(&self) -> &[Address] {
        self.addresses.get(1..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_go_on_inside_their_functions() {
        let mut chain = CallChain::default();
        chain.restart(None);
        assert!(chain.add([0x10, 0x20, 0x30].map(Address).into_iter()));
        assert_eq!(chain.frames(), [0x10, 0x21, 0x31].map(Address));
        chain.restart(Some(Address(0x15)));
        assert!(chain.add([0x20].map(Address).into_iter()));
        assert_eq!(chain.frames(), [0x15, 0x21].map(Address));
        assert_eq!(chain.callers(), [Address(0x21)]);
    }

    #[test]
    fn chains_end_at_the_limit() {
        let mut chain = CallChain::default();
        assert!(chain.add((0..127).map(Address)));
        chain.restart(Some(Address(1)));
        assert!(!chain.add((0..127).map(Address)));
        assert_eq!(chain.frames().len(), 127);
    }
}
