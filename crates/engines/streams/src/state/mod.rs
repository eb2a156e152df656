//! The synchronous core: state of a stream, and decisions about requests. No clock, no IO, no randomness.

pub mod append;
pub mod create;
pub mod cursor;
pub mod lifetime;
pub mod producers;
pub mod retention;

use crate::format::attachment;
use crate::format::content_type::{ContentType, Kind};
use crate::format::note::{self, Note};
use crate::format::offset::Position;
use crate::serve::Home;
use lifetime::Lifetime;
use producers::{Producer, Producers};
use retention::{Marks, Retention};
use thalweg_base::{DecodeError, Durability, Level, Lsn, Millis};
use thalweg_log::Attachment;

/// The engine's state of each log. It changes only by notes, except for fields marked as transient.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamState {
    pub content_type: ContentType,
    pub lifetime: Lifetime,
    /// The last recorded use; only kept if the lifetime slides.
    pub touched: Millis,
    pub closed: Option<Closed>,
    /// The last `Stream-Seq`: one per stream, of any writer.
    pub last_seq: Option<Box<[u8]>>,
    pub producers: Producers,
    pub fork: Option<Box<Fork>>,
    /// How many live streams were forked from this one directly.
    pub forks: u32,
    /// Deleted, but forks still need it.
    pub soft_deleted: bool,
    /// Retention, as requested at the stream's creation.
    pub retention: Retention,
    /// Durability, as requested at the stream's creation; `None` if it follows the server's setting.
    pub durability: Option<Level>,
    /// How old its content is.
    pub marks: Marks,
    /// On nodes: where the home of a name is. Set in records of that, which are no streams.
    pub home: Option<Home>,

    /// Transient: the last use, recorded or not.
    pub seen: Millis,
    /// Transient: end of the frame that recorded `touched`; zero if the state was decoded.
    pub touched_at: Lsn,
    /// Transient: end of the last frame that created, closed or soft-deleted the stream.
    pub configured: Lsn,
    /// Transient: end of the last frame that trimmed it.
    pub trimmed: Lsn,
    /// Transient: a reader waits for changes.
    pub watched: bool,
    /// Transient: queued to have its last use recorded.
    pub touch_queued: bool,
}

/// How a stream was closed. A closed stream's producers do not change, so the closing producer's place also determines
/// the epoch and sequence number of the close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub by: Option<u32>,
}

/// The origin of a fork, as requested at its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The source's name. It cannot change hands while this fork lives.
    pub source: Box<str>,
    /// `Stream-Fork-Offset`, or the source's tail at that time.
    pub at: Position,
    /// `Stream-Fork-Sub-Offset`
    pub sub_offset: u64,
    /// The lifetime was the source's.
    pub inherited_lifetime: bool,
}

/// The configuration that a stream is made with.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The type of the content.
    pub content_type: ContentType,
    /// When the stream expires.
    pub lifetime: Lifetime,
    /// When the stream was made.
    pub created: Millis,
    /// Whether the stream is closed from the start.
    pub closed: bool,
    /// Its origin, if it is a fork.
    pub fork: Option<Box<Fork>>,
    /// How much content it keeps.
    pub retention: Retention,
    /// The promise of its acknowledgements; `None`: the server's.
    pub durability: Option<Level>,
    /// Not a stream, but the record of where the home of a name is, on nodes.
    pub home: Option<Home>,
}

impl StreamState {
    /// The state of a stream whose first frame ends at `at`.
    #[must_use]
    pub fn new(config: Config, at: Lsn) -> Self {
        let touched = if config.lifetime.is_sliding() { config.created } else { Millis::ZERO };
        Self {
            content_type: config.content_type,
            lifetime: config.lifetime,
            touched,
            closed: config.closed.then_some(Closed { by: None }),
            last_seq: None,
            producers: Producers::default(),
            fork: config.fork,
            forks: 0,
            soft_deleted: false,
            retention: config.retention,
            durability: config.durability,
            home: config.home,
            marks: Marks::default(),
            seen: touched,
            touched_at: at,
            configured: at,
            trimmed: Lsn::ZERO,
            watched: false,
            touch_queued: false,
        }
    }

    /// Whether an engine of this process may append JSON to the stream by itself.
    #[must_use]
    pub fn takes_events(&self, now: Millis) -> bool {
        let is_live = self.closed.is_none() && !self.soft_deleted && !self.expired(now, Lsn::ZERO);
        is_live && self.content_type.kind() == Kind::Json
    }

    /// Past its time, if everything up to `recovered` was learnt from the journal at the last start. A soft-deleted
    /// stream does not expire: its forks keep it.
    #[must_use]
    pub fn expired(&self, now: Millis, recovered: Lsn) -> bool {
        // A use before the restart that was not recorded may be later than the recorded one.
        let replayed = self.touched_at > Lsn::ZERO && self.touched_at <= recovered && self.seen == self.touched;
        let slack = if replayed { self.lifetime.slack_ms() } else { 0 };
        !self.soft_deleted && self.lifetime.deadline(self.seen.plus(slack)).is_some_and(|deadline| now >= deadline)
    }

    /// The producer that closed the stream, as it was then.
    #[must_use]
    pub fn closer(&self) -> Option<&Producer> {
        self.producers.get(self.closed?.by?)
    }

    /// Whether the last use has moved far enough from the recorded one to be recorded.
    #[must_use]
    pub fn touch_is_due(&self) -> bool {
        self.lifetime.is_sliding() && self.seen.since(self.touched) > self.lifetime.slack_ms()
    }

    fn apply_note(&mut self, note: Note<'_>, at: Lsn) -> Result<(), DecodeError> {
        match note {
            Note::NewProducer { id, epoch, seq } => self.producers.add(id, epoch, seq),
            Note::Accepted { place, epoch, seq } => {
                if !self.producers.accept(place, epoch, seq) {
                    return Err(DecodeError::Range("producer"));
                }
            }
            Note::Closed { by } => {
                if by.is_some_and(|place| self.producers.get(place).is_none()) {
                    return Err(DecodeError::Range("producer"));
                }
                self.closed = Some(Closed { by });
                self.configured = at;
            }
            Note::Touched(when) => {
                self.touched = self.touched.max(when);
                self.seen = self.seen.max(when);
                self.touched_at = at;
            }
            Note::Seq(seq) => self.last_seq = Some(seq.into()),
            Note::SoftDeleted => {
                self.soft_deleted = true;
                self.configured = at;
            }
            Note::Mark(mark) => self.marks.push(mark),
            Note::Trimmed(start) => {
                self.marks.forget_below(start);
                self.trimmed = at;
            }
            Note::Home(home) => self.home = Some(home),
            Note::Forked => self.forks = self.forks.checked_add(1).ok_or(DecodeError::Range("forks"))?,
            Note::Released => self.forks = self.forks.checked_sub(1).ok_or(DecodeError::Range("forks"))?,
        }
        Ok(())
    }
}

impl Attachment for StreamState {
    fn create(note: &[u8], at: Lsn) -> Result<Self, DecodeError> {
        Ok(Self::new(note::decode_config(note)?, at))
    }

    /// A note may name a producer that it makes itself.
    fn check(&self, note: &[u8]) -> Result<(), DecodeError> {
        let (mut producers, mut forks) = (self.producers.as_slice().len(), self.forks);
        note::decode(note, |note| {
            match note {
                Note::NewProducer { .. } => producers += 1,
                Note::Accepted { place, .. } | Note::Closed { by: Some(place) } if place as usize >= producers => {
                    return Err(DecodeError::Range("producer"));
                }
                Note::Forked => forks = forks.checked_add(1).ok_or(DecodeError::Range("forks"))?,
                Note::Released => forks = forks.checked_sub(1).ok_or(DecodeError::Range("forks"))?,
                _ => {}
            }
            Ok(())
        })
    }

    fn apply(&mut self, note: &[u8], at: Lsn) -> Result<(), DecodeError> {
        note::decode(note, |note| self.apply_note(note, at))
    }

    fn durability(&self) -> Option<Durability> {
        self.durability.map(Level::of_journal)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        attachment::encode(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        attachment::decode(bytes)
    }

    fn may_rest(&self, durable: Lsn) -> bool {
        !self.watched && !self.touch_queued && !self.touch_is_due() && self.configured <= durable
    }
}
