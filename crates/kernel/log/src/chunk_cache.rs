//! Chunks that are read again and again, each in one piece.
//!
//! A chunk is gathered from frames, hundreds perhaps, or from blocks of objects. When a second reader asks for the same
//! chunk, as all clients do that start from the same place, the cache keeps it as one slice, which costs the socket one
//! copy and the server no gathering. Content never changes, so an entry is right for as long as its log exists; every
//! reader has found the log before it asks here.

use crate::held_bytes::HeldBytes;
use crate::logs::{LogsOptions, ReadFrom};
use crate::read::Chunk;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use thalweg_base::{LogId, Offset};
use thalweg_journal::Journal;
use thalweg_unit::sync::Mutex;
use thalweg_unit::sync::atomic::{AtomicU64, Ordering};

/// The cache replaces a chunk that ends where its log does when the chunk has grown by this fraction.
const GROWTH: usize = 8;
/// How many of the latest questions are remembered.
const ASKED: usize = 256;

type Key = (LogId, Offset);

#[derive(Clone)]
struct KeptChunk {
    bytes: Bytes,
    end: Offset,
    /// The chunk ends by its content, and not because the log ended there when it was read.
    whole: bool,
}

/// A question, and how much had been noted when it was asked. Both are hints: threads may mix those of two questions.
#[derive(Default)]
struct Asked {
    tag: AtomicU64,
    at: AtomicU64,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Key, KeptChunk> for Weigh {
    fn weight(&self, _: &Key, kept: &KeptChunk) -> u64 {
        kept.bytes.len() as u64 + 128
    }
}

/// Makes of a chunk that is kept the bytes that readers get: the same, and perhaps in a form that costs less to send.
pub(crate) type Prepare = Box<dyn Fn(Bytes) -> Bytes + Send + Sync>;

pub(crate) struct ChunkCache {
    /// Counts the buffers that readers hold, this cache included.
    pub(crate) held_bytes: HeldBytes,
    pub(crate) prepare: OnceLock<Prepare>,
    /// Smaller chunks are not kept.
    bytes_min: usize,
    /// One table under one lock: a sharded one would have no room for a large chunk in any of its shards.
    cache: Mutex<Cache<Key, KeptChunk, Weigh>>,
    bytes_max: u64,
    asked: Box<[Asked]>,
    /// How many bytes all chunks have that were noted.
    noted: AtomicU64,
    hasher: RandomState,
}

impl ChunkCache {
    /// Holds about `chunk_cache_bytes` at most.
    pub(crate) fn new(options: &LogsOptions) -> Self {
        let bytes = options.chunk_cache_bytes;
        let items = usize::try_from(bytes / (64 << 10)).unwrap_or(usize::MAX).max(16);
        Self {
            held_bytes: HeldBytes::default(),
            prepare: OnceLock::new(),
            bytes_min: options.kept_bytes_min,
            cache: Mutex::new(Cache::with_weighter(items, bytes, Weigh)),
            bytes_max: bytes,
            asked: (0..ASKED).map(|_| Asked::default()).collect(),
            noted: AtomicU64::new(0),
            hasher: RandomState::new(),
        }
    }

    pub(crate) fn get(&self, want: ReadFrom) -> Option<Chunk> {
        let kept = self.cache.lock().get(&(want.log, want.from))?.clone();
        let fits = kept.end == want.upto || (kept.whole && kept.end <= want.upto);
        fits.then(|| Chunk { parts: vec![kept.bytes], end: kept.end })
    }

    /// The cached beginning of the wanted chunk, if the log has grown since: the chunk goes on behind it, or has
    /// reached its target.
    pub(crate) fn first_part(&self, want: ReadFrom) -> Option<Bytes> {
        let kept = self.cache.lock().get(&(want.log, want.from))?.clone();
        (kept.end < want.upto).then_some(kept.bytes)
    }

    /// A chunk that was read, without small slices of large buffers.
    pub(crate) fn own(&self, chunk: Chunk, journal: &dyn Journal) -> Chunk {
        self.held_bytes.join_chunk(chunk, |part| journal.buffer_of(part))
    }

    /// Returns the chunk that was read, in one piece from the second read on. `rest` was read now; it follows `kept`,
    /// the cached beginning.
    pub(crate) fn note(&self, want: ReadFrom, kept: Option<Bytes>, rest: Chunk, journal: &dyn Journal) -> Chunk {
        let len = rest.bytes();
        let is_wanted = match &kept {
            // While the log grows, the cache replaces its chunk each time that it has grown by a fraction.
            Some(kept) => len > kept.len() / GROWTH,
            None => len >= self.bytes_min && self.asked_before(want, len),
        };
        let mut chunk = match is_wanted {
            true => rest,
            false => self.own(rest, journal),
        };
        chunk.parts.splice(0..0, kept);
        if is_wanted { self.keep(want, chunk) } else { chunk }
    }

    /// The chunk that was read, in one piece, which others find here.
    pub(crate) fn keep(&self, want: ReadFrom, mut chunk: Chunk) -> Chunk {
        if chunk.bytes() < self.bytes_min {
            return chunk;
        }
        // A copy even of a single part: it may be a slice of something much larger.
        let bytes = Bytes::from(chunk.parts.concat());
        let bytes = self.held_bytes.count(match self.prepare.get() {
            Some(prepare) => prepare(bytes),
            None => bytes,
        });
        chunk.parts = vec![bytes.clone()];
        let kept = KeptChunk { bytes, end: chunk.end, whole: chunk.end < want.upto };
        self.cache.lock().insert((want.log, want.from), kept);
        chunk
    }

    /// Notes a request for a chunk of `len` bytes. Returns whether the same chunk was requested so lately that it would
    /// still be in the cache, had it been kept.
    pub(crate) fn asked_before(&self, want: ReadFrom, len: usize) -> bool {
        let tag = self.hasher.hash_one((want.log, want.from)) | 1;
        let now = self.noted.fetch_add(len as u64, Ordering::Relaxed);
        let asked = &self.asked[tag as usize / 2 % ASKED];
        let (before, at) = (asked.tag.swap(tag, Ordering::Relaxed), asked.at.swap(now, Ordering::Relaxed));
        before == tag && now.saturating_sub(at) <= self.bytes_max
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    const LOG: LogId = LogId(64);

    fn want(from: u64, upto: u64) -> ReadFrom {
        ReadFrom { log: LOG, from: Offset(from), upto: Offset(upto) }
    }

    fn chunk(parts: usize, end: u64) -> Chunk {
        let len = end as usize / parts;
        Chunk { parts: vec![Bytes::from(vec![7; len]); parts], end: Offset(end) }
    }

    fn cache() -> ChunkCache {
        ChunkCache::new(&LogsOptions { chunk_cache_bytes: 1 << 20, ..LogsOptions::default() })
    }

    fn note(chunks: &ChunkCache, want: ReadFrom, chunk: Chunk) -> Chunk {
        note_behind(chunks, want, None, chunk)
    }

    fn note_behind(chunks: &ChunkCache, want: ReadFrom, kept: Option<Bytes>, chunk: Chunk) -> Chunk {
        let journal = thalweg_journal::MemoryJournal::new(thalweg_journal::Options::default());
        chunks.note(want, kept, chunk, &journal)
    }

    #[test]
    fn what_ended_at_the_tail_is_the_first_part_of_what_is_there_later() {
        let chunks = cache();
        assert!(chunks.first_part(want(0, 65_536)).is_none());
        chunks.keep(want(0, 65_536), chunk(64, 65_536));
        let first = |upto| chunks.first_part(want(0, upto)).map(|bytes| bytes.len());
        assert_eq!(first(70_000), Some(65_536));
        assert_eq!(first(65_536), None, "that is all of it");
        assert_eq!(first(65_535), None, "it ends earlier");
        let behind = |bytes: u64| {
            let rest =
                Chunk { parts: vec![Bytes::from(vec![7; 256]); bytes as usize / 256], end: Offset(65_536 + bytes) };
            let read = note_behind(&chunks, want(0, 65_536 + bytes), chunks.first_part(want(0, 1 << 19)), rest);
            assert_eq!((read.bytes() as u64, read.end), (65_536 + bytes, Offset(65_536 + bytes)));
            read.parts.len()
        };
        assert_eq!(behind(2_048), 2, "what is kept, and what came since in one piece");
        assert_eq!(first(70_000), Some(65_536), "a little is not worth a copy of all");
        assert_eq!(behind(16_384), 1);
        assert_eq!(first(1 << 19), Some(65_536 + 16_384));
    }

    #[test]
    fn the_second_time_it_is_one_piece() {
        let chunks = cache();
        assert_eq!(note(&chunks, want(0, 65_536), chunk(64, 65_536)).parts.len(), 64);
        assert!(chunks.get(want(0, 65_536)).is_none());
        assert_eq!(note(&chunks, want(0, 65_536), chunk(64, 65_536)).parts.len(), 1);
        assert_eq!(chunks.get(want(0, 65_536)).map(|c| (c.bytes(), c.end)), Some((65_536, Offset(65_536))));
    }

    #[test]
    fn chunks_that_come_again_after_more_than_there_is_room_for_are_not_kept() {
        let chunks = cache();
        for _ in 0..4 {
            for log in 0..40 {
                let want = ReadFrom { log: LogId(log), ..want(0, 65_536) };
                assert_eq!(note(&chunks, want, chunk(64, 65_536)).parts.len(), 64);
            }
        }
        // A few of them fit.
        let parts =
            |log: u64| note(&chunks, ReadFrom { log: LogId(log), ..want(0, 65_536) }, chunk(64, 65_536)).parts.len();
        (100..108).for_each(|log| assert_eq!(parts(log), 64));
        assert!((100..108).filter(|log| parts(*log) == 1).count() >= 4, "two questions may have one place");
    }

    #[test]
    fn what_ended_at_the_tail_is_not_for_who_sees_more() {
        let chunks = cache();
        for _ in 0..2 {
            note(&chunks, want(0, 65_536), chunk(64, 65_536));
        }
        assert!(chunks.get(want(0, 65_537)).is_none());
        assert!(chunks.get(want(0, 65_535)).is_none());
        assert!(chunks.get(want(0, 65_536)).is_some());
    }

    #[test]
    fn what_ended_by_its_content_is_for_everybody_who_sees_its_end() {
        let chunks = cache();
        for _ in 0..2 {
            note(&chunks, want(0, 99_999), chunk(64, 65_536));
        }
        assert!(chunks.get(want(0, 1 << 40)).is_some());
        assert!(chunks.get(want(0, 65_536)).is_some());
        assert!(chunks.get(want(0, 65_000)).is_none());
    }

    #[test]
    fn every_reader_of_a_chunk_that_is_kept_gets_what_was_prepared() {
        let chunks = cache();
        let prepared = Bytes::from(vec![7; 65_536]);
        let (address, given) = (prepared.as_ptr(), prepared.clone());
        let prepare: Prepare = Box::new(move |bytes| if bytes == given { given.clone() } else { bytes });
        assert!(chunks.prepare.set(prepare).is_ok());
        let first = chunks.keep(want(0, 65_536), chunk(64, 65_536));
        let later = chunks.get(want(0, 65_536)).unwrap();
        assert_eq!([first, later].map(|chunk| chunk.parts[0].as_ptr()), [address; 2]);
    }

    #[test]
    fn small_chunks_are_not_kept() {
        let chunks = cache();
        for _ in 0..3 {
            assert_eq!(note(&chunks, want(0, 400), chunk(4, 400)).parts.len(), 1);
            assert!(chunks.get(want(0, 400)).is_none());
        }
    }
}
