//! Counters for metrics. The binary renders them.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// Counters of the engine since its start, and the present number of waiters.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Accepted appends, those of bodies of creates included.
    appends,
    append_bytes,
    /// Answered reads with content, catch-up and long-poll; data events of SSE.
    reads,
    read_bytes,
    creates,
    /// Deletes by request, including soft deletes.
    deletes,
    expired,
    /// Answers that were compressed, and their bytes before and after.
    compressed,
    compressed_from_bytes,
    compressed_to_bytes,
    /// Number of trims of streams, and the bytes that they removed.
    trims,
    trimmed_bytes,
    /// Long-polls that wait now.
    long_poll_waiters,
    /// Open SSE responses.
    sse_waiters,
    /// Appends that were accepted before.
    duplicates,
    /// Refusals with a status of 400 to 499.
    refused_4xx,
    /// Refusals with a status of 500 and above.
    refused_5xx,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub(crate) fn sub(counter: &AtomicU64, n: u64) {
    counter.fetch_sub(n, Ordering::Relaxed);
}
