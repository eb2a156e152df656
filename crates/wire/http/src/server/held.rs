//! Connections whose next reply waits for the gate, by kind and position.

use super::mailbox::Token;
use std::collections::VecDeque;
use thalweg_base::{Lsn, Reached, Until};

#[derive(Debug, Default)]
pub(super) struct Held {
    written: Queue,
    durable: Queue,
}

impl Held {
    pub(super) fn add(&mut self, until: Until, token: Token) {
        match until {
            Until::Written(position) => self.written.add(position.0, token),
            Until::Durable(position) => self.durable.add(position.0, token),
        }
    }

    /// The next connection that is released.
    pub(super) fn release(&mut self, reached: Reached) -> Option<Token> {
        self.durable.release(reached.durable.0).or_else(|| self.written.release(reached.written.0))
    }

    /// Drops the entries of connections that are gone if they are many. `counts` says which are not.
    pub(super) fn sweep(&mut self, connections: usize, counts: impl Fn(Token) -> bool) {
        self.written.sweep(connections, &counts);
        self.durable.sweep(connections, &counts);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next().all(|until| until.is_none())
    }

    /// Whether a connection is released.
    pub(super) fn is_passable(&self, reached: Reached) -> bool {
        self.next().flatten().any(|until| reached.covers(until))
    }

    /// The lowest awaited position of each kind.
    fn next(&self) -> impl Iterator<Item = Option<Until>> {
        let written = self.written.next().map(|position| Until::Written(Lsn(position)));
        let durable = self.durable.next().map(|position| Until::Durable(Lsn(position)));
        [durable, written].into_iter()
    }
}

/// Sorted by position. Positions come nearly sorted, so that adding is a push at the end or close to it.
#[derive(Debug, Default)]
struct Queue {
    queue: VecDeque<(u64, Token)>,
}

impl Queue {
    fn add(&mut self, position: u64, token: Token) {
        if self.queue.back().is_none_or(|last| last.0 <= position) {
            return self.queue.push_back((position, token));
        }
        let at = self.queue.partition_point(|entry| entry.0 <= position);
        self.queue.insert(at, (position, token));
    }

    /// The next connection that `position` releases.
    fn release(&mut self, position: u64) -> Option<Token> {
        match self.queue.front() {
            Some(entry) if entry.0 <= position => self.queue.pop_front().map(|entry| entry.1),
            _ => None,
        }
    }

    /// Drops the entries of connections that are gone if they are many. `counts` says which are not.
    fn sweep(&mut self, connections: usize, counts: impl Fn(Token) -> bool) {
        if self.queue.len() > 2 * connections + 1024 {
            self.queue.retain(|entry| counts(entry.1));
        }
    }

    /// The lowest awaited position.
    fn next(&self) -> Option<u64> {
        self.queue.front().map(|entry| entry.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_order_of_adding_lower_positions_go_first() {
        let mut held = Queue::default();
        for (index, position) in [5, 9, 7, 7, 1, 9].into_iter().enumerate() {
            held.add(position, Token { index: index as u32, serial: 0 });
        }
        let mut released =
            |position| std::iter::from_fn(|| held.release(position)).map(|t| t.index).collect::<Vec<_>>();
        assert_eq!(released(0), []);
        assert_eq!(released(7), [4, 0, 2, 3]);
        assert_eq!(released(9), [1, 5]);
    }

    #[test]
    fn each_kind_waits_for_its_own_position() {
        let mut held = Held::default();
        let token = |index| Token { index, serial: 0 };
        held.add(Until::Durable(Lsn(5)), token(1));
        held.add(Until::Written(Lsn(6)), token(2));
        let reached = Reached { written: Lsn(9), durable: Lsn(4) };
        assert!(held.is_passable(reached));
        assert_eq!((held.release(reached), held.release(reached)), (Some(token(2)), None));
        assert!(!held.is_passable(reached) && !held.is_empty());
        assert_eq!(held.release(Reached { durable: Lsn(5), ..reached }), Some(token(1)));
        assert!(held.is_empty());
    }
}
