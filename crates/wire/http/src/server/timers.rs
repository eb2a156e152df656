//! Timers: when to handle each connection again.
//!
//! A connection has at most one valid entry: the one at the time it is armed for. A deadline that moves further away
//! costs nothing: the entry fires early, and is armed again. A deadline that moves closer leaves a stale entry behind;
//! when stale entries outnumber the connections, they are removed.

use super::mailbox::Token;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Milliseconds since the event loop started. [`NEVER`] is a deadline that never comes.
pub(super) type Tick = u64;

pub(super) const NEVER: Tick = Tick::MAX;

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Tick, Token)>>,
}

impl Timers {
    pub(super) fn add(&mut self, at: Tick, token: Token) {
        self.heap.push(Reverse((at, token)));
    }

    /// The next entry that is due.
    pub(super) fn pop(&mut self, now: Tick) -> Option<(Tick, Token)> {
        match self.heap.peek() {
            Some(Reverse((at, _))) if *at <= now => self.heap.pop().map(|Reverse(entry)| entry),
            _ => None,
        }
    }

    pub(super) fn next(&self) -> Option<Tick> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Drops the entries that do not count if they are many. `counts` says which do.
    pub(super) fn sweep(&mut self, connections: usize, counts: impl Fn(Tick, Token) -> bool) {
        if self.heap.len() > 4 * connections + 1024 {
            self.heap.retain(|Reverse((at, token))| counts(*at, *token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn token(index: u32) -> Token {
        Token { index, serial: 0 }
    }

    #[test]
    fn entries_come_out_in_order_and_never_early() {
        let mut timers = Timers::default();
        let mut rng = oorandom::Rand32::new(7);
        let mut times: Vec<u64> = (0..1000).map(|_| u64::from(rng.rand_range(0..5000))).collect();
        times.iter().for_each(|at| timers.add(*at, token(0)));
        times.sort_unstable();
        let mut seen = Vec::new();
        for now in 0..5000 {
            while let Some((at, _)) = timers.pop(now) {
                assert_eq!(at, now);
                seen.push(at);
            }
        }
        assert_eq!(seen, times);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn stale_entries_do_not_pile_up() {
        let mut timers = Timers::default();
        for at in 0..100_000 {
            timers.add(at, token(1));
            timers.sweep(1, |other, _| other == at);
        }
        assert!(timers.heap.len() < 2000);
        assert_eq!(timers.heap.iter().map(|e| e.0.0).max(), Some(99_999));
    }
}
