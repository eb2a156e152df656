//! Whether this process may still act for its shapes: on several nodes one at a time does.
//!
//! The nodes' bucket says whose the shapes are. Postgres knows nothing of it, so the advisory lock of the replication
//! slot stands for it there: a new owner ends the session that has the lock before it does anything else. An owner asks
//! the bucket once it has the lock. So a process that was deposed, and learns of it late, has no session that could
//! confirm a position or drop the slot.

use std::fmt;
use std::sync::Arc;

/// The right to act for the shapes of one slot.
#[derive(Clone, Default)]
pub struct Ownership(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Ownership {
    /// Of shapes that other processes may take over. `is_held` asks whether they are still this process's, and may wait
    /// for that.
    #[must_use]
    pub fn shared(is_held: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_held)))
    }

    /// Whether other processes may take the shapes over.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the shapes are still this process's.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.as_ref().is_none_or(|is_held| is_held())
    }
}

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_shared() { "Ownership(shared)" } else { "Ownership(alone)" })
    }
}
