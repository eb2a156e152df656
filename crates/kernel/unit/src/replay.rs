//! Replay: the unit passes each part of each frame to the index that the part belongs to.

use crate::frame::frame_parts;
use crate::root::IndexId;
use crate::unit::Unit;
use bytes::Bytes;
use thalweg_base::{DecodeError, Lsn};
use thalweg_journal::FrameRef;
use thiserror::Error;

/// An index whose section is in force, and which replays the journal's frames above its floor.
pub trait Replay {
    /// The number under which frames name the index.
    fn index(&self) -> IndexId;

    /// The index needs nothing of the journal below: it is not given those frames, which another index may need.
    fn floor(&self) -> Lsn;

    /// Takes the index's part of the next frame. An error says why the part cannot be applied.
    fn replay(&mut self, at: FrameRef, part: &Bytes) -> Result<(), String>;
}

/// Why a frame cannot be replayed. The unit does not open then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// There is no root, but a journal frame at this position.
    #[error(
        "{}: the journal holds a frame at {at}, and nothing says what came before it. Restore a backup into a new folder",
        crate::OpenError::ROOT_IS_MISSING
    )]
    RootMissing { at: Lsn },
    /// The frame names an index that is not among those of this program.
    #[error("journal frame at {at} holds data of an unknown index (number {index}): use a newer thalweg")]
    UnknownIndex { at: Lsn, index: u8 },
    /// The frame's head cannot be decoded.
    #[error("journal frame at {at} is not one of a unit: {error}")]
    Form { at: Lsn, error: DecodeError },
    /// The index refused its part; the text says why.
    #[error("journal frame at {at} cannot be replayed: {what}")]
    Part { at: Lsn, index: IndexId, what: String },
}

impl Unit {
    /// Takes the next frame of the journal: passes its parts to `indexes`, which are all that the unit has. After an
    /// error [`Unit::start`] refuses, also if the caller passes over it.
    pub fn replay(&self, at: FrameRef, frame: &Bytes, indexes: &mut [&mut dyn Replay]) -> Result<(), ReplayError> {
        self.route(at, frame, indexes).inspect_err(|_| self.refuse(at.lsn))
    }

    fn route(&self, at: FrameRef, frame: &Bytes, indexes: &mut [&mut dyn Replay]) -> Result<(), ReplayError> {
        let lsn = at.lsn;
        if self.is_new() {
            return Err(ReplayError::RootMissing { at: lsn });
        }
        for (index, part) in frame_parts(frame).map_err(|error| ReplayError::Form { at: lsn, error })? {
            let index = self.planted_route(index);
            let Some(to) = indexes.iter_mut().find(|to| to.index() == index) else {
                return Err(ReplayError::UnknownIndex { at: lsn, index: index.0 });
            };
            if lsn >= to.floor() {
                to.replay(at, &part).map_err(|what| ReplayError::Part { at: lsn, index, what })?;
            }
        }
        Ok(())
    }
}
