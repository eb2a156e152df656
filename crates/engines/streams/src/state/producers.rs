//! Idempotent producers: their last accepted appends, so that retries are recognised (protocol section 5.2.1).

/// How many producers a stream remembers, unless configured otherwise.
pub const PRODUCERS_MAX: usize = 1_000;
/// The longest producer id, in bytes.
pub const PRODUCER_ID_BYTES_MAX: usize = 256;
/// The largest epoch and sequence number: 2^53 - 1, the largest integer that JavaScript counts exactly.
pub const PRODUCER_NUMBER_MAX: u64 = (1 << 53) - 1;

/// Above this many, ids are found by an index rather than one by one.
const SCANNED_MAX: usize = 8;

/// A request's producer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// `Producer-Id`.
    pub id: &'a [u8],
    /// `Producer-Epoch`.
    pub epoch: u64,
    /// `Producer-Seq`.
    pub seq: u64,
}

/// The last accepted append of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    /// `Producer-Id`.
    pub id: Box<[u8]>,
    /// The highest epoch seen.
    pub epoch: u64,
    /// The highest accepted in this epoch.
    pub seq: u64,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// New data, of a known producer or of the next one.
    New { known: Option<u32> },
    /// Accepted before; `seq` is the highest accepted.
    Duplicate { seq: u64 },
    /// The epoch is below the producer's, `epoch`.
    Stale { epoch: u64 },
    /// The number leaves a gap.
    Gap { expected: u64 },
    /// A new epoch must start at sequence number 0.
    MidEpoch,
    /// A new producer beyond the bound.
    TooMany,
}

/// The producers of one stream, in the order in which they came. They are never forgotten while the stream lives.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    list: Vec<Producer>,
    /// Places in `list` by id, for large lists.
    by_id: Vec<u32>,
}

impl PartialEq for Producers {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Producers {
    /// All producers, by place.
    #[must_use]
    pub fn as_slice(&self) -> &[Producer] {
        &self.list
    }

    /// The producer in this place.
    #[must_use]
    pub fn get(&self, place: u32) -> Option<&Producer> {
        self.list.get(place as usize)
    }

    /// The place of the producer with this id.
    #[must_use]
    pub fn find(&self, id: &[u8]) -> Option<u32> {
        if self.by_id.is_empty() {
            return self.list.iter().position(|p| &*p.id == id).map(|place| place as u32);
        }
        self.search(id).ok().and_then(|at| self.by_id.get(at).copied())
    }

    fn search(&self, id: &[u8]) -> Result<usize, usize> {
        self.by_id.binary_search_by(|place| self.list[*place as usize].id[..].cmp(id))
    }

    /// Decides about a claim, with at most `max` known producers.
    #[must_use]
    pub fn judge(&self, claim: Claim<'_>, max: usize) -> Verdict {
        let Some(place) = self.find(claim.id) else {
            return match claim.seq {
                0 if self.list.len() >= max => Verdict::TooMany,
                0 => Verdict::New { known: None },
                _ => Verdict::Gap { expected: 0 },
            };
        };
        let producer = &self.list[place as usize];
        if claim.epoch < producer.epoch {
            Verdict::Stale { epoch: producer.epoch }
        } else if claim.epoch > producer.epoch {
            if claim.seq == 0 { Verdict::New { known: Some(place) } } else { Verdict::MidEpoch }
        } else if claim.seq <= producer.seq {
            Verdict::Duplicate { seq: producer.seq }
        } else if claim.seq == producer.seq + 1 {
            Verdict::New { known: Some(place) }
        } else {
            Verdict::Gap { expected: producer.seq + 1 }
        }
    }

    /// Adds a producer. The caller knows that its id is new.
    pub(crate) fn add(&mut self, id: &[u8], epoch: u64, seq: u64) {
        let place = self.list.len() as u32;
        if !self.by_id.is_empty() {
            let at = self.search(id).unwrap_or_else(|at| at);
            self.by_id.insert(at, place);
        }
        self.list.push(Producer { id: id.into(), epoch, seq });
        if self.by_id.is_empty() && self.list.len() > SCANNED_MAX {
            self.by_id = (0..self.list.len() as u32).collect();
            let list = &self.list;
            self.by_id.sort_unstable_by(|a, b| list[*a as usize].id.cmp(&list[*b as usize].id));
        }
    }

    /// Records an append of a known producer; returns whether that place has a producer.
    pub(crate) fn accept(&mut self, place: u32, epoch: u64, seq: u64) -> bool {
        let Some(producer) = self.list.get_mut(place as usize) else { return false };
        (producer.epoch, producer.seq) = (epoch, seq);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(epoch: u64, seq: u64) -> Claim<'static> {
        Claim { id: b"p", epoch, seq }
    }

    fn known(epoch: u64, seq: u64) -> Producers {
        let mut producers = Producers::default();
        producers.add(b"p", epoch, seq);
        producers
    }

    #[test]
    fn an_unknown_producer_starts_at_zero_in_any_epoch() {
        let none = Producers::default();
        assert_eq!(none.judge(claim(7, 0), 1), Verdict::New { known: None });
        assert_eq!(none.judge(claim(0, 3), 1), Verdict::Gap { expected: 0 });
    }

    #[test]
    fn a_known_producer_goes_on_by_one() {
        let known = known(2, 5);
        assert_eq!(known.judge(claim(2, 6), 1), Verdict::New { known: Some(0) });
        assert_eq!(known.judge(claim(2, 5), 1), Verdict::Duplicate { seq: 5 });
        assert_eq!(known.judge(claim(2, 0), 1), Verdict::Duplicate { seq: 5 });
        assert_eq!(known.judge(claim(2, 7), 1), Verdict::Gap { expected: 6 });
        assert_eq!(known.judge(claim(1, 6), 1), Verdict::Stale { epoch: 2 });
        assert_eq!(known.judge(claim(3, 0), 1), Verdict::New { known: Some(0) });
        assert_eq!(known.judge(claim(3, 1), 1), Verdict::MidEpoch);
    }

    #[test]
    fn one_producer_too_many_is_refused_and_known_ones_go_on() {
        let known = known(0, 0);
        assert_eq!(known.judge(Claim { id: b"q", epoch: 0, seq: 0 }, 1), Verdict::TooMany);
        assert_eq!(known.judge(claim(0, 1), 1), Verdict::New { known: Some(0) });
    }

    proptest! {
        #[test]
        fn every_producer_is_found_again(ids in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 1..40)) {
            let mut producers = Producers::default();
            let mut order: Vec<_> = ids.iter().collect();
            order.reverse();
            for id in &order {
                prop_assert_eq!(producers.find(id), None);
                producers.add(id, 1, 2);
            }
            for (place, id) in order.iter().enumerate() {
                prop_assert_eq!(producers.find(id), Some(place as u32));
            }
        }
    }
}
