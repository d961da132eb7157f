//! Which files may be opened and used.

use std::time::SystemTime;

use crate::files::Reach;
use crate::load::find::ownership::OwnerCheck;
use crate::load::options::LoadOptions;

/// Restrictions on files, by their paths and their owners.
#[derive(Clone, Debug)]
pub struct Access {
    /// Which paths may be opened.
    pub reach: Reach,
    /// Whose files may be used.
    pub ownership: OwnerCheck,
}

impl Access {
    /// Returns the restrictions for a profile that belongs to the user ID `profile_owner` and ended then, if that is known.
    pub fn new(options: &LoadOptions, profile_owner: u32, end: Option<SystemTime>) -> Self {
        Self {
            reach: options.reach(),
            ownership: OwnerCheck::new(options, profile_owner, end),
        }
    }
}
