//! Where the change log can be cut: places of encoded changes, each with the place of the references to them.

use std::collections::VecDeque;

/// Bytes of encoded changes between two points, about.
const EVERY: u64 = 1 << 20;

/// A transaction's bodies begin at `bodies` in the change log, and its references stand at `references`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrimPoint {
    pub(crate) bodies: u64,
    pub(crate) references: u64,
}

/// Points, oldest first. The last transaction's references always stay: they say how far the changes were applied.
#[derive(Debug, Default)]
pub(crate) struct TrimIndex(VecDeque<TrimPoint>);

impl TrimIndex {
    /// A transaction was written.
    pub(crate) fn note(&mut self, point: TrimPoint) {
        debug_assert!(
            self.0.back().is_none_or(|last| last.bodies <= point.bodies && last.references <= point.references),
            "places of the change log rise"
        );
        if self.0.back().is_none_or(|last| point.bodies >= last.bodies + EVERY) {
            self.0.push_back(point);
        }
    }

    /// The point at which to cut the logs when no shape needs a body before `bodies`; `None`: there is none.
    pub(crate) fn cut(&mut self, bodies: u64) -> Option<TrimPoint> {
        let count = self.0.partition_point(|point| point.bodies <= bodies);
        // The first point is where the log begins already.
        if count < 2 {
            return None;
        }
        self.0.drain(..count - 1);
        self.0.front().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_never_after_what_somebody_needs() {
        let mut marks = TrimIndex::default();
        (0..100).for_each(|n| marks.note(TrimPoint { bodies: n * EVERY / 4, references: n }));
        assert_eq!(marks.0.len(), 25);
        assert_eq!(marks.cut(0), None);
        assert_eq!(marks.cut(3 * EVERY + 7), Some(TrimPoint { bodies: 3 * EVERY, references: 12 }));
        assert_eq!(marks.cut(3 * EVERY + 9), None, "it is cut there already");
        assert_eq!(marks.cut(u64::MAX), Some(TrimPoint { bodies: 24 * EVERY, references: 96 }));
        assert_eq!(marks.cut(u64::MAX), None);
    }
}
