//! The connections whose next reply waits for the gate, by position.

use super::mailbox::Token;
use std::collections::VecDeque;

/// Sorted by position. Positions come nearly sorted, so that adding is a push at the end or close to it.
#[derive(Debug, Default)]
pub(super) struct Held {
    queue: VecDeque<(u64, Token)>,
}

impl Held {
    pub(super) fn add(&mut self, position: u64, token: Token) {
        if self.queue.back().is_none_or(|last| last.0 <= position) {
            return self.queue.push_back((position, token));
        }
        let at = self.queue.partition_point(|entry| entry.0 <= position);
        self.queue.insert(at, (position, token));
    }

    /// The next connection that `position` releases.
    pub(super) fn release(&mut self, position: u64) -> Option<Token> {
        match self.queue.front() {
            Some(entry) if entry.0 <= position => self.queue.pop_front().map(|entry| entry.1),
            _ => None,
        }
    }

    /// Drops the entries of connections that are gone if they are many. `counts` says which are not.
    pub(super) fn sweep(&mut self, connections: usize, counts: impl Fn(Token) -> bool) {
        if self.queue.len() > 2 * connections + 1024 {
            self.queue.retain(|entry| counts(entry.1));
        }
    }

    /// The lowest position that somebody waits for.
    pub(super) fn next(&self) -> Option<u64> {
        self.queue.front().map(|entry| entry.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_order_of_adding_lower_positions_go_first() {
        let mut held = Held::default();
        for (index, position) in [5, 9, 7, 7, 1, 9].into_iter().enumerate() {
            held.add(position, Token { index: index as u32, serial: 0 });
        }
        let mut released =
            |position| std::iter::from_fn(|| held.release(position)).map(|t| t.index).collect::<Vec<_>>();
        assert_eq!(released(0), []);
        assert_eq!(released(7), [4, 0, 2, 3]);
        assert_eq!(released(9), [1, 5]);
    }
}
