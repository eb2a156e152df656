//! Every refusal, and the one place that maps it to HTTP. `docs/protocol/refusals.md` is the table of this file.

use crate::format::content_type::CONTENT_TYPE_BYTES_MAX;
use crate::format::json::JsonError;
use crate::format::offset::{OFFSET_BYTES, Position};
use crate::serve::Home;
use crate::serve::LIMIT_MAX;
use crate::state::producers::{PRODUCER_ID_BYTES_MAX, PRODUCER_NUMBER_MAX};
use thalweg_base::{Offset, Until};
use thalweg_journal::AppendError;
use thalweg_log::{CommitError, ReadError};
use thiserror::Error;

/// The longest `Stream-Seq`, in bytes.
pub const SEQ_BYTES_MAX: usize = 256;

/// Why a request was refused, with the correct form where one exists.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    // 400: the request is malformed, independently of the stream.
    #[error("the stream's name is not valid: {0}")]
    Name(&'static str),
    #[error("the query has `{0}` more than once; send it once")]
    RepeatedParameter(&'static str),
    #[error("the request has the header `{0}` more than once; send it once")]
    RepeatedHeader(&'static str),
    #[error("`live` must be `long-poll` or `sse`")]
    Live,
    #[error("live reads need an `offset`: `-1`, `now`, or a Stream-Next-Offset")]
    OffsetRequired,
    #[error("`offset` is not an offset; send `-1`, `now`, or a Stream-Next-Offset as it was received")]
    Offset,
    #[error(
        "the offset belongs to another incarnation of this stream, which was deleted or lost; start again from `-1`"
    )]
    OffsetStale,
    #[error("the offset lies beyond the stream's end, {tail}", tail = text(*tail))]
    OffsetBeyond { tail: Position },
    #[error("Last-Event-ID is not the id of an event; send it as it was received")]
    LastEventId,
    #[error("the offset lies inside a message; send a Stream-Next-Offset as it was received")]
    OffsetInside,
    #[error(
        "Stream-TTL must be a whole number of seconds up to {PRODUCER_NUMBER_MAX}, in digits without leading zeros"
    )]
    Ttl,
    #[error("Stream-Expires-At must be an RFC 3339 timestamp, such as 2030-01-31T12:00:00Z")]
    ExpiresAt,
    #[error("Stream-TTL and Stream-Expires-At exclude each other; send one of them")]
    TtlAndExpiresAt,
    #[error("{0} must be a whole number from 1 to {PRODUCER_NUMBER_MAX}, in digits without leading zeros")]
    Retention(&'static str),
    #[error("Stream-Durability must be `durable`, `buffered` or `replicated`")]
    Durability,
    #[error("limit must be a whole number from 1 to {LIMIT_MAX}")]
    Limit,
    #[error("an append with a body needs a Content-Type, the stream's")]
    NoContentType,
    #[error("the Content-Type is not a media type of at most {CONTENT_TYPE_BYTES_MAX} visible characters")]
    BadContentType,
    #[error("an append needs a body, unless it closes the stream with `Stream-Closed: true`")]
    EmptyBody,
    #[error("the body is not valid JSON: {0}")]
    Json(#[from] JsonError),
    #[error("an empty JSON array holds no messages to append")]
    EmptyArray,
    #[error("Stream-Seq must have 1 to {SEQ_BYTES_MAX} bytes")]
    Seq,
    #[error("Producer-Id, Producer-Epoch and Producer-Seq go together: send all three or none")]
    ProducerIncomplete,
    #[error("Producer-Id must have 1 to {PRODUCER_ID_BYTES_MAX} bytes")]
    ProducerId,
    #[error("{0} must be a whole number up to {PRODUCER_NUMBER_MAX}, in digits")]
    ProducerNumber(&'static str),
    #[error("a new producer epoch must start at Producer-Seq 0, not {0}")]
    MidEpoch(u64),
    #[error("Stream-Forked-From must be the path of a stream under `{prefix}`: {why}")]
    ForkedFrom { prefix: Box<str>, why: &'static str },
    #[error("{0} needs Stream-Forked-From")]
    ForkHeaderAlone(&'static str),
    #[error("Stream-Fork-Offset is not an offset of the source; send a Stream-Next-Offset that the source gave")]
    ForkOffset,
    #[error("Stream-Fork-Sub-Offset must be a whole number, in digits without leading zeros")]
    SubOffset,
    #[error("Stream-Fork-Sub-Offset above 0 needs a Stream-Fork-Offset")]
    SubOffsetAlone,
    #[error("Stream-Fork-Sub-Offset goes past the next message, or past the source's end")]
    SubOffsetOvershoot,

    // 403
    #[error("Producer-Epoch {given} is stale: epoch {current} has begun")]
    StaleEpoch { given: u64, current: u64 },

    // 404, 405, 410
    #[error("there is no stream of that name")]
    NotFound,
    #[error("the stream of Stream-Forked-From does not exist")]
    SourceNotFound,
    #[error("the path is not that of a stream: paths of streams begin with `{0}`")]
    NotUnderPrefix(Box<str>),
    #[error("streams take GET, HEAD, PUT, POST, DELETE and OPTIONS")]
    Method,
    #[error("the stream was deleted; its forks live on")]
    Gone,
    #[error("the offset is before the earliest retained position, {start}", start = text(*start))]
    Trimmed { start: Position },

    // 409
    #[error("the stream is closed")]
    Closed { tail: Position },
    #[error("the stream's content type is {0}")]
    ContentType(Box<str>),
    // Official clients recognise this conflict by its first two words.
    #[error("Sequence conflict: Stream-Seq must be greater than the last one, comparing bytes")]
    SeqRegression,
    #[error("Producer-Seq {received} leaves a gap: {expected} is expected")]
    Gap { expected: u64, received: u64 },
    #[error("the stream exists with another configuration: {0} differs")]
    Exists(&'static str),
    #[error("the name belongs to a deleted stream that still has forks; delete them first")]
    NameKept,
    #[error("the source was deleted; fork one of its forks instead")]
    SourceGone,
    #[error(
        "replicated streams are in a bucket, and this server has none: start it with --store, or ask for `durable`"
    )]
    NoStore,
    #[error("a fork has its source's durability, {0}; leave Stream-Durability out")]
    ForkDurability(&'static str),

    // 412
    #[error("If-Match does not name the stream's tail, which is {tail}", tail = text(*tail))]
    Moved { tail: Position },
    #[error("the stream exists, and If-None-Match: * asks for a new one")]
    ExistsAlready { tail: Position },

    // 413, 429
    #[error("the body is too large: {len} bytes in one frame, at most {max} are possible")]
    TooLarge { len: usize, max: usize },
    #[error("the stream has reached its limit of {0} producers; reuse an id or use another stream")]
    TooManyProducers(usize),

    // 500, 501, 507
    #[error("stored content of `{name}` is damaged from {} to {}: {what}", text(*start), text(*end))]
    Corrupt { name: Box<str>, start: Position, end: Position, what: String },
    #[error("internal error: {0}")]
    Internal(String),
    #[error("`__ds` is reserved for the protocol's own routes, and this is none of them")]
    Reserved,
    #[error("the limit of {0} streams is reached: delete some, or raise max_streams")]
    TooManyStreams(u64),

    // 503
    #[error("too many reads or lists are under way; retry in a second")]
    Busy,
    #[error("answers that clients do not take hold too much memory; retry in a second")]
    Unsent,
    #[error("{0}")]
    JournalFull(String),
    #[error("{0}")]
    NoSpace(String),
    #[error("{0}")]
    Stopped(String),
    #[error("{0}")]
    Io(String),
    #[error("the bucket has not answered since the start, and may have the stream; retry in a second")]
    StoreAway,
    /// The unit goes to another node. For nodes only.
    #[error("the unit of the stream goes to another node; retry in a second")]
    UnitLeft,
    /// Another unit is the home of the name. For nodes only.
    #[error("another unit has this name")]
    Elsewhere(Home),
    #[error("the stream is replaced too often just now; retry in a second")]
    Contended,
}

fn text(position: Position) -> String {
    String::from_utf8_lossy(&position.to_text()).into_owned()
}

/// The tag that names a stream by its tail, for `If-Match`.
pub(crate) fn quoted(tail: Position) -> [u8; OFFSET_BYTES + 2] {
    let mut tag = [b'"'; OFFSET_BYTES + 2];
    tag[1..=OFFSET_BYTES].copy_from_slice(&tail.to_text());
    tag
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.mapping().0
    }

    /// Short and stable, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.mapping().1
    }

    fn mapping(&self) -> (u16, &'static str) {
        use Refusal as R;
        match self {
            R::Name(_) => (400, "bad_name"),
            R::RepeatedParameter(_) => (400, "repeated_parameter"),
            R::RepeatedHeader(_) => (400, "repeated_header"),
            R::Live => (400, "bad_live"),
            R::OffsetRequired => (400, "offset_required"),
            R::Offset => (400, "bad_offset"),
            R::OffsetStale => (400, "stale_offset"),
            R::OffsetBeyond { .. } => (400, "offset_beyond_tail"),
            R::LastEventId => (400, "bad_last_event_id"),
            R::OffsetInside => (400, "offset_inside_message"),
            R::Ttl => (400, "bad_ttl"),
            R::ExpiresAt => (400, "bad_expires_at"),
            R::TtlAndExpiresAt => (400, "ttl_and_expires_at"),
            R::Retention(_) => (400, "bad_retention"),
            R::Durability => (400, "bad_durability"),
            R::Limit => (400, "bad_limit"),
            R::NoContentType => (400, "content_type_required"),
            R::BadContentType => (400, "bad_content_type"),
            R::EmptyBody => (400, "empty_body"),
            R::Json(_) => (400, "bad_json"),
            R::EmptyArray => (400, "empty_array"),
            R::Seq => (400, "bad_seq"),
            R::ProducerIncomplete => (400, "producer_headers_incomplete"),
            R::ProducerId => (400, "bad_producer_id"),
            R::ProducerNumber(_) => (400, "bad_producer_number"),
            R::MidEpoch(_) => (400, "epoch_starts_at_zero"),
            R::ForkedFrom { .. } => (400, "bad_forked_from"),
            R::ForkHeaderAlone(_) => (400, "forked_from_required"),
            R::ForkOffset => (400, "bad_fork_offset"),
            R::SubOffset => (400, "bad_fork_sub_offset"),
            R::SubOffsetAlone => (400, "fork_offset_required"),
            R::SubOffsetOvershoot => (400, "fork_sub_offset_overshoot"),
            R::StaleEpoch { .. } => (403, "stale_epoch"),
            R::NotFound => (404, "not_found"),
            R::SourceNotFound => (404, "source_not_found"),
            R::NotUnderPrefix(_) => (404, "not_a_stream"),
            R::Method => (405, "method_not_allowed"),
            R::Gone => (410, "gone"),
            R::Trimmed { .. } => (410, "offset_trimmed"),
            R::Closed { .. } => (409, "closed"),
            R::ContentType(_) => (409, "content_type_mismatch"),
            R::SeqRegression => (409, "seq_regression"),
            R::Gap { .. } => (409, "producer_gap"),
            R::Exists(_) => (409, "exists_differently"),
            R::NameKept => (409, "name_kept_by_forks"),
            R::SourceGone => (409, "source_gone"),
            R::ForkDurability(_) => (409, "fork_durability"),
            R::NoStore => (409, "no_store"),
            R::Moved { .. } => (412, "tail_moved"),
            R::ExistsAlready { .. } => (412, "exists"),
            R::TooLarge { .. } => (413, "too_large"),
            R::TooManyProducers(_) => (429, "too_many_producers"),
            R::Corrupt { .. } => (500, "corrupt"),
            R::Internal(_) => (500, "internal"),
            R::Reserved => (501, "reserved"),
            R::TooManyStreams(_) => (507, "too_many_streams"),
            R::Busy => (503, "busy"),
            R::Unsent => (503, "unsent_full"),
            R::JournalFull(_) => (503, "journal_full"),
            R::NoSpace(_) => (503, "disk_full"),
            R::Stopped(_) => (503, "journal_stopped"),
            R::Io(_) => (503, "read_failed"),
            R::UnitLeft => (503, "unit_left"),
            R::Elsewhere(_) => (421, "elsewhere"),
            R::StoreAway => (503, "store_away"),
            R::Contended => (503, "contended"),
        }
    }

    /// Calls `put` with the header lines that belong to this refusal alone.
    pub(crate) fn headers(&self, mut put: impl FnMut(&'static [u8], &[u8])) {
        let mut digits = itoa::Buffer::new();
        match self {
            Self::StaleEpoch { current, .. } => put(b"Producer-Epoch: ", digits.format(*current).as_bytes()),
            Self::Gap { expected, received } => {
                put(b"Producer-Expected-Seq: ", digits.format(*expected).as_bytes());
                put(b"Producer-Received-Seq: ", digits.format(*received).as_bytes());
            }
            Self::Closed { tail } => {
                put(b"Stream-Closed: ", b"true");
                put(b"Stream-Next-Offset: ", &tail.to_text());
            }
            Self::Trimmed { start } => put(b"Stream-Earliest-Offset: ", &start.to_text()),
            Self::Moved { tail } | Self::ExistsAlready { tail } => {
                put(b"ETag: ", &quoted(*tail));
                put(b"Stream-Next-Offset: ", &tail.to_text());
            }
            Self::Elsewhere(home) => {
                put(b"Thalweg-Unit: ", digits.format(home.unit).as_bytes());
                put(b"Thalweg-Grant: ", digits.format(home.grant).as_bytes());
            }
            Self::UnitLeft => put(b"Thalweg-Again: ", b"1"),
            Self::Method => put(b"Allow: ", b"GET, HEAD, PUT, POST, DELETE, OPTIONS"),
            _ => {}
        }
        match self.status() {
            429 => put(b"Retry-After: ", b"60"),
            503 => put(b"Retry-After: ", b"1"),
            _ => {}
        }
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Refused(AppendError::TooLarge { len, max }) => Self::TooLarge { len, max },
            CommitError::Refused(full @ AppendError::Full { .. }) => Self::JournalFull(full.to_string()),
            ids @ CommitError::Ids(_) => Self::JournalFull(ids.to_string()),
            CommitError::Refused(AppendError::NoSpace) => Self::NoSpace(AppendError::NoSpace.to_string()),
            CommitError::Refused(AppendError::Poisoned(poisoned)) => Self::Stopped(poisoned.to_string()),
            other => Self::Internal(other.to_string()),
        }
    }
}

impl Refusal {
    /// The refusal for a failed read of the stream `name`; `at` adds the incarnation to a position.
    pub(crate) fn of_read(error: &ReadError, name: &str, at: impl Fn(Offset) -> Position) -> Self {
        match error {
            ReadError::Missing(_) => Self::NotFound,
            ReadError::InsideMessage { .. } => Self::OffsetInside,
            ReadError::BeyondTail { tail, .. } => Self::OffsetBeyond { tail: at(*tail) },
            ReadError::Trimmed { start, .. } => Self::Trimmed { start: at(*start) },
            ReadError::Corrupt { offset, end, what, .. } => {
                Self::Corrupt { name: name.into(), start: at(*offset), end: at(*end), what: what.clone() }
            }
            ReadError::Io { .. } => Self::Io(error.to_string()),
            ReadError::Bug { .. } => Self::Internal(error.to_string()),
        }
    }
}

/// A refusal, and the state that must be durable before it may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The refusal.
    pub refusal: Refusal,
    /// The refusal is sent when the journal has come so far.
    pub after: Until,
}

impl Refusal {
    /// The refusal, to be sent once `after` is reached.
    #[must_use]
    pub fn after(self, after: impl Into<Until>) -> Refused {
        Refused { refusal: self, after: after.into() }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        refusal.after(Until::NOW)
    }
}
