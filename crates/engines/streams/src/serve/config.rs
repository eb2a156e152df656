//! Settings of streams.

use crate::state::retention::Retention;
use std::time::Duration;
use thalweg_base::Level;

/// How long caches may keep an answer to a long-poll.
pub(crate) const ANSWER_MAX_AGE: Duration = Duration::from_secs(60);

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct StreamsConfig {
    /// Prefix of all streams' paths.
    pub prefix: String,
    /// After this time without news a long-poll is answered.
    pub long_poll_timeout: Duration,
    /// After this time an SSE response ends, and the client reconnects: so that caches can gather readers.
    pub sse_lifetime: Duration,
    /// How long caches may keep a chunk behind which the stream goes on: its bytes never change.
    pub chunk_max_age: Duration,
    /// Answers are for their client only, because requests need rights: shared caches must not keep them.
    pub private: bool,
    /// The server speaks TLS itself, so that its own addresses are `https`.
    pub https: bool,
    /// A comment is sent on an SSE response that was silent for this long.
    pub sse_keep_alive: Duration,
    /// Bound on the number of streams; subscriptions count, and deleted streams that forks still need.
    pub streams_max: u64,
    /// How many idempotent producers one stream remembers.
    pub max_producers: usize,
    /// The level of new streams that do not say theirs.
    pub level: Level,
    /// There is a bucket, in which replicated streams are.
    pub has_store: bool,
    /// How many units the streams of nodes are in; 0 for a server with a data folder.
    pub units_of_nodes: usize,
    /// Retention of streams without settings of their own.
    pub retention: Retention,
    /// How much memory answers may hold that clients do not take; beyond it reads are refused.
    pub unsent_bytes_max: u64,
    /// How hard large answers are compressed for clients that ask for gzip: 1 (fast) to 9; 0 for never.
    pub gzip_level: u32,
    /// Threads for reads that wait for a device. 0: none, and the owner calls [`crate::Streams::read_on`].
    pub io_threads: usize,
    /// How many such reads may queue.
    pub io_queue_max: usize,
    /// Streams that one tick checks for expiry.
    pub sweep_per_tick: usize,
    /// How many expired streams one tick deletes.
    pub expire_per_tick: usize,
    /// How many streams one tick trims.
    pub trim_per_tick: usize,
    #[cfg(feature = "faults")]
    pub faults: Faults,
}

/// Planted faults. They exist only with the feature `faults`, so that tests can prove that the simulation would find
/// such a bug.
#[cfg(feature = "faults")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A duplicate is answered before its original is durable.
    pub retry_acknowledged_early: bool,
    /// A planted fault: a producer's state is in a separate frame, behind the content.
    pub producer_state_in_another_frame: bool,
    /// A close of a buffered stream is buffered.
    pub close_buffered: bool,
}

impl StreamsConfig {
    /// `Cache-Control` of answers that caches must revalidate before each use.
    pub(crate) const fn no_cache(&self) -> &'static [u8] {
        if self.private { b"private, no-cache" } else { b"no-cache" }
    }

    pub(crate) fn acknowledges_retries_early(&self) -> bool {
        #[cfg(feature = "faults")]
        return self.faults.retry_acknowledged_early;
        #[cfg(not(feature = "faults"))]
        false
    }

    pub(crate) fn buffers_closes(&self) -> bool {
        #[cfg(feature = "faults")]
        return self.faults.close_buffered;
        #[cfg(not(feature = "faults"))]
        false
    }

    pub(crate) fn splits_producer_state(&self) -> bool {
        #[cfg(feature = "faults")]
        return self.faults.producer_state_in_another_frame;
        #[cfg(not(feature = "faults"))]
        false
    }
}

impl Default for StreamsConfig {
    fn default() -> Self {
        Self {
            prefix: "/v1/stream/".into(),
            long_poll_timeout: Duration::from_secs(30),
            sse_lifetime: Duration::from_secs(60),
            chunk_max_age: ANSWER_MAX_AGE,
            private: false,
            https: false,
            sse_keep_alive: Duration::from_secs(15),
            streams_max: 10_000_000,
            max_producers: crate::state::producers::PRODUCERS_MAX,
            level: Level::Durable,
            has_store: false,
            units_of_nodes: 0,
            retention: Retention::default(),
            unsent_bytes_max: 1 << 30,
            gzip_level: 1,
            io_threads: 4,
            io_queue_max: 1_024,
            sweep_per_tick: 20_000,
            expire_per_tick: 4_096,
            trim_per_tick: 1_024,
            #[cfg(feature = "faults")]
            faults: Faults::default(),
        }
    }
}
