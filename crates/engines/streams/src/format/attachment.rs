//! A stream's state as bytes, for checkpoints and streams at rest. See `docs/format/streams.md`.

use super::content_type::ContentType;
use super::offset::Position;
use crate::serve::Home;
use crate::state::lifetime::Lifetime;
use crate::state::producers::Producers;
use crate::state::retention::{Mark, Marks, Retention};
use crate::state::{Closed, Config, Fork, StreamState};
use thalweg_base::{DecodeError, Decoder, Encoder, Level, Lsn, Millis, Offset};

const VERSION: u8 = 1;

const CLOSED: u64 = 1;
const CLOSED_BY: u64 = 2;
const LAST_SEQ: u64 = 4;
const PRODUCERS: u64 = 8;
const FORK: u64 = 16;
const FORKS: u64 = 32;
const SOFT_DELETED: u64 = 64;
const RETENTION: u64 = 128;
const MARKS: u64 = 256;
const DURABILITY: u64 = 512;
const HOME: u64 = 1024;
const KNOWN: u64 = 2047;

pub(crate) fn encode(state: &StreamState, out: &mut Vec<u8>) {
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    let closed_by = state.closed.and_then(|closed| closed.by);
    let producers = state.producers.as_slice();
    out.put_u8(VERSION);
    state.content_type.encode(out);
    encode_lifetime(state.lifetime, out);
    if state.lifetime.is_sliding() {
        out.put_varint(state.touched.0);
    }
    out.put_varint(
        flag(state.closed.is_some(), CLOSED)
            | flag(closed_by.is_some(), CLOSED_BY)
            | flag(state.last_seq.is_some(), LAST_SEQ)
            | flag(!producers.is_empty(), PRODUCERS)
            | flag(state.fork.is_some(), FORK)
            | flag(state.forks > 0, FORKS)
            | flag(state.soft_deleted, SOFT_DELETED)
            | flag(!state.retention.is_unlimited(), RETENTION)
            | flag(!state.marks.as_slice().is_empty(), MARKS)
            | flag(state.durability.is_some(), DURABILITY)
            | flag(state.home.is_some(), HOME),
    );
    if let Some(place) = closed_by {
        out.put_varint(place.into());
    }
    if let Some(seq) = &state.last_seq {
        out.put_bytes(seq);
    }
    if !producers.is_empty() {
        out.put_varint(producers.len() as u64);
        for producer in producers {
            out.put_bytes(&producer.id);
            out.put_varint(producer.epoch);
            out.put_varint(producer.seq);
        }
    }
    if let Some(fork) = &state.fork {
        encode_fork(fork, out);
    }
    if state.forks > 0 {
        out.put_varint(state.forks.into());
    }
    if !state.retention.is_unlimited() {
        encode_retention(state.retention, out);
    }
    if !state.marks.as_slice().is_empty() {
        encode_marks(&state.marks, out);
    }
    if let Some(durability) = state.durability {
        encode_durability(durability, out);
    }
    if let Some(home) = state.home {
        encode_home(home, out);
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Result<StreamState, DecodeError> {
    let mut d = Decoder::new(bytes);
    match d.u8()? {
        VERSION => {}
        got => return Err(DecodeError::Unknown { what: "stream state version", got: got.into() }),
    }
    let content_type = ContentType::decode(&mut d)?;
    let lifetime = decode_lifetime(&mut d)?;
    let touched = if lifetime.is_sliding() { Millis(d.varint()?) } else { Millis::ZERO };
    let config = Config {
        content_type,
        lifetime,
        created: touched,
        closed: false,
        fork: None,
        retention: Retention::default(),
        durability: None,
        home: None,
    };
    let mut state = StreamState::new(config, Lsn::ZERO);
    // Uses within the slack may have gone unrecorded: rather keep a stream for too long.
    state.seen = touched.plus(lifetime.slack_ms());
    state.touched_at = Lsn::ZERO;
    let flags = d.varint()?;
    if flags & !KNOWN != 0 {
        return Err(DecodeError::Unknown { what: "stream state flags", got: flags });
    }
    let has = |flag: u64| flags & flag != 0;
    if has(CLOSED) {
        let by = if has(CLOSED_BY) { Some(d.varint_u32()?) } else { None };
        state.closed = Some(Closed { by });
    }
    if has(LAST_SEQ) {
        state.last_seq = Some(d.bytes()?.into());
    }
    if has(PRODUCERS) {
        state.producers = decode_producers(&mut d)?;
    }
    if has(FORK) {
        state.fork = Some(Box::new(decode_fork(&mut d)?));
    }
    if has(FORKS) {
        state.forks = d.varint_u32()?;
    }
    state.soft_deleted = has(SOFT_DELETED);
    if has(RETENTION) {
        state.retention = decode_retention(&mut d)?;
    }
    if has(MARKS) {
        state.marks = decode_marks(&mut d)?;
    }
    if has(DURABILITY) {
        state.durability = Some(decode_durability(&mut d)?);
    }
    if has(HOME) {
        state.home = Some(decode_home(&mut d)?);
    }
    d.end()?;
    Ok(state)
}

fn decode_producers(d: &mut Decoder<'_>) -> Result<Producers, DecodeError> {
    let mut producers = Producers::default();
    for _ in 0..d.varint()? {
        producers.add(d.bytes()?, d.varint()?, d.varint()?);
    }
    Ok(producers)
}

pub(super) fn encode_lifetime(lifetime: Lifetime, out: &mut Vec<u8>) {
    match lifetime {
        Lifetime::Unlimited => out.put_u8(0),
        Lifetime::Idle { secs } => {
            out.put_u8(1);
            out.put_varint(secs);
        }
        Lifetime::Until(at) => {
            out.put_u8(2);
            out.put_varint(at.0);
        }
    }
}

pub(super) fn decode_lifetime(d: &mut Decoder<'_>) -> Result<Lifetime, DecodeError> {
    match d.u8()? {
        0 => Ok(Lifetime::Unlimited),
        1 => Ok(Lifetime::Idle { secs: d.varint()? }),
        2 => Ok(Lifetime::Until(Millis(d.varint()?))),
        got => Err(DecodeError::Unknown { what: "lifetime", got: got.into() }),
    }
}

/// Zero means no bound.
pub(super) fn encode_retention(retention: Retention, out: &mut Vec<u8>) {
    out.put_varint(retention.bytes.unwrap_or(0));
    out.put_varint(retention.secs.unwrap_or(0));
}

pub(super) fn decode_retention(d: &mut Decoder<'_>) -> Result<Retention, DecodeError> {
    let mut bound = || Ok(Some(d.varint()?).filter(|bound| *bound > 0));
    Ok(Retention { bytes: bound()?, secs: bound()? })
}

pub(super) fn encode_durability(durability: Level, out: &mut Vec<u8>) {
    out.put_u8(match durability {
        Level::Durable => 1,
        Level::Buffered => 2,
        Level::Replicated => 3,
    });
}

pub(super) fn decode_durability(d: &mut Decoder<'_>) -> Result<Level, DecodeError> {
    match d.u8()? {
        1 => Ok(Level::Durable),
        2 => Ok(Level::Buffered),
        3 => Ok(Level::Replicated),
        got => Err(DecodeError::Unknown { what: "durability", got: got.into() }),
    }
}

pub(super) fn encode_home(home: Home, out: &mut Vec<u8>) {
    out.put_varint(home.unit);
    out.put_varint(home.grant);
}

pub(super) fn decode_home(d: &mut Decoder<'_>) -> Result<Home, DecodeError> {
    Ok(Home { unit: d.varint()?, grant: d.varint()? })
}

/// The first in full, the others as distances.
fn encode_marks(marks: &Marks, out: &mut Vec<u8>) {
    out.put_varint(marks.as_slice().len() as u64);
    let mut last = Mark { upto: Offset::ZERO, time: Millis::ZERO };
    for mark in marks.as_slice() {
        out.put_varint(mark.upto.since(last.upto));
        out.put_varint(mark.time.since(last.time));
        last = *mark;
    }
}

fn decode_marks(d: &mut Decoder<'_>) -> Result<Marks, DecodeError> {
    let (mut marks, mut upto, mut time) = (Marks::default(), 0u64, 0u64);
    for _ in 0..d.varint()? {
        upto = upto.checked_add(d.varint()?).ok_or(DecodeError::Range("mark"))?;
        time = time.checked_add(d.varint()?).ok_or(DecodeError::Range("mark"))?;
        marks.push(Mark { upto: Offset(upto), time: Millis(time) });
    }
    Ok(marks)
}

pub(super) fn encode_fork(fork: &Fork, out: &mut Vec<u8>) {
    out.put_u8(u8::from(fork.inherited_lifetime));
    out.put_bytes(fork.source.as_bytes());
    out.put_varint(fork.at.incarnation);
    out.put_varint(fork.at.offset.0);
    out.put_varint(fork.sub_offset);
}

pub(super) fn decode_fork(d: &mut Decoder<'_>) -> Result<Fork, DecodeError> {
    let inherited_lifetime = match d.u8()? {
        0 => false,
        1 => true,
        got => return Err(DecodeError::Unknown { what: "fork flags", got: got.into() }),
    };
    let source = d.str()?.into();
    let at = Position { incarnation: d.varint()?, offset: Offset(d.varint()?) };
    Ok(Fork { source, at, sub_offset: d.varint()?, inherited_lifetime })
}

/// A fuzz target's way in: takes `data` for the state of a stream as the checkpoint has it, and for notes that change
/// one.
#[doc(hidden)]
pub fn fuzz_state(data: &[u8]) {
    use thalweg_log::Attachment;
    if let Ok(mut state) = decode(data) {
        let mut again = Vec::new();
        encode(&state, &mut again);
        let decoded = decode(&again).map(|state| {
            let mut bytes = Vec::new();
            encode(&state, &mut bytes);
            bytes
        });
        assert_eq!(decoded, Ok(again));
        for note in [data, data.get(data.len() / 2..).unwrap_or_default()] {
            // Every note that passes the check can be applied.
            if state.check(note).is_ok() {
                assert_eq!(state.apply(note, thalweg_base::Lsn(9)), Ok(()));
            }
        }
    }
    let _ = StreamState::create(data, thalweg_base::Lsn(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_log::Attachment;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn plain(content_type: &str, lifetime: Lifetime) -> StreamState {
        let content_type = ContentType::parse(content_type.as_bytes()).unwrap();
        let config = Config {
            content_type,
            lifetime,
            created: Millis(1_000),
            closed: false,
            fork: None,
            retention: Retention::default(),
            durability: None,
            home: None,
        };
        StreamState::new(config, Lsn::ZERO)
    }

    fn full() -> StreamState {
        let mut state = plain("a/b", Lifetime::Idle { secs: 60 });
        state.producers.add(b"p", 1, 300);
        state.closed = Some(Closed { by: Some(0) });
        state.last_seq = Some(b"09".as_slice().into());
        state.forks = 3;
        state.soft_deleted = true;
        state.fork = Some(Box::new(Fork {
            source: "src".into(),
            at: Position { incarnation: 64, offset: Offset(5) },
            sub_offset: 1,
            inherited_lifetime: false,
        }));
        state
    }

    #[test]
    fn the_bytes_are_pinned() {
        let mut out = Vec::new();
        encode(&full(), &mut out);
        assert_eq!(hex(&out), "010003612f62013ce8077f0002303901017001ac02000373726340050103");
        let mut out = Vec::new();
        encode(&plain("application/json", Lifetime::Unlimited), &mut out);
        assert_eq!(hex(&out), "01010000");
    }

    #[test]
    fn what_is_retained_is_pinned() {
        let mut state = plain("text/plain", Lifetime::Unlimited);
        state.retention = Retention { bytes: Some(300), secs: None };
        state.marks.push(Mark { upto: Offset(5), time: Millis(1_000) });
        state.marks.push(Mark { upto: Offset(7), time: Millis(1_300) });
        let mut out = Vec::new();
        encode(&state, &mut out);
        assert_eq!(hex(&out), "010200".to_owned() + "8003" + "ac0200" + "0205e80702ac02");
        assert_eq!(decode(&out), Ok(state));
        for cut in 0..out.len() {
            assert!(decode(&out[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn what_is_promised_is_pinned() {
        for (durability, byte) in [(Level::Durable, "01"), (Level::Buffered, "02"), (Level::Replicated, "03")] {
            let mut state = plain("text/plain", Lifetime::Unlimited);
            state.durability = Some(durability);
            let mut out = Vec::new();
            encode(&state, &mut out);
            assert_eq!(hex(&out), "0102008004".to_owned() + byte);
            assert_eq!(decode(&out), Ok(state));
            assert!(decode(&out[..out.len() - 1]).is_err());
        }
    }

    #[test]
    fn an_idle_stream_with_one_producer_is_small() {
        let mut state = plain("application/json", Lifetime::Unlimited);
        state.producers.add(b"0190b6a2-7b5c-7c3e-9a43-1f2f6e0f7a11", 3, 1_000_000);
        let mut out = Vec::new();
        encode(&state, &mut out);
        assert!(out.len() < 50, "{} bytes", out.len());
    }

    #[test]
    fn state_round_trips_and_errs_towards_keeping() {
        let mut state = full();
        let mut out = Vec::new();
        encode(&state, &mut out);
        state.seen = Millis(1_000 + 6_000);
        assert_eq!(StreamState::decode(&out), Ok(state));
        for cut in 0..out.len() {
            assert!(StreamState::decode(&out[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes: Vec<u8>) {
            fuzz_state(&bytes);
            bytes.splice(0..0, [VERSION]);
            fuzz_state(&bytes);
        }

        #[test]
        fn what_decodes_encodes_to_itself_again(mut bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            bytes.splice(0..0, [VERSION]);
            if let Ok(state) = StreamState::decode(&bytes) {
                let mut out = Vec::new();
                encode(&state, &mut out);
                let mut again = StreamState::decode(&out).unwrap();
                again.seen = state.seen;
                prop_assert_eq!(again, state);
            }
        }
    }
}
