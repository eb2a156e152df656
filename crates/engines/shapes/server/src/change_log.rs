//! The writing end of the change log: encoded changes and references, frame by frame.

use crate::change_store::ChangeStore;
use crate::format::references::References;
use crate::lifetime::Lifetime;
use crate::no_wait;
use crate::store::StoreError;
use crate::trim_index::TrimPoint;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::Lsn;
use thalweg_log::Lengths;

/// The pause before a write is tried again that found no space, or found settling behind.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// There is one writer at a time: the thread that follows Postgres.
pub(crate) struct ChangeLogWriter {
    changes: Arc<ChangeStore>,
    lifetime: Arc<Lifetime>,
    /// Where the next encoded changes go.
    tail: u64,
    /// Where the next references go.
    references_tail: u64,
    /// Where the changes of this transaction begin.
    first: u64,
    /// The end of the last frame.
    written: Lsn,
    /// Frames were written since the last pause.
    fresh: bool,
}

impl ChangeLogWriter {
    pub(crate) fn new(changes: Arc<ChangeStore>, lifetime: Arc<Lifetime>) -> Self {
        let (tail, references_tail) = (changes.store.changes_tail(), changes.store.references_tail());
        changes.write_stall.forget();
        Self { changes, lifetime, tail, references_tail, first: tail, written: Lsn::ZERO, fresh: false }
    }

    /// A transaction begins.
    pub(crate) fn begin(&mut self) {
        self.first = self.tail;
    }

    /// Where the next encoded changes go.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// The end of the last frame.
    pub(crate) fn written(&self) -> Lsn {
        self.written
    }

    /// Another frame was written, up to `end`.
    pub(crate) fn wrote(&mut self, end: Lsn) {
        (self.written, self.fresh) = (self.written.max(end), true);
    }

    /// Whether frames were written since the last pause.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Starts the sync of the frames that were written since the last pause.
    pub(crate) fn pause(&mut self) {
        if std::mem::take(&mut self.fresh) {
            self.changes.store.kick();
        }
    }

    /// Writes one frame, or several if there is too much for one: the references, which make the transaction complete,
    /// come with the last. Tries again for as long as there is no space. [`StoreError::frame_max`]: the references
    /// alone are more than a frame.
    pub(crate) fn append(
        &mut self,
        bodies: Bytes,
        lengths: &Lengths,
        references: &[References],
        complete: bool,
    ) -> Result<(), StoreError> {
        let frame_max = match self.append_frame(bodies.clone(), lengths, references, complete) {
            Err(error) if !bodies.is_empty() && error.frame_max().is_some() => error.frame_max(),
            done => return done,
        };
        let mut rest = bodies;
        // A frame has more than encoded changes.
        for piece in pieces(lengths, frame_max.unwrap_or_default() / 2) {
            let bodies = rest.split_to(usize::try_from(piece.bytes()).unwrap_or(usize::MAX).min(rest.len()));
            self.append_frame(bodies, &piece, &[], false)?;
        }
        if complete { self.append_frame(Bytes::new(), &Lengths::default(), references, true) } else { Ok(()) }
    }

    fn append_frame(
        &mut self,
        bodies: Bytes,
        lengths: &Lengths,
        references: &[References],
        complete: bool,
    ) -> Result<(), StoreError> {
        no_wait::assert_may_wait();
        let (changes, clock) = (&self.changes, &self.lifetime.clock);
        let written = loop {
            match changes.store.write_changes(&bodies, lengths, references) {
                Err(error) if error.is_transient() && !self.lifetime.stopping() => {
                    changes.write_stall.failed(&error, clock.now());
                    clock.sleep(RETRY_AFTER);
                }
                written => break written?,
            }
        };
        changes.write_stall.over(|| clock.now());
        // Entries of shapes name these positions.
        let expected = TrimPoint { bodies: self.tail, references: self.references_tail };
        assert_eq!(written.at, expected, "encoded changes landed at other positions than entries name");
        let end = written.end;
        (self.written, self.fresh) = (end, true);
        if complete {
            let point = TrimPoint { bodies: self.first, references: self.references_tail };
            changes.trim_index.lock().note(point);
            self.references_tail += written.references;
        }
        let at = self.tail;
        self.tail += bodies.len() as u64;
        if bodies.is_empty() { Ok(()) } else { changes.recent_window.push(&changes.store, at, bodies, end) }
    }
}

/// Lengths in groups of at most `bytes_max`; a longer message is cut: readers of changes do not ask where messages end.
fn pieces(lengths: &Lengths, bytes_max: usize) -> Vec<Lengths> {
    let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX).max(1);
    let mut pieces = vec![Lengths::default()];
    for mut length in lengths.iter() {
        while length > 0 {
            let part = length.min(bytes_max);
            length -= part;
            match pieces.last_mut() {
                Some(last) if last.bytes() + u64::from(part) <= u64::from(bytes_max) => last.push(part),
                _ => pieces.push(Lengths::one(part)),
            }
        }
    }
    pieces.retain(|piece| piece.bytes() > 0);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_cut_into_pieces_that_fit() {
        let of = |list: &[u32]| {
            let mut lengths = Lengths::default();
            list.iter().for_each(|length| lengths.push(*length));
            lengths
        };
        let cut =
            |list: &[u32]| pieces(&of(list), 10).iter().map(|piece| piece.iter().collect()).collect::<Vec<Vec<u32>>>();
        assert_eq!(cut(&[]), Vec::<Vec<u32>>::new());
        assert_eq!(cut(&[3, 7, 1]), [vec![3, 7], vec![1]]);
        assert_eq!(cut(&[4, 25, 5]), [vec![4], vec![10], vec![10], vec![5, 5]]);
    }
}
