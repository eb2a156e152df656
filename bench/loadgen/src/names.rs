//! Names of streams, all of one length, and which connection has which of them.

use crate::http::digits;
use clap::Args;

#[derive(Args, Clone, Debug)]
pub(crate) struct Names {
    /// Number of streams.
    #[arg(long, default_value_t = 1)]
    pub(crate) streams: u64,
    /// The number of the first one.
    #[arg(long, default_value_t = 0)]
    pub(crate) from: u64,
    /// Take only every nth of them.
    #[arg(long, default_value_t = 1)]
    pub(crate) step: u64,
    #[arg(long, default_value = "load-")]
    pub(crate) prefix: String,
    /// The length of a name.
    #[arg(long, default_value_t = 40)]
    pub(crate) name_bytes: usize,
}

impl Names {
    /// Number of streams, with `step` taken into account.
    pub(crate) fn count(&self) -> u64 {
        self.streams.div_ceil(self.step.max(1)).max(1)
    }

    /// The path of the `index`-th.
    pub(crate) fn path(&self, index: u64) -> String {
        let mut path = self.root().into_bytes();
        self.number(index, &mut path);
        String::from_utf8(path).unwrap_or_default()
    }

    /// Common prefix of all paths.
    pub(crate) fn root(&self) -> String {
        format!("/v1/stream/{}", self.prefix)
    }

    /// Appends the part of a path behind [`Names::root`] to `out`.
    pub(crate) fn number(&self, index: u64, out: &mut Vec<u8>) {
        digits(out, self.from + index * self.step.max(1), self.name_bytes.saturating_sub(self.prefix.len()));
    }
}

/// The streams of one connection. Each stream has one connection if there are enough streams; otherwise several
/// connections share a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    first: u64,
    step: u64,
    pub(crate) count: u64,
}

impl Share {
    pub(crate) fn of(streams: u64, connection: u64, connections: u64) -> Self {
        if streams < connections {
            return Self { first: connection % streams, step: 1, count: 1 };
        }
        Self { first: connection, step: connections, count: (streams - connection).div_ceil(connections) }
    }

    /// The index of the connection's `turn`-th stream, round and round.
    pub(crate) fn stream(&self, turn: u64) -> u64 {
        self.first + turn % self.count * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_has_exactly_one_connection_if_there_are_enough() {
        for (streams, connections) in [(1, 1), (10, 3), (1000, 64), (64, 64)] {
            let mut seen = vec![0; streams as usize];
            for connection in 0..connections {
                let share = Share::of(streams, connection, connections);
                (0..share.count).for_each(|turn| seen[share.stream(turn) as usize] += 1);
            }
            assert!(seen.iter().all(|times| *times == 1), "{streams} over {connections}: {seen:?}");
        }
        assert_eq!(Share::of(2, 5, 64).stream(9), 1);
    }

    #[test]
    fn names_have_the_length_that_was_asked_for() {
        let names = Names { streams: 10, from: 5, step: 3, prefix: "p-".into(), name_bytes: 10 };
        assert_eq!(names.path(2), "/v1/stream/p-00000011");
        assert_eq!(names.count(), 4);
    }
}
