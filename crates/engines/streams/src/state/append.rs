//! Decides about appends: the order of checks is the protocol's (sections 5.2 and 5.2.1).

use super::StreamState;
use super::producers::{Claim, Verdict};
use crate::format::note::Note;
use thalweg_base::Millis;

/// An append as far as the stream's state matters.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// Whether the request has no content.
    pub empty: bool,
    /// `Stream-Closed: true`.
    pub close: bool,
    /// `Stream-Seq`.
    pub seq: Option<&'a [u8]>,
    /// The producer headers.
    pub claim: Option<Claim<'a>>,
    /// The tail differs from the request's `If-Match`.
    pub moved: bool,
}

/// Decision about an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Accept it. `producer` is its producer's place.
    Accept { producer: Option<u32> },
    /// The append was accepted before; `seq` is the producer's highest accepted sequence number.
    Duplicate { seq: u64 },
    /// The stream is closed already, and the request asks for nothing else.
    AlreadyClosed,
    /// Refuse it.
    Refuse(Conflict),
}

/// Why the stream's state does not allow an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The stream is closed.
    Closed,
    /// Content without a type.
    NoContentType,
    /// The type is not that of the stream.
    ContentType,
    /// Neither content nor an end.
    Empty,
    /// The producer's epoch is below its last one, `epoch`.
    Stale { epoch: u64 },
    /// The producer's number is above the expected one.
    Gap { expected: u64 },
    /// A new epoch that does not begin at 0.
    MidEpoch,
    /// A new producer beyond the bound.
    TooManyProducers,
    /// The tail is another than expected.
    Moved,
    /// `Stream-Seq` is not above the last one.
    Seq,
}

/// Decides. Nothing changes before [`notes`] are applied.
#[must_use]
pub fn judge(state: &StreamState, attempt: &Attempt<'_>, producers_max: usize) -> Outcome {
    if state.closed.is_some() {
        return judge_closed(state, attempt);
    }
    if attempt.empty {
        if !attempt.close {
            return Outcome::Refuse(Conflict::Empty);
        }
    } else {
        match attempt.content_type {
            None => return Outcome::Refuse(Conflict::NoContentType),
            Some(given) if !state.content_type.matches(given) => return Outcome::Refuse(Conflict::ContentType),
            Some(_) => {}
        }
    }
    let mut producer = None;
    if let Some(claim) = attempt.claim {
        match state.producers.judge(claim, producers_max) {
            Verdict::New { known } => producer = Some(known.unwrap_or(state.producers.as_slice().len() as u32)),
            Verdict::Duplicate { seq } => return Outcome::Duplicate { seq },
            Verdict::Stale { epoch } => return Outcome::Refuse(Conflict::Stale { epoch }),
            Verdict::Gap { expected } => return Outcome::Refuse(Conflict::Gap { expected }),
            Verdict::MidEpoch => return Outcome::Refuse(Conflict::MidEpoch),
            Verdict::TooMany => return Outcome::Refuse(Conflict::TooManyProducers),
        }
    }
    // After the producer check: a retry whose first copy has moved the tail is a duplicate, not a conflict.
    if attempt.moved {
        return Outcome::Refuse(Conflict::Moved);
    }
    if let (Some(seq), Some(last)) = (attempt.seq, &state.last_seq)
        && seq <= &last[..]
    {
        return Outcome::Refuse(Conflict::Seq);
    }
    Outcome::Accept { producer }
}

fn judge_closed(state: &StreamState, attempt: &Attempt<'_>) -> Outcome {
    match attempt.claim {
        Some(claim) => match state.closer() {
            Some(closer) if *closer.id == *claim.id && (closer.epoch, closer.seq) == (claim.epoch, claim.seq) => {
                Outcome::Duplicate { seq: claim.seq }
            }
            _ => Outcome::Refuse(Conflict::Closed),
        },
        None if attempt.empty && attempt.close && attempt.moved => Outcome::Refuse(Conflict::Moved),
        None if attempt.empty && attempt.close => Outcome::AlreadyClosed,
        None => Outcome::Refuse(Conflict::Closed),
    }
}

/// The notes of an accepted append: none, for a plain one to a stream that does not expire.
pub fn notes(state: &StreamState, attempt: &Attempt<'_>, producer: Option<u32>, now: Millis, out: &mut Vec<u8>) {
    if let (Some(claim), Some(place)) = (attempt.claim, producer) {
        let Claim { id, epoch, seq } = claim;
        if state.producers.get(place).is_some() {
            Note::Accepted { place, epoch, seq }.encode(out);
        } else {
            Note::NewProducer { id, epoch, seq }.encode(out);
        }
    }
    if let Some(seq) = attempt.seq {
        Note::Seq(seq).encode(out);
    }
    if attempt.close {
        Note::Closed { by: producer }.encode(out);
    }
    if state.lifetime.is_sliding() && now.since(state.touched) > state.lifetime.slack_ms() {
        Note::Touched(now).encode(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::content_type::ContentType;
    use crate::state::Config;
    use crate::state::lifetime::Lifetime;
    use crate::state::retention::Retention;
    use thalweg_base::Lsn;
    use thalweg_log::Attachment;

    const PLAIN: Attempt<'static> =
        Attempt { content_type: Some(b"text/plain"), empty: false, close: false, seq: None, claim: None, moved: false };
    const CLOSE: Attempt<'static> = Attempt { content_type: None, empty: true, close: true, ..PLAIN };

    fn stream() -> StreamState {
        let content_type = ContentType::parse(b"text/plain").unwrap();
        let config = Config {
            content_type,
            lifetime: Lifetime::Unlimited,
            created: Millis(0),
            closed: false,
            fork: None,
            retention: Retention::default(),
            durability: None,
            home: None,
        };
        StreamState::new(config, Lsn(1))
    }

    fn take(state: &mut StreamState, attempt: &Attempt<'_>) -> Outcome {
        let outcome = judge(state, attempt, 2);
        if let Outcome::Accept { producer } = outcome {
            let mut note = Vec::new();
            notes(state, attempt, producer, Millis(0), &mut note);
            if !note.is_empty() {
                state.apply(&note, Lsn(2)).unwrap();
            }
        }
        outcome
    }

    fn by(id: &'static [u8], epoch: u64, seq: u64) -> Option<Claim<'static>> {
        Some(Claim { id, epoch, seq })
    }

    #[test]
    fn a_plain_append_needs_no_note() {
        let mut note = Vec::new();
        notes(&stream(), &PLAIN, None, Millis(5), &mut note);
        assert!(note.is_empty());
    }

    #[test]
    fn closing_is_idempotent_and_final() {
        let mut state = stream();
        assert_eq!(take(&mut state, &CLOSE), Outcome::Accept { producer: None });
        assert_eq!(take(&mut state, &CLOSE), Outcome::AlreadyClosed);
        assert_eq!(take(&mut state, &PLAIN), Outcome::Refuse(Conflict::Closed));
        assert_eq!(take(&mut state, &Attempt { close: true, ..PLAIN }), Outcome::Refuse(Conflict::Closed));
    }

    #[test]
    fn closed_wins_over_content_type() {
        let mut state = stream();
        take(&mut state, &CLOSE);
        let other = Attempt { content_type: Some(b"a/b"), ..PLAIN };
        assert_eq!(take(&mut state, &other), Outcome::Refuse(Conflict::Closed));
    }

    #[test]
    fn only_the_closing_tuple_is_a_duplicate() {
        let mut state = stream();
        take(&mut state, &Attempt { claim: by(b"p", 0, 0), ..PLAIN });
        take(&mut state, &Attempt { claim: by(b"p", 0, 1), close: true, ..PLAIN });
        let again = |claim| Attempt { claim, ..CLOSE };
        assert_eq!(take(&mut state, &again(by(b"p", 0, 1))), Outcome::Duplicate { seq: 1 });
        assert_eq!(take(&mut state, &again(by(b"p", 0, 0))), Outcome::Refuse(Conflict::Closed));
        assert_eq!(take(&mut state, &again(by(b"q", 0, 1))), Outcome::Refuse(Conflict::Closed));
    }

    #[test]
    fn a_duplicate_beats_the_stream_seq() {
        let mut state = stream();
        let first = Attempt { claim: by(b"p", 0, 0), seq: Some(b"5"), ..PLAIN };
        assert_eq!(take(&mut state, &first), Outcome::Accept { producer: Some(0) });
        assert_eq!(take(&mut state, &first), Outcome::Duplicate { seq: 0 });
        let next = Attempt { claim: by(b"p", 0, 1), ..first };
        assert_eq!(take(&mut state, &next), Outcome::Refuse(Conflict::Seq));
    }

    #[test]
    fn a_moved_tail_is_a_conflict_unless_it_is_a_retry() {
        let mut state = stream();
        let first = Attempt { claim: by(b"p", 0, 0), seq: Some(b"5"), ..PLAIN };
        take(&mut state, &first);
        assert_eq!(take(&mut state, &Attempt { moved: true, ..first }), Outcome::Duplicate { seq: 0 });
        let next = Attempt { claim: by(b"p", 0, 1), moved: true, ..first };
        assert_eq!(take(&mut state, &next), Outcome::Refuse(Conflict::Moved), "checked before Stream-Seq");
        assert_eq!(take(&mut state, &Attempt { moved: true, ..CLOSE }), Outcome::Refuse(Conflict::Moved));
        take(&mut state, &CLOSE);
        assert_eq!(take(&mut state, &CLOSE), Outcome::AlreadyClosed);
        assert_eq!(take(&mut state, &Attempt { moved: true, ..CLOSE }), Outcome::Refuse(Conflict::Moved));
        assert_eq!(take(&mut state, &Attempt { moved: true, ..PLAIN }), Outcome::Refuse(Conflict::Closed));
    }

    #[test]
    fn stream_seq_compares_bytes() {
        let mut state = stream();
        assert_eq!(take(&mut state, &Attempt { seq: Some(b"2"), ..PLAIN }), Outcome::Accept { producer: None });
        assert_eq!(take(&mut state, &Attempt { seq: Some(b"10"), ..PLAIN }), Outcome::Refuse(Conflict::Seq));
        assert_eq!(take(&mut state, &Attempt { seq: Some(b"2"), ..PLAIN }), Outcome::Refuse(Conflict::Seq));
        assert_eq!(take(&mut state, &Attempt { seq: Some(b"a"), ..PLAIN }), Outcome::Accept { producer: None });
    }

    #[test]
    fn a_body_needs_the_streams_media_type() {
        let state = stream();
        let with = |content_type| judge(&state, &Attempt { content_type, ..PLAIN }, 2);
        assert_eq!(with(None), Outcome::Refuse(Conflict::NoContentType));
        assert_eq!(with(Some(b"a/b")), Outcome::Refuse(Conflict::ContentType));
        assert_eq!(with(Some(b"TEXT/plain;charset=x")), Outcome::Accept { producer: None });
    }

    #[test]
    fn producers_are_bounded() {
        let mut state = stream();
        take(&mut state, &Attempt { claim: by(b"p", 0, 0), ..PLAIN });
        take(&mut state, &Attempt { claim: by(b"q", 0, 0), ..PLAIN });
        let third = Attempt { claim: by(b"r", 0, 0), ..PLAIN };
        assert_eq!(take(&mut state, &third), Outcome::Refuse(Conflict::TooManyProducers));
    }
}
