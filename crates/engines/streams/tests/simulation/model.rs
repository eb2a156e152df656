//! A minimal model of the protocol: the state of all streams, and the expected answer to each request.

use std::collections::BTreeMap;

/// Retention of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    #[default]
    All,
    /// At least so many of the newest bytes.
    Bytes(u64),
    /// Content younger than this many seconds.
    Seconds(u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Position of its creation: distinguishes it from an earlier stream of that name.
    pub(crate) born: u64,
    pub(crate) json: bool,
    pub(crate) messages: Vec<Vec<u8>>,
    /// When each was appended, in milliseconds of [`Request`]'s clock.
    pub(crate) times: Vec<u64>,
    pub(crate) closed: bool,
    /// Epoch and highest sequence number.
    pub(crate) producers: BTreeMap<String, (u64, u64)>,
    /// The producer request that closed it.
    pub(crate) closed_by: Option<(String, u64, u64)>,
    pub(crate) parent: Option<String>,
    pub(crate) children: u64,
    pub(crate) soft_deleted: bool,
    pub(crate) keep: Keep,
    /// Its oldest messages may be gone: it, or a stream that it was forked from, keeps only the newest.
    pub(crate) shortened: bool,
    /// Position of the last visible change: answers must wait for it.
    pub(crate) changed: u64,
    /// Position of the last change of which a loss would be noticed in any stream: its making in place of another, its
    /// end.
    pub(crate) sealed: u64,
    pub(crate) kind: Kind,
}

/// Requested durability of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Unsaid,
    Durable,
    Buffered,
}

impl Stream {
    /// Whether a reader may get `content`: all messages, or the newest ones under the stream's retention.
    pub(crate) fn may_hold(&self, content: &[u8], now_ms: u64) -> bool {
        let joined = |from: usize| {
            let messages = &self.messages[from..];
            if self.json { messages.join(&b',') } else { messages.concat() }
        };
        let most = if self.shortened { self.messages.len() } else { 0 };
        let found = (0..=most).find(|from| joined(*from) == content);
        found.is_some_and(|from| {
            let kept: u64 = self.messages[from..].iter().map(|m| m.len() as u64 + u64::from(self.json)).sum();
            let gone_at = from.checked_sub(1).and_then(|last| self.times.get(last));
            match (self.keep, gone_at) {
                (_, None) | (Keep::All, _) => true,
                (Keep::Bytes(least), _) => kept >= least,
                (Keep::Seconds(age), Some(time)) => time + age * 1_000 <= now_ms,
            }
        })
    }

    /// How many bytes the messages take: each of a JSON stream has a comma.
    fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.len() as u64 + u64::from(self.json)).sum()
    }

    /// All appended content, by which positions count.
    pub(crate) fn content(&self) -> Vec<u8> {
        let comma: &[u8] = if self.json { b"," } else { b"" };
        self.messages.iter().flat_map(|message| [message, comma].concat()).collect()
    }
}

pub(crate) type Streams = BTreeMap<String, Stream>;

/// `now_ms` counts all forward steps of the clock and ignores backward ones, so that no clock of a server shows more
/// elapsed time.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Create {
        name: String,
        kind: Kind,
        json: bool,
        body: Vec<Vec<u8>>,
        closed: bool,
        keep: Keep,
        now_ms: u64,
    },
    Fork {
        name: String,
        source: String,
    },
    Append {
        name: String,
        body: Vec<Vec<u8>>,
        producer: Option<(String, u64, u64)>,
        close: bool,
        /// The tail that it expects, as the server wrote it.
        expects: Option<String>,
        now_ms: u64,
    },
    Delete {
        name: String,
    },
}

impl Request {
    pub(crate) fn name(&self) -> &str {
        match self {
            Request::Create { name, .. }
            | Request::Fork { name, .. }
            | Request::Append { name, .. }
            | Request::Delete { name } => name,
        }
    }
}

/// The status that a request must get, and whether it changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) status: u16,
    pub(crate) changes: bool,
}

fn says(status: u16) -> Verdict {
    Verdict { status, changes: false }
}

fn does(status: u16) -> Verdict {
    Verdict { status, changes: true }
}

/// Applies a request; `at` is the position that the change will have.
pub(crate) fn apply(streams: &mut Streams, request: &Request, at: u64) -> Verdict {
    match request {
        Request::Create { name, kind, json, body, closed, keep, now_ms } => {
            if let Some(there) = streams.get(name) {
                let same =
                    !there.soft_deleted && there.json == *json && there.closed == *closed && there.parent.is_none();
                let same = same && there.keep == *keep && there.kind == *kind;
                return says(if same { 200 } else { 409 });
            }
            let messages = body.clone();
            let stream = Stream {
                born: at,
                json: *json,
                times: vec![*now_ms; messages.len()],
                messages,
                closed: *closed,
                changed: at,
                sealed: if *closed { at } else { 0 },
                kind: *kind,
                keep: *keep,
                shortened: *keep != Keep::All,
                ..Stream::default()
            };
            streams.insert(name.clone(), stream);
            does(201)
        }
        Request::Fork { name, source } => {
            if let Some(there) = streams.get(name) {
                let same = !there.soft_deleted && !there.closed && there.parent.as_ref() == Some(source);
                return says(if same { 200 } else { 409 });
            }
            let Some(from) = streams.get(source) else { return says(404) };
            if from.soft_deleted {
                return says(409);
            }
            let (json, messages, parent) = (from.json, from.messages.clone(), Some(source.clone()));
            let (times, shortened) = (from.times.clone(), from.shortened);
            let kind = from.kind;
            let fork =
                Stream { born: at, json, messages, times, parent, changed: at, shortened, kind, ..Stream::default() };
            streams.insert(name.clone(), fork);
            if let Some(from) = streams.get_mut(source) {
                from.children += 1;
                from.changed = at;
            }
            does(201)
        }
        Request::Append { name, body, producer, close, expects, now_ms } => {
            let expects = expects.as_deref().and_then(|text| text.split_once('_')?.1.parse().ok());
            let verdict = append(streams, name, body, producer.as_ref(), *close, expects, at);
            if let Some(stream) = streams.get_mut(name) {
                stream.times.resize(stream.messages.len(), *now_ms);
            }
            verdict
        }
        Request::Delete { name } => delete(streams, name, at),
    }
}

fn append(
    streams: &mut Streams,
    name: &str,
    body: &[Vec<u8>],
    producer: Option<&(String, u64, u64)>,
    close: bool,
    expects: Option<u64>,
    at: u64,
) -> Verdict {
    let Some(stream) = streams.get_mut(name) else { return says(404) };
    if stream.soft_deleted {
        return says(410);
    }
    let moved = expects.is_some_and(|expected| expected != stream.bytes());
    if stream.closed {
        let again = producer.is_some() && stream.closed_by.as_ref() == producer;
        if again {
            return says(204);
        }
        let closes_again = close && body.is_empty() && producer.is_none();
        return says(match (closes_again, moved) {
            (true, true) => 412,
            (true, false) => 204,
            _ => 409,
        });
    }
    let mut status = 204;
    if let Some((id, epoch, seq)) = producer {
        match stream.producers.get(id) {
            None if *seq != 0 => return says(409),
            Some((known, _)) if epoch < known => return says(403),
            Some((known, _)) if epoch > known && *seq != 0 => return says(400),
            Some((known, last)) if epoch == known && seq <= last => return says(204),
            Some((known, last)) if epoch == known && *seq > last + 1 => return says(409),
            _ => {}
        }
    }
    if moved {
        return says(412);
    }
    if let Some((id, epoch, seq)) = producer {
        stream.producers.insert(id.clone(), (*epoch, *seq));
        if !body.is_empty() {
            status = 200;
        }
    }
    stream.messages.extend(body.iter().cloned());
    if close {
        stream.closed = true;
        stream.sealed = at;
        stream.closed_by = producer.cloned();
    }
    stream.changed = at;
    does(status)
}

fn delete(streams: &mut Streams, name: &str, at: u64) -> Verdict {
    let Some(stream) = streams.get_mut(name) else { return says(404) };
    if stream.soft_deleted {
        return says(410);
    }
    if stream.children > 0 {
        stream.soft_deleted = true;
        (stream.changed, stream.sealed) = (at, at);
        return does(204);
    }
    let mut parent = streams.remove(name).and_then(|stream| stream.parent);
    while let Some(name) = parent.take() {
        let Some(stream) = streams.get_mut(&name) else { break };
        stream.children -= 1;
        if !stream.soft_deleted {
            (stream.changed, stream.sealed) = (at, at);
        }
        if stream.soft_deleted && stream.children == 0 {
            parent = streams.remove(&name).and_then(|stream| stream.parent);
        }
    }
    does(204)
}
