//! The framing as fuzzers and property tests drive it: a byte stream, cut into reads, comes out as requests.

use super::{Framer, Limits, Refusal, Step};

/// A request that outlives its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) fields: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) keep_alive: bool,
}

/// The parse of a byte stream: its requests, the refusal that ended it, if any, and how many bytes are incomplete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) requests: Vec<Seen>,
    pub(super) refusal: Option<Refusal>,
    pub(super) continues: usize,
}

pub(super) const SMALL: Limits = Limits { head: 1024, body: 4096 };

/// Feeds `reads` one after the other, as a connection would.
pub(super) fn listen<'a>(reads: impl IntoIterator<Item = &'a [u8]>, limits: Limits) -> Said {
    let mut said = Said { requests: Vec::new(), refusal: None, continues: 0 };
    let (mut buf, mut framer) = (Vec::new(), Framer::new());
    for read in reads {
        buf.extend_from_slice(read);
        let mut at = 0;
        loop {
            let step = framer.step(
                &mut buf,
                at,
                limits,
                |_| None,
                |request, manner| Seen {
                    method: format!("{:?}", request.method),
                    path: request.path.to_owned(),
                    query: request.query.map(str::to_owned),
                    fields: request.headers.0.iter().map(|(n, v)| ((*n).to_owned(), v.to_vec())).collect(),
                    body: request.body.to_vec(),
                    keep_alive: manner.keep_alive,
                },
            );
            match step {
                Ok(Step::Request(used, _, seen)) => {
                    at += used;
                    said.requests.push(seen);
                    framer = Framer::new();
                }
                Ok(Step::Turned(..)) => unreachable!("nothing was judged"),
                Ok(Step::Continue) => said.continues += 1,
                Ok(Step::More(_)) => break,
                Err(refusal) => {
                    said.refusal = Some(refusal);
                    return said;
                }
            }
        }
        buf.drain(..at);
    }
    said
}

/// Reads `data` as a byte stream, in one piece and in pieces that the data itself chooses, and panics if that made a
/// difference or a bound was passed.
#[doc(hidden)]
pub fn fuzz_framing(data: &[u8]) {
    let (seed, stream) = data.split_at(data.len().min(4));
    let whole = listen([stream], SMALL);
    let mut rest = stream;
    let mut pieces = Vec::new();
    for step in seed.iter().cycle() {
        if rest.is_empty() || seed.iter().all(|s| *s == 0) {
            break;
        }
        let (piece, more) = rest.split_at(usize::from(*step).min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    let pieces = listen(pieces, SMALL);
    assert_eq!((&whole.requests, whole.refusal), (&pieces.requests, pieces.refusal));
    for request in &whole.requests {
        assert!(request.body.len() <= SMALL.body);
        assert!(request.path.bytes().all(|b| b.is_ascii_graphic()));
        assert!(request.fields.iter().all(|(_, value)| !value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0))));
    }
}
