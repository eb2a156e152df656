//! Figures of a mirror.

use crate::metrics::{Kind, Page};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_object::{self as object, Bucket};
use thalweg_storage::{CacheStats, TierStats};

#[derive(Default)]
pub(super) struct Counters {
    copied_objects: AtomicU64,
    copied_bytes: AtomicU64,
    failures: AtomicU64,
    /// When the bucket last had all of the folder, in milliseconds since 1970.
    whole_ms: AtomicU64,
    missing: AtomicU64,
    is_failing: AtomicBool,
    tiers: Mutex<TierStats>,
}

impl Counters {
    pub(super) fn copied(&self, bytes: u64) {
        self.copied_objects.fetch_add(1, Ordering::Relaxed);
        self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A turn has ended: with all of the folder in the bucket, or failed.
    pub(super) fn note_turn(&self, is_whole: bool) {
        self.is_failing.store(!is_whole, Ordering::Relaxed);
        if is_whole {
            self.whole_ms.store(crate::background::now().0, Ordering::Relaxed);
        }
    }

    /// So many objects that should be in the bucket are not.
    pub(super) fn missing(&self, objects: u64) {
        self.missing.store(objects, Ordering::Relaxed);
    }

    /// Whether the last turn has failed.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(super) fn tiers(&self, tiers: TierStats) {
        *self.tiers.lock() = tiers;
    }
}

/// Figures of a mirror, since the start or of now.
#[derive(Clone, Debug)]
pub struct MirrorStats {
    copied_objects: u64,
    copied_bytes: u64,
    failures: u64,
    whole_ms: u64,
    missing: u64,
    tiers: TierStats,
    cache: CacheStats,
    bucket: Bucket,
}

impl MirrorStats {
    pub(super) fn of(counters: &Counters, cache: CacheStats, bucket: &Bucket) -> Self {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            copied_objects: load(&counters.copied_objects),
            copied_bytes: load(&counters.copied_bytes),
            failures: load(&counters.failures),
            whole_ms: load(&counters.whole_ms),
            missing: load(&counters.missing),
            tiers: *counters.tiers.lock(),
            cache,
            bucket: bucket.clone(),
        }
    }

    /// Adds the figures to the page.
    #[rustfmt::skip]
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    pub fn add_to(&self, page: &mut Page) {
        use Kind::{Counter, Gauge};
        let f = |n: u64| n as f64;
        let Self { tiers, cache, .. } = self;
        page.add([
            ("offload_copied_objects_total", Counter, "Objects that were copied to the bucket.", f(self.copied_objects)),
            ("offload_copied_bytes_total", Counter, "Bytes of them.", f(self.copied_bytes)),
            ("offload_failed_total", Counter, "Attempts to copy that failed and are repeated.", f(self.failures)),
            ("offload_last_whole_timestamp_seconds", Gauge, "When the bucket last had all of the folder, as Unix time; 0 before.", f(self.whole_ms) / 1e3),
            ("offload_behind_bytes", Gauge, "Bytes of objects on the local disk that the bucket does not have.", f(tiers.uncopied_bytes)),
            ("store_missing_objects", Gauge, "Objects that are in the bucket only, and were missing there at the start.", f(self.missing)),
            ("local_object_bytes", Gauge, "Bytes of objects on the local disk.", f(tiers.local_bytes)),
            ("cold_objects", Gauge, "Objects that are in the bucket only.", f(tiers.cold_objects)),
            ("cold_bytes", Gauge, "Bytes of them.", f(tiers.cold_bytes)),
            ("cold_reads_total", Counter, "Reads of objects that are in the bucket only.", f(tiers.cold_reads)),
            ("cache_hits_total", Counter, "Blocks of cold objects that were read from the cache.", f(cache.hits)),
            ("cache_misses_total", Counter, "Blocks of cold objects that the bucket was asked for.", f(cache.misses)),
            ("cache_bytes", Gauge, "Bytes of the cache's files.", f(cache.disk_bytes)),
            ("cache_damaged_total", Counter, "Cached blocks that were not as they had been written, and were dropped.", f(cache.damaged)),
        ]);
        add_requests(page, &self.bucket);
    }
}

/// Figures of the requests to a bucket, by kind: what the store bills.
#[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
#[rustfmt::skip]
pub fn add_requests(page: &mut Page, bucket: &Bucket) {
    use Kind::Counter;
    let f = |n: u64| n as f64;
    for (kind, of) in object::Kind::ALL.into_iter().map(|kind| (kind, bucket.stats(kind))) {
        page.add_labelled(&format!("kind=\"{}\"", kind.name()), [
            ("store_requests_total", Counter, "Requests to the bucket, by kind, repetitions included.", f(of.requests)),
            ("store_request_failures_total", Counter, "Requests to the bucket that failed or were not answered, by kind.", f(of.failures)),
            ("store_request_bytes_total", Counter, "Bytes of contents that requests to the bucket have carried, by kind.", f(of.bytes)),
            ("store_request_seconds_total", Counter, "Time from sending a request to its answer, summed, by kind.", f(of.nanos) / 1e9),
        ]);
    }
}
