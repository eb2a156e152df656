//! Space held back for a full disk.
//!
//! A file of fixed size keeps space allocated. When background work meets a full disk, user transactions are refused,
//! the file is removed, and deleted data is reclaimed in its space, because reclaiming needs a little space itself. The
//! file is allocated again before anything else may use the freed space, and only then are user transactions accepted
//! again.

use std::sync::Arc;
use thalweg_disk::{Disk, File};

const NAME: &str = "reserve";

/// Space of one disk that is held back.
pub struct Reserve {
    /// `None`: nothing is held back.
    file: Option<Arc<dyn File>>,
    bytes: u64,
    held: bool,
}

/// With less than this free, a start uses the reserve.
const LEND_BELOW: u64 = 8 << 20;

/// Lets the space go if the disk is full: a start writes a little, too. [`Reserve::open`] takes it again.
pub fn lend(disk: &dyn Disk) -> std::io::Result<()> {
    match disk.open(NAME) {
        Ok(file) if disk.free()? < LEND_BELOW => {
            tracing::warn!("the disk is full: this start uses the reserved space");
            file.set_len(0)
        }
        _ => Ok(()),
    }
}

impl Reserve {
    /// No space.
    pub fn none() -> Self {
        Self { file: None, bytes: 0, held: true }
    }

    /// Holds `bytes` back, if the disk has as many free. Fails if the file cannot be opened or made.
    pub fn open(disk: &dyn Disk, bytes: u64) -> std::io::Result<Self> {
        let file = disk.open(NAME).or_else(|_| disk.create(NAME))?;
        if file.len()? > bytes {
            file.set_len(bytes)?;
        }
        let mut reserve = Self { file: Some(file), bytes, held: false };
        reserve.hold();
        Ok(reserve)
    }

    /// Allocates the space, if the disk has it; returns whether it is held now.
    pub fn hold(&mut self) -> bool {
        if !self.held {
            let file = self.file.as_ref().filter(|_| self.bytes > 0);
            self.held = file.is_none_or(|file| file.allocate(self.bytes).is_ok());
        }
        self.held
    }

    pub(crate) fn release(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.bytes > 0 && self.held) {
            self.held = file.set_len(0).is_err();
        }
    }
}
