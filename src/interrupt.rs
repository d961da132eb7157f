//! Ctrl-C on a pipeline.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// Lets the first Ctrl-C pass while input is read: the terminal sends it to all programs of a pipeline, and for
/// the one in front, `perf record`, it is the usual way to end. What that has written is to be used.
pub struct FirstInterrupt {
    is_deadly: Arc<AtomicBool>,
}

impl FirstInterrupt {
    /// From now on the first one is for others.
    pub fn pass() -> io::Result<Self> {
        let is_deadly = Arc::new(AtomicBool::new(false));
        flag::register_conditional_default(SIGINT, is_deadly.clone())?;
        flag::register(SIGINT, is_deadly.clone())?;
        Ok(Self { is_deadly })
    }

    /// From now on each ends the program, as it does without this.
    pub fn end(&self) {
        self.is_deadly.store(true, Ordering::Relaxed);
    }
}
