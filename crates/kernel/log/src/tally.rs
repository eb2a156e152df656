//! Which logs a unit has, for a reader that owns nothing: the directory of a root, and then the frames behind it.

use crate::check::CheckError;
use crate::frame::{self, Entry};
use crate::root::Root;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_base::LogId;
use thalweg_storage::Storage;
use thalweg_unit::{IndexId, frame_part};

/// The logs of a unit, counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Whether each log that was met is there: a newer record or frame hides an older one.
    logs: HashMap<LogId, bool>,
}

impl Tally {
    /// The logs of a root's directory. Reads all of it.
    pub fn of_root(body: &[u8], storage: &Arc<dyn Storage>) -> Result<Self, CheckError> {
        let mut tally = Self::default();
        let Some((_, root)) = Root::of_body(body).map_err(CheckError::Root)? else { return Ok(tally) };
        for object in root.directory.iter().rev() {
            crate::checkpoint::read(storage, object, |log, record| {
                tally.logs.entry(log).or_insert(record.is_some());
            })?;
        }
        Ok(tally)
    }

    /// Takes the next frame of the journal behind the root. Fails if it cannot be decoded.
    pub fn take(&mut self, frame: &Bytes) -> Result<(), String> {
        let Some(part) = frame_part(frame, IndexId::LOG).map_err(|e| e.to_string())? else { return Ok(()) };
        for entry in frame::entries(&part).map_err(|e| e.to_string())? {
            match entry {
                // The directory may have the log, and its end, already.
                Entry::Create { log, .. } => {
                    self.logs.entry(log).or_insert(true);
                }
                Entry::Delete { log } => {
                    self.logs.insert(log, false);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How many logs there are.
    #[must_use]
    pub fn logs(&self) -> u64 {
        self.logs.values().filter(|is_there| **is_there).count() as u64
    }
}
