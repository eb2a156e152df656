//! The settings of answers.

/// Limits and times of the HTTP side. Where Electric has a variable for the same, its name is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long caches may keep an answer that is not live: `ELECTRIC_CACHE_MAX_AGE`.
    pub max_age_s: u64,
    /// How long they may go on using it while they ask again: `ELECTRIC_CACHE_STALE_AGE`.
    pub stale_age_s: u64,
    /// How long caches that many share may keep the rows that clients begin with.
    pub first_shared_age_s: u64,
    /// An answer ends where this much of a log ends: `ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD`.
    pub chunk_bytes: u64,
    /// How long a live request waits: `ELECTRIC_LONG_POLL_TIMEOUT`. Below a second, cursors are always 0.
    pub long_poll_ms: u64,
    /// How long one SSE stream lasts.
    pub sse_timeout_ms: u64,
    /// An SSE stream that is idle for so long gets a comment.
    pub keep_alive_ms: u64,
    /// Whether shapes can be deleted: `ELECTRIC_ENABLE_INTEGRATION_TESTING`.
    pub allow_delete: bool,
    /// Requests at a time that may have to make a shape: `initial` of `ELECTRIC_MAX_CONCURRENT_REQUESTS`.
    pub initial_requests_max: usize,
    /// Other requests at a time: `existing` of `ELECTRIC_MAX_CONCURRENT_REQUESTS`.
    pub existing_requests_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_age_s: 60,
            stale_age_s: 300,
            first_shared_age_s: 3600,
            chunk_bytes: 10 << 20,
            long_poll_ms: 20_000,
            sse_timeout_ms: 60_000,
            keep_alive_ms: 21_000,
            allow_delete: false,
            initial_requests_max: 10_000,
            existing_requests_max: 10_000,
        }
    }
}
