//! Randomness that a seed repeats: each part of a history draws from a fork of its own, so that threads do not disturb
//! each other.

pub(crate) struct Random(oorandom::Rand64);

impl Random {
    /// The generator of one part of a history: `seed`, and numbers that name the part.
    pub(crate) fn new(seed: u64, part: &[u64]) -> Self {
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        for number in part {
            state = (state ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd);
            state ^= state >> 32;
        }
        Self(oorandom::Rand64::new(u128::from(state)))
    }

    /// 0..n, and 0 for n = 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.0.rand_u64() % n as u64) as usize }
    }

    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + (self.0.rand_u64() % (high - low + 1) as u64) as i64
    }

    /// True this many times of a hundred.
    pub(crate) fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }

    pub(crate) fn word(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
