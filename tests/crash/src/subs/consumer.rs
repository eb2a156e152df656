//! A consumer's knowledge of its streams, and the answers that it may get.

use crate::numbered::{self, Read};
use crate::session::{Down, Session};
use std::collections::BTreeMap;

/// Before the first position.
const START: &str = "-1";

/// One stream of one subscription.
#[derive(Clone, Debug)]
struct Cursor {
    /// The furthest position that was ever acknowledged, whether that was taken or not: nothing beyond it may count as
    /// done.
    told: String,
    /// Where it was last shown to be.
    shown: String,
    /// The furthest one whose acknowledgement was confirmed, or shown since, and the generation of that
    /// acknowledgement. Later ones must not go back behind it; the same one may be told again as it was.
    confirmed: String,
    confirmed_in: u64,
    /// Lines that were read.
    processed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Consumer {
    cursors: BTreeMap<String, Cursor>,
}

/// One stream of a wake.
#[derive(Clone, Debug, serde::Deserialize)]
pub(super) struct Offer {
    pub(super) path: String,
    pub(super) acked_offset: String,
    pub(super) tail_offset: String,
}

/// Positions in their order, where `-1` comes first.
fn at(offset: &str) -> &str {
    if offset == START { "" } else { offset }
}

impl Consumer {
    fn cursor(&mut self, path: &str) -> &mut Cursor {
        let new = || Cursor {
            told: START.to_owned(),
            shown: START.to_owned(),
            confirmed: START.to_owned(),
            confirmed_in: 0,
            processed: 0,
        };
        self.cursors.entry(path.to_owned()).or_insert_with(new)
    }

    /// Records an offer of a generation; returns its violation, if any.
    pub(super) fn offered(&mut self, offer: &Offer, generation: u64) -> Result<(), String> {
        let cursor = self.cursor(&offer.path);
        let Offer { path, acked_offset, tail_offset } = offer;
        let least = if generation > cursor.confirmed_in { &cursor.confirmed } else { &cursor.shown };
        if at(acked_offset) < at(least) {
            return Err(format!("{path}: {least} was acknowledged, the cursor is at {acked_offset}"));
        }
        if at(acked_offset) > at(&cursor.told) {
            return Err(format!("{path}: the cursor is at {acked_offset}, acknowledged was {} at most", cursor.told));
        }
        if at(tail_offset) <= at(acked_offset) {
            return Err(format!("{path}: nothing is new at {tail_offset} after {acked_offset}"));
        }
        cursor.shown.clone_from(acked_offset);
        if at(&cursor.confirmed) < at(acked_offset) {
            cursor.confirmed.clone_from(acked_offset);
        }
        Ok(())
    }

    /// An acknowledgement is about to be sent.
    pub(super) fn tells(&mut self, path: &str, offset: &str) {
        let cursor = self.cursor(path);
        if at(&cursor.told) < at(offset) {
            offset.clone_into(&mut cursor.told);
        }
    }

    /// The acknowledgement of a generation was confirmed.
    pub(super) fn confirm(&mut self, path: &str, offset: &str, generation: u64) {
        let cursor = self.cursor(path);
        if at(&cursor.confirmed) < at(offset) {
            offset.clone_into(&mut cursor.confirmed);
            cursor.confirmed_in = generation;
        }
    }

    pub(super) fn processed(&self, path: &str) -> u64 {
        self.cursors.get(path).map_or(0, |cursor| cursor.processed)
    }

    /// Notes lines `first` to `next` as read.
    pub(super) fn process(&mut self, path: &str, first: u64, next: u64) -> Result<(), String> {
        let cursor = self.cursor(path);
        if first > cursor.processed {
            return Err(format!("{path}: line {} was left out, the next one told is {first}", cursor.processed));
        }
        cursor.processed = cursor.processed.max(next);
        Ok(())
    }
}

/// Reads what an offer is about; the first line and the one after the last.
pub(super) fn fetch(session: &mut Session<'_>, offer: &Offer) -> Result<(u64, u64), Down> {
    let path = format!("/v1/stream/{}", offer.path);
    match numbered::read(session, &path, &offer.acked_offset)? {
        Read::Lines(Some(span), _) => Ok(span),
        Read::Lines(None, _) => {
            session.world.violation(format!("{path}: nothing is there after {}", offer.acked_offset));
            Err(Down)
        }
        Read::Refused(answer) => {
            session.world.violation(format!(
                "{path} from {}, where its cursor is: {} {:?}",
                offer.acked_offset,
                answer.status,
                answer.text()
            ));
            Err(Down)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(acked: &str, tail: &str) -> Offer {
        Offer { path: "s".to_owned(), acked_offset: acked.to_owned(), tail_offset: tail.to_owned() }
    }

    #[test]
    fn a_cursor_moves_with_what_was_acknowledged_and_never_back() {
        let mut consumer = Consumer::default();
        consumer.offered(&offer("-1", "0_3"), 1).unwrap();
        consumer.tells("s", "0_3");
        // Whether it was taken is not known: both are right.
        consumer.offered(&offer("-1", "0_3"), 2).unwrap();
        consumer.offered(&offer("0_3", "0_5"), 3).unwrap();
        assert!(consumer.offered(&offer("-1", "0_5"), 4).is_err(), "back");
        assert!(consumer.offered(&offer("0_5", "0_7"), 4).is_err(), "acknowledged by nobody");
        assert!(consumer.offered(&offer("0_3", "0_3"), 4).is_err(), "nothing new");
        consumer.tells("s", "0_5");
        consumer.confirm("s", "0_5", 4);
        consumer.offered(&offer("0_3", "0_5"), 4).unwrap();
        assert!(consumer.offered(&offer("0_3", "0_7"), 5).is_err(), "back after a confirmation");
    }

    #[test]
    fn lines_may_come_again_but_none_may_be_left_out() {
        let mut consumer = Consumer::default();
        consumer.process("s", 0, 3).unwrap();
        consumer.process("s", 0, 2).unwrap();
        consumer.process("s", 3, 4).unwrap();
        assert!(consumer.process("s", 5, 6).is_err());
        assert_eq!(consumer.processed("s"), 4);
    }
}
