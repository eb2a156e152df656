//! Events that were encoded already: readers at the same place share the bytes.
//!
//! A small direct-mapped cache. Live readers of a stream ask for the same frame within microseconds of each other, so
//! another stream rarely takes the place before all have come.

use crate::format::sse::FrameKey;
use bytes::Bytes;
use parking_lot::Mutex;
use std::hash::{DefaultHasher, Hash, Hasher};
use thalweg_base::Offset;

const PLACES: usize = 128;
/// Larger frames are not kept: 128 places hold 16 MiB at most.
const FRAME_BYTES_MAX: usize = 128 << 10;

pub(crate) struct FrameCache([Mutex<Option<(FrameKey, Frame)>>; PLACES]);

/// A data event with its control event, and where its content ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) event: Bytes,
    pub(crate) end: Offset,
}

impl Default for FrameCache {
    fn default() -> Self {
        Self([const { Mutex::new(None) }; PLACES])
    }
}

impl FrameCache {
    fn place(&self, key: &FrameKey) -> &Mutex<Option<(FrameKey, Frame)>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.0[hasher.finish() as usize % PLACES]
    }

    pub(crate) fn get(&self, key: &FrameKey) -> Option<Frame> {
        match &*self.place(key).lock() {
            Some((held, frame)) if held == key => Some(frame.clone()),
            _ => None,
        }
    }

    pub(crate) fn put(&self, key: FrameKey, frame: &Frame) {
        if frame.event.len() <= FRAME_BYTES_MAX {
            *self.place(&key).lock() = Some((key, frame.clone()));
        }
    }
}
