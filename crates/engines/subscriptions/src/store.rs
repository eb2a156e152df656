//! The store of subscriptions: one log each, beside the streams, under a name that no stream can have.
//!
//! A message is one line of JSON: a snapshot of the subscription, or a list of events. When events have outgrown the
//! last snapshot a new one is written, and the log is trimmed to it in the same frame: so a log stays proportional to
//! its subscription, and a start reads little. See `docs/format/subscriptions.md`.

use crate::error::OpenError;
use crate::state::{Event, Subscription};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thalweg_base::{LogId, Lsn, Millis};
use thalweg_journal::Class;
use thalweg_log::{Append, CommitError, Lengths, Logs, Op, ReadFrom, SweepCursor};
use thalweg_streams::StreamState;
use thalweg_streams::format::content_type::ContentType;
use thalweg_streams::format::json::message_of;
use thalweg_streams::format::note::encode_config;
use thalweg_streams::state::Config;
use thalweg_streams::state::lifetime::Lifetime;

/// Names of logs: this and the subscription's id.
pub(crate) const PREFIX: &str = "__ds/subscriptions/";

/// Events gather up to this many bytes, or this many times the snapshot, before the next snapshot.
const EVENTS_BYTES_MIN: usize = 64 << 10;
const EVENTS_PER_SNAPSHOT: usize = 4;

#[derive(Serialize, Deserialize)]
enum Record<S, E> {
    #[serde(rename = "snapshot")]
    Snapshot(S),
    #[serde(rename = "events")]
    Events(E),
}

/// A subscription and its log.
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) state: Subscription,
    pub(crate) store: Arc<Store>,
    log: LogId,
    /// When this is durable, everything in `state` is.
    pub(crate) changed: Lsn,
    snapshot_bytes: usize,
    event_bytes: usize,
}

/// A message to a wake stream. Unless the stream is a replicated one, it is in one frame with the events that began the
/// wake.
pub(crate) struct WakeEvent<'a> {
    pub(crate) stream: &'a str,
    pub(crate) json: String,
}

/// Result of a commit.
pub(crate) enum Wrote {
    Yes,
    /// The wake stream does not exist, is closed, or is not JSON. Nothing was committed.
    NoWakeStream,
}

/// The subscriptions of one kernel unit.
pub(crate) struct Store {
    /// The number of the unit.
    pub(crate) unit: u64,
    logs: Arc<Logs<StreamState>>,
    /// The streams of this process, if wake streams are among them: their events are in frames of this store's.
    streams: Option<Arc<thalweg_streams::Streams>>,
}

/// The name of the log of a subscription.
pub(crate) fn name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

fn line<S: Serialize, E: Serialize>(record: &Record<S, E>) -> Vec<u8> {
    // Maps have text keys and nothing fails by itself, so this cannot fail.
    let mut line = serde_json::to_vec(record).unwrap_or_default();
    line.push(b'\n');
    line
}

fn lengths(line: &[u8]) -> Result<Lengths, CommitError> {
    let too_large = thalweg_journal::AppendError::TooLarge { len: line.len(), max: u32::MAX as usize };
    Ok(Lengths::one(u32::try_from(line.len()).map_err(|_| too_large)?))
}

impl Stored {
    /// Removes a subscription; when this is durable, it is gone.
    pub(crate) fn delete(&self) -> Result<Lsn, CommitError> {
        let mut guard = self.store.logs.lock_logs(&[self.log], &[]);
        Ok(guard.commit_durably(Class::Upkeep, &[Op::Delete { log: self.log }])?.end)
    }

    /// Stores events, and then lets them happen; on an error nothing has changed.
    pub(crate) fn write(&mut self, events: &[Event]) -> Result<(), CommitError> {
        self.write_and_wake(events, None, Millis::ZERO).map(|_| ())
    }

    /// As [`Stored::write`], with an event for a wake stream: in the same frame, or before it if the wake stream is a
    /// replicated one.
    pub(crate) fn write_and_wake(
        &mut self,
        events: &[Event],
        wake: Option<&WakeEvent<'_>>,
        now: Millis,
    ) -> Result<Wrote, CommitError> {
        let store = Arc::clone(&self.store);
        let record = line(&Record::<(), _>::Events(events));
        let of_record = lengths(&record)?;
        let own = Op::Write {
            log: self.log,
            note: b"",
            append: Some(Append::Bytes { parts: &[&record], lengths: &of_record }),
        };
        let end = match wake.zip(store.streams.as_ref()) {
            None => store.logs.lock_logs(&[self.log], &[]).commit(Class::User, &[own])?.end,
            // Another journal has the wake stream. The event goes first: one without its wake is answered with "no
            // work", and a wake without its event is told again at the next start.
            Some((wake, streams)) if streams.is_replicated(wake.stream) => {
                if !streams.append_replicated(wake.stream, &wake.json, now)? {
                    return Ok(Wrote::NoWakeStream);
                }
                store.logs.lock_logs(&[self.log], &[]).commit_durably(Class::User, &[own])?.end
            }
            Some((wake, streams)) => {
                let mut guard = store.logs.lock_logs(&[self.log], &[wake.stream]);
                let Some(view) = guard.find(wake.stream).and_then(|log| guard.view(log)) else {
                    return Ok(Wrote::NoWakeStream);
                };
                if !view.attachment.takes_events(now) {
                    return Ok(Wrote::NoWakeStream);
                }
                let log = view.id;
                let (parts, of_event) = message_of(&wake.json);
                let append = Some(Append::Bytes { parts: &parts, lengths: &of_event });
                let end = guard.commit_durably(Class::User, &[own, Op::Write { log, note: b"", append }])?.end;
                drop(guard);
                streams.announce(end.into(), log);
                end
            }
        };
        events.iter().for_each(|event| self.state.apply(event));
        self.changed = end;
        self.event_bytes += record.len();
        self.compact();
        Ok(Wrote::Yes)
    }

    /// Writes a snapshot if it is due. If that fails, events continue to gather until the next attempt.
    fn compact(&mut self) {
        if self.event_bytes <= EVENTS_BYTES_MIN.max(self.snapshot_bytes * EVENTS_PER_SNAPSHOT) {
            return;
        }
        let store = Arc::clone(&self.store);
        let line = line(&Record::<_, ()>::Snapshot(&self.state));
        let Ok(lengths) = lengths(&line) else { return };
        let mut guard = store.logs.lock_logs(&[self.log], &[]);
        let Some(start) = guard.view(self.log).map(|view| view.tail) else { return };
        let append = Some(Append::Bytes { parts: &[&line], lengths: &lengths });
        let ops = [Op::Write { log: self.log, note: b"", append }, Op::Trim { log: self.log, start }];
        match guard.commit_durably(Class::Upkeep, &ops) {
            Ok(committed) => {
                self.changed = committed.end;
                self.snapshot_bytes = line.len();
                self.event_bytes = 0;
            }
            Err(error) => tracing::warn!(id = self.id, %error, "a subscription's log could not be compacted"),
        }
    }
}

impl Store {
    pub(crate) fn new(
        unit: u64,
        logs: Arc<Logs<StreamState>>,
        streams: Option<Arc<thalweg_streams::Streams>>,
    ) -> Arc<Self> {
        Arc::new(Self { unit, logs, streams })
    }

    pub(crate) fn durable(&self) -> Lsn {
        self.logs.durable()
    }

    /// Whether the journal accepts nothing any more.
    pub(crate) fn is_over(&self) -> bool {
        self.logs.journal().poisoned().is_some()
    }

    /// The streams of this process, if wake streams are among them.
    pub(crate) fn streams(&self) -> Option<&Arc<thalweg_streams::Streams>> {
        self.streams.as_ref()
    }

    pub(crate) fn kick(&self) {
        self.logs.journal().kick();
    }

    pub(crate) fn create(self: &Arc<Self>, id: &str, state: Subscription, now: Millis) -> Result<Stored, CommitError> {
        let config = Config {
            content_type: ContentType::OCTET_STREAM,
            lifetime: Lifetime::Unlimited,
            created: now,
            closed: false,
            fork: None,
            retention: Default::default(),
            durability: None,
            home: None,
        };
        let mut note = Vec::new();
        encode_config(&config, &mut note);
        let line = line(&Record::<_, ()>::Snapshot(&state));
        let (name, lengths) = (name(id), lengths(&line)?);
        let append = Some(Append::Bytes { parts: &[&line], lengths: &lengths });
        let mut guard = self.logs.lock(&[&name]);
        let committed =
            guard.commit_durably(Class::User, &[Op::Create { name: &name, note: &note, origin: None, append }])?;
        let log = committed.created.unwrap_or_default();
        let snapshot_bytes = line.len();
        let store = Arc::clone(self);
        Ok(Stored { id: id.into(), state, store, log, changed: committed.end, snapshot_bytes, event_bytes: 0 })
    }

    /// Every subscription as it was last stored. Reads; for the start only.
    pub(crate) fn recover(self: &Arc<Self>) -> Result<Vec<Stored>, OpenError> {
        self.found().into_iter().filter_map(|(log, id)| self.read(log, id).transpose()).collect()
    }

    fn found(&self) -> Vec<(LogId, String)> {
        let mut found: Vec<(LogId, String)> = Vec::new();
        self.sweep(&mut |log, name, _| {
            if let Some(id) = name.strip_prefix(PREFIX) {
                found.push((log, id.into()));
            }
        });
        found
    }

    /// The same, without those that cannot be read: what is wrong with these. `again` is asked before each further attempt
    /// at a log that could not be read, which may be for reasons that pass.
    pub(crate) fn recover_each(self: &Arc<Self>, again: &dyn Fn() -> bool) -> (Vec<Stored>, Vec<(String, OpenError)>) {
        let (mut all, mut damaged) = (Vec::new(), Vec::new());
        for (log, id) in self.found() {
            loop {
                match self.read(log, id.clone()) {
                    Ok(stored) => all.extend(stored),
                    Err(OpenError::Read { .. }) if again() => continue,
                    Err(error) => damaged.push((id, error)),
                }
                break;
            }
        }
        (all, damaged)
    }

    fn read(self: &Arc<Self>, log: LogId, id: String) -> Result<Option<Stored>, OpenError> {
        let bounds = self.logs.lock_logs(&[log], &[]).view(log).map(|v| (v.start, v.tail, v.changed));
        let Some((start, tail, changed)) = bounds else { return Ok(None) };
        let mut content = Vec::new();
        let mut from = start;
        while from < tail {
            let read = self.logs.read(ReadFrom { log, from, upto: tail });
            let chunk = read.map_err(|error| OpenError::Read { id: id.clone(), error })?;
            if chunk.end <= from {
                break;
            }
            from = chunk.end;
            chunk.parts.iter().for_each(|part| content.extend_from_slice(part));
        }
        let corrupt = |why: String| OpenError::Corrupt { id: id.clone(), why };
        let (state, snapshot_bytes) = replay(&content).map_err(corrupt)?;
        let event_bytes = content.len().saturating_sub(snapshot_bytes);
        Ok(Some(Stored { id, state, store: Arc::clone(self), log, changed, snapshot_bytes, event_bytes }))
    }

    /// Visits every log of the unit: streams and our own.
    fn sweep(&self, f: &mut dyn FnMut(LogId, &str, &StreamState)) {
        let mut cursor = Some(SweepCursor::default());
        while let Some(at) = cursor {
            // Sweeps in small steps, so that no shard is locked for long.
            cursor = self.logs.sweep(at, 256, f);
        }
    }
}

/// The subscription that a log's content says, and the length of the snapshot in it.
fn replay(content: &[u8]) -> Result<(Subscription, usize), String> {
    let mut state: Option<(Subscription, usize)> = None;
    for line in content.split_inclusive(|b| *b == b'\n') {
        let record = serde_json::from_slice::<Record<Subscription, Vec<Event>>>(line).map_err(|e| e.to_string())?;
        match (record, &mut state) {
            (Record::Snapshot(snapshot), state) => *state = Some((snapshot, line.len())),
            (Record::Events(events), Some((state, _))) => events.iter().for_each(|event| state.apply(event)),
            (Record::Events(_), None) => return Err("it does not begin with a snapshot".into()),
        }
    }
    state.ok_or_else(|| "it is empty".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::Offset;

    const GOLDEN: &str = concat!(
        r#"{"snapshot":{"config":{"type":"webhook","pattern":"a/*","url":"https://h/","lease_ttl_ms":1000},"created_at":5,"#,
        r#""base":"http://s/v1/stream/","links":{"a/b":{"glob":true,"acked":"0000000000000064_0000000000000004"}},"generation":2}}"#,
        "\n",
        r#"{"events":[{"e":"wake","generation":3,"id":"w_x","lease_until":9},{"e":"delivered"}]}"#,
        "\n",
        r#"{"events":[{"e":"ack","path":"a/b","offset":"0000000000000064_0000000000000009"},{"e":"done"}]}"#,
        "\n",
        r#"{"events":[{"e":"link","path":"a/c","explicit":true,"at":"-1"},{"e":"fail","count":1,"next_attempt_at":7}]}"#,
        "\n",
    );

    #[test]
    fn the_form_is_pinned() {
        let (state, snapshot) = replay(GOLDEN.as_bytes()).unwrap();
        assert_eq!(state.generation, 3);
        assert_eq!(state.wake, None);
        assert_eq!(state.links["a/b"].acked.offset, Offset(9));
        assert_eq!(state.retry.map(|retry| retry.next_attempt_at), Some(7));
        let first = &GOLDEN[..snapshot];
        let (state, _) = replay(first.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(line(&Record::<_, ()>::Snapshot(&state))).unwrap(), first);
        for golden in GOLDEN.lines().skip(1) {
            let Record::Events(events) = serde_json::from_str::<Record<Subscription, Vec<Event>>>(golden).unwrap()
            else {
                panic!()
            };
            assert_eq!(String::from_utf8(line(&Record::<(), _>::Events(&events))).unwrap().trim_end(), golden);
        }
    }

    #[test]
    fn a_damaged_log_is_an_error_and_never_a_panic() {
        for cut in 0..GOLDEN.len() {
            let is_whole = cut > 0 && (GOLDEN.as_bytes()[cut - 1] == b'\n' || GOLDEN.as_bytes()[cut] == b'\n');
            assert_eq!(replay(&GOLDEN.as_bytes()[..cut]).is_ok(), is_whole, "{cut} bytes");
        }
        assert!(replay(b"").is_err());
        assert!(replay(b"{\"events\":[]}\n").is_err());
        assert!(replay(b"garbage\n").is_err());
    }
}
