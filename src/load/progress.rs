//! Progress reports.

/// Receiver of progress reports.
pub trait Progress {
    /// Reports that all input from a pipe has been read: an interrupt no longer has to wait for the program that writes it.
    #[doc(hidden)]
    fn input_ended(&mut self) {}
    /// Reports the start of a step with `total` units of work.
    fn start(&mut self, what: &'static str, total: u64);
    /// Reports that `steps` more units are done.
    fn advance(&mut self, steps: u64);
}

/// Ignores all reports.
impl Progress for () {
    fn start(&mut self, _what: &'static str, _total: u64) {}
    fn advance(&mut self, _steps: u64) {}
}
