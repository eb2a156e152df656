//! Notes: small changes of a stream's state, in the form of journal frames. See `docs/format/streams.md`.
//!
//! A stream's first note is its configuration. Every later one is a list of entries, each a tag byte and its fields.

use super::attachment::{
    decode_durability, decode_fork, decode_home, decode_lifetime, decode_retention, encode_durability, encode_fork,
    encode_home, encode_lifetime, encode_retention,
};
use super::content_type::ContentType;
use crate::serve::Home;
use crate::state::Config;
use crate::state::lifetime::Lifetime;
use crate::state::retention::{Mark, Retention};
use thalweg_base::{DecodeError, Decoder, Encoder, Millis, Offset};

const VERSION: u8 = 1;

const NEW_PRODUCER: u8 = 1;
const ACCEPTED: u8 = 2;
const CLOSED: u8 = 3;
const TOUCHED: u8 = 4;
const SEQ: u8 = 5;
const SOFT_DELETED: u8 = 6;
const FORKED: u8 = 7;
const RELEASED: u8 = 8;
const MARK: u8 = 9;
const TRIMMED: u8 = 10;
const HOME: u8 = 11;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// A producer's first append. It takes the next place.
    NewProducer { id: &'a [u8], epoch: u64, seq: u64 },
    /// An append of the producer in that place.
    Accepted { place: u32, epoch: u64, seq: u64 },
    /// Closed, perhaps by the producer in that place.
    Closed { by: Option<u32> },
    /// Used at that time.
    Touched(Millis),
    /// The last `Stream-Seq`.
    Seq(&'a [u8]),
    /// The stream was deleted and lives on for its forks.
    SoftDeleted,
    /// A fork of the stream was made.
    Forked,
    /// A fork of the stream was removed.
    Released,
    /// How old content is.
    Mark(Mark),
    /// Content below this offset is trimmed.
    Trimmed(Offset),
    /// The home of a name is there now.
    Home(Home),
}

impl Note<'_> {
    /// Appends the stored form: `docs/format/streams.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Note::NewProducer { id, epoch, seq } => {
                out.put_u8(NEW_PRODUCER);
                out.put_bytes(id);
                out.put_varint(epoch);
                out.put_varint(seq);
            }
            Note::Accepted { place, epoch, seq } => {
                out.put_u8(ACCEPTED);
                out.put_varint(place.into());
                out.put_varint(epoch);
                out.put_varint(seq);
            }
            Note::Closed { by } => {
                out.put_u8(CLOSED);
                out.put_varint(by.map_or(0, |place| u64::from(place) + 1));
            }
            Note::Touched(when) => {
                out.put_u8(TOUCHED);
                out.put_varint(when.0);
            }
            Note::Seq(seq) => {
                out.put_u8(SEQ);
                out.put_bytes(seq);
            }
            Note::SoftDeleted => out.put_u8(SOFT_DELETED),
            Note::Forked => out.put_u8(FORKED),
            Note::Released => out.put_u8(RELEASED),
            Note::Mark(Mark { upto, time }) => {
                out.put_u8(MARK);
                out.put_varint(upto.0);
                out.put_varint(time.0);
            }
            Note::Trimmed(start) => {
                out.put_u8(TRIMMED);
                out.put_varint(start.0);
            }
            Note::Home(home) => {
                out.put_u8(HOME);
                encode_home(home, out);
            }
        }
    }
}

/// Calls `f` with every entry of a note.
pub fn decode(note: &[u8], mut f: impl FnMut(Note<'_>) -> Result<(), DecodeError>) -> Result<(), DecodeError> {
    let mut d = Decoder::new(note);
    while !d.is_empty() {
        f(match d.u8()? {
            NEW_PRODUCER => Note::NewProducer { id: d.bytes()?, epoch: d.varint()?, seq: d.varint()? },
            ACCEPTED => Note::Accepted { place: d.varint_u32()?, epoch: d.varint()?, seq: d.varint()? },
            CLOSED => Note::Closed { by: d.varint_u32()?.checked_sub(1) },
            TOUCHED => Note::Touched(Millis(d.varint()?)),
            SEQ => Note::Seq(d.bytes()?),
            SOFT_DELETED => Note::SoftDeleted,
            FORKED => Note::Forked,
            RELEASED => Note::Released,
            MARK => Note::Mark(Mark { upto: Offset(d.varint()?), time: Millis(d.varint()?) }),
            TRIMMED => Note::Trimmed(Offset(d.varint()?)),
            HOME => Note::Home(decode_home(&mut d)?),
            got => return Err(DecodeError::Unknown { what: "note", got: got.into() }),
        })?;
    }
    Ok(())
}

const CONFIG_CLOSED: u8 = 1;
const CONFIG_FORK: u8 = 2;
const CONFIG_RETENTION: u8 = 4;
const CONFIG_DURABILITY: u8 = 8;
const CONFIG_HOME: u8 = 16;

/// Appends the note of a stream's creation: `docs/format/streams.md`.
pub fn encode_config(config: &Config, out: &mut Vec<u8>) {
    out.put_u8(VERSION);
    config.content_type.encode(out);
    encode_lifetime(config.lifetime, out);
    if config.lifetime.is_sliding() {
        out.put_varint(config.created.0);
    }
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.put_u8(
        flag(config.closed, CONFIG_CLOSED)
            | flag(config.fork.is_some(), CONFIG_FORK)
            | flag(!config.retention.is_unlimited(), CONFIG_RETENTION)
            | flag(config.durability.is_some(), CONFIG_DURABILITY)
            | flag(config.home.is_some(), CONFIG_HOME),
    );
    if let Some(fork) = &config.fork {
        encode_fork(fork, out);
    }
    if !config.retention.is_unlimited() {
        encode_retention(config.retention, out);
    }
    if let Some(durability) = config.durability {
        encode_durability(durability, out);
    }
    if let Some(home) = config.home {
        encode_home(home, out);
    }
}

/// The configuration of a stream's first note.
pub fn decode_config(note: &[u8]) -> Result<Config, DecodeError> {
    let mut d = Decoder::new(note);
    match d.u8()? {
        VERSION => {}
        got => return Err(DecodeError::Unknown { what: "configuration version", got: got.into() }),
    }
    let content_type = ContentType::decode(&mut d)?;
    let lifetime = decode_lifetime(&mut d)?;
    let created = if matches!(lifetime, Lifetime::Idle { .. }) { Millis(d.varint()?) } else { Millis::ZERO };
    let flags = d.u8()?;
    if flags & !(CONFIG_CLOSED | CONFIG_FORK | CONFIG_RETENTION | CONFIG_DURABILITY | CONFIG_HOME) != 0 {
        return Err(DecodeError::Unknown { what: "configuration flags", got: flags.into() });
    }
    let fork = if flags & CONFIG_FORK != 0 { Some(Box::new(decode_fork(&mut d)?)) } else { None };
    let retention = if flags & CONFIG_RETENTION != 0 { decode_retention(&mut d)? } else { Retention::default() };
    let durability = if flags & CONFIG_DURABILITY != 0 { Some(decode_durability(&mut d)?) } else { None };
    let home = if flags & CONFIG_HOME != 0 { Some(decode_home(&mut d)?) } else { None };
    d.end()?;
    let closed = flags & CONFIG_CLOSED != 0;
    Ok(Config { content_type, lifetime, created, closed, fork, retention, durability, home })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::offset::Position;
    use crate::state::{Fork, StreamState};
    use proptest::prelude::*;
    use thalweg_base::{Level, Lsn};
    use thalweg_log::Attachment;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn encoded(notes: &[Note<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        notes.iter().for_each(|note| note.encode(&mut out));
        out
    }

    fn config() -> Config {
        Config {
            content_type: ContentType::parse(b"application/json").unwrap(),
            lifetime: Lifetime::Idle { secs: 60 },
            created: Millis(1_000),
            closed: true,
            fork: Some(Box::new(Fork {
                source: "a/b".into(),
                at: Position { incarnation: 64, offset: Offset(300) },
                sub_offset: 2,
                inherited_lifetime: true,
            })),
            retention: Retention::default(),
            durability: None,
            home: None,
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        let notes = [
            Note::NewProducer { id: b"p1", epoch: 0, seq: 0 },
            Note::Accepted { place: 0, epoch: 0, seq: 300 },
            Note::Closed { by: Some(0) },
            Note::Closed { by: None },
            Note::Touched(Millis(1_000)),
            Note::Seq(b"09"),
            Note::SoftDeleted,
            Note::Forked,
            Note::Released,
            Note::Mark(Mark { upto: Offset(300), time: Millis(1_000) }),
            Note::Trimmed(Offset(300)),
        ];
        let expected = "010270310000020000ac020301030004e80705023039060708".to_owned() + "09ac02e807" + "0aac02";
        assert_eq!(hex(&encoded(&notes)), expected);
        let mut out = Vec::new();
        encode_config(&config(), &mut out);
        assert_eq!(hex(&out), "0101013ce807030103612f6240ac0202");
        out.clear();
        let retention = Retention { bytes: Some(300), secs: Some(1) };
        encode_config(&Config { retention, ..config() }, &mut out);
        assert_eq!(hex(&out), "0101013ce807070103612f6240ac0202ac0201");
        for (durability, byte) in [(Level::Durable, "01"), (Level::Buffered, "02"), (Level::Replicated, "03")] {
            out.clear();
            encode_config(&Config { durability: Some(durability), ..config() }, &mut out);
            assert_eq!(hex(&out), "0101013ce8070b0103612f6240ac0202".to_owned() + byte);
        }
    }

    #[test]
    fn a_configuration_round_trips() {
        for config in [
            config(),
            Config { retention: Retention { bytes: None, secs: Some(9) }, ..config() },
            Config { durability: Some(Level::Buffered), ..config() },
            Config { home: Some(Home { unit: 7, grant: 300 }), ..config() },
            Config { fork: None, closed: false, lifetime: Lifetime::Until(Millis(5)), created: Millis(0), ..config() },
        ] {
            let mut out = Vec::new();
            encode_config(&config, &mut out);
            assert_eq!(decode_config(&out), Ok(config));
            for cut in 0..out.len() {
                assert!(decode_config(&out[..cut]).is_err());
            }
        }
    }

    #[test]
    fn a_note_that_does_not_fit_the_state_is_an_error() {
        let mut state = StreamState::new(config(), Lsn(1));
        assert!(state.apply(&encoded(&[Note::Accepted { place: 0, epoch: 0, seq: 0 }]), Lsn(2)).is_err());
        assert!(state.apply(&encoded(&[Note::Closed { by: Some(3) }]), Lsn(2)).is_err());
        assert!(state.apply(&encoded(&[Note::Released]), Lsn(2)).is_err());
        assert!(state.apply(&[99], Lsn(2)).is_err());
    }

    fn note() -> impl Strategy<Value = (u8, Vec<u8>, u64, u64, u32)> {
        (1u8..11, prop::collection::vec(any::<u8>(), 0..9), any::<u64>(), any::<u64>(), 0u32..u32::MAX)
    }

    proptest! {
        #[test]
        fn notes_round_trip(list in prop::collection::vec(note(), 0..6)) {
            let notes: Vec<Note<'_>> = list.iter().map(|(tag, bytes, a, b, place)| match tag {
                1 => Note::NewProducer { id: bytes, epoch: *a, seq: *b },
                2 => Note::Accepted { place: *place, epoch: *a, seq: *b },
                3 => Note::Closed { by: (*a > u64::MAX / 2).then_some(*place) },
                4 => Note::Touched(Millis(*a)),
                5 => Note::Seq(bytes),
                6 => Note::SoftDeleted,
                7 => Note::Forked,
                8 => Note::Released,
                9 => Note::Mark(Mark { upto: Offset(*a), time: Millis(*b) }),
                _ => Note::Trimmed(Offset(*a)),
            }).collect();
            let mut at = 0;
            decode(&encoded(&notes), |note| {
                assert_eq!(note, notes[at]);
                at += 1;
                Ok(())
            }).unwrap();
            prop_assert_eq!(at, notes.len());
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode_config(&bytes);
            let _ = StreamState::new(config(), Lsn(1)).apply(&bytes, Lsn(2));
        }
    }
}
