//! How far behind the first free number a take-over puts its second fence.
//!
//! An owner before that lives and writes may have the first free number before the fence does, at every attempt. It
//! cannot have a number that it has not reached. How many numbers it gets while a take-over looks and writes once is
//! seen from one attempt to the next; the slower the bucket lists, the more, so the distance has no bound.

/// The distance at first.
const AT_FIRST: u64 = 16;

/// The distance of the attempts of one take-over.
#[derive(Debug)]
pub(super) struct Reach {
    distance: u64,
    /// The first free number of the attempt before.
    before: Option<u64>,
}

impl Default for Reach {
    fn default() -> Self {
        Self { distance: AT_FIRST, before: None }
    }
}

impl Reach {
    /// The number of the second fence, where the first one could not have the number `free`.
    pub(super) fn next(&mut self, free: u64) -> u64 {
        let advance = self.before.map_or(0, |before| free.saturating_sub(before));
        self.before = Some(free);
        self.distance = self.distance.max(advance.saturating_mul(4));
        let number = free.saturating_add(self.distance);
        self.distance = self.distance.saturating_mul(2);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many attempts it takes until a fence stands where an owner has not been, which writes `speed(attempt)` objects
    /// while a take-over looks, and as many while it writes.
    fn attempts(speed: impl Fn(u64) -> u64) -> u64 {
        let (mut owner, mut reach) = (0, Reach::default());
        (1..)
            .find(|attempt| {
                let free = owner;
                owner += 2 * speed(*attempt);
                reach.next(free) > owner
            })
            .unwrap()
    }

    #[test]
    fn however_fast_the_owner_before_writes_a_fence_gets_ahead_of_it() {
        for speed in [1, 8, 100, 1_023, 1_025, 50_000, 10_000_000] {
            assert!(attempts(|_| speed) <= 2, "{speed} objects at each attempt: {}", attempts(|_| speed));
        }
    }

    #[test]
    fn a_take_over_that_becomes_slower_as_the_journal_grows_ends() {
        assert!(attempts(|attempt| 1_000 * attempt) <= 3);
        assert!(attempts(|attempt| 500 << attempt) <= 3, "{}", attempts(|attempt| 500 << attempt));
    }
}
