//! State of a subscription, and the effect of events on it. No clock, no IO, no randomness.
//!
//! A subscription is *idle*, or a *wake* is in flight: sent to a webhook, or written to the wake stream and perhaps
//! claimed. A wake has a generation that no other wake of the subscription has, and ends when it is done, released,
//! failed or past its lease. State changes by [`Event`]s only, live and in recovery alike.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_base::{Millis, Offset};
use thalweg_streams::format::offset::Position;

/// How a subscription wakes its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// By a POST to a URL.
    Webhook,
    /// By a message in a wake stream, which workers follow.
    PullWake,
}

/// A client's configuration, in normal form: equivalent requests are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// How workers are woken.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Streams whose names match are linked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Sorted, without repetition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<String>,
    /// The receiver of webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The stream that gets pull-wakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_stream: Option<String>,
    /// How long a wake lives without a sign of its worker, in milliseconds.
    pub lease_ttl_ms: u64,
    /// The client's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// One stream of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// A client named the stream.
    #[serde(default, skip_serializing_if = "is_false")]
    pub explicit: bool,
    /// The stream's name matches the pattern.
    #[serde(default, skip_serializing_if = "is_false")]
    pub glob: bool,
    /// The last processed position.
    #[serde(with = "offset")]
    pub acked: Position,
    /// Transient: the durable end, as far as it is known.
    #[serde(skip)]
    pub tail: Position,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Link {
    /// Whether the stream has content beyond the acknowledged position.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.tail.offset > Offset::ZERO && order(self.tail) > order(self.acked)
    }
}

/// Positions in their order: a later stream of a name comes after every position of an earlier one.
#[must_use]
pub fn order(position: Position) -> (u64, u64) {
    (position.incarnation, position.offset.0)
}

/// One wake in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// The wake's id; acknowledgements must name it.
    pub id: String,
    /// When the wake ends by itself; an unclaimed pull-wake does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<u64>,
    /// The worker that claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The webhook has accepted the wake.
    #[serde(default, skip_serializing_if = "is_false")]
    pub delivered: bool,
}

/// Deliveries have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Failed deliveries in a row.
    pub count: u32,
    /// When the next attempt is due, in milliseconds since 1970.
    pub next_attempt_at: u64,
}

/// The state of one subscription. It changes only by [`Event`]s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// The configuration of its creation.
    pub config: Config,
    /// Milliseconds since 1970.
    pub created_at: u64,
    /// How clients reach this server, with the streams' prefix.
    pub base: String,
    /// Its streams, by path.
    pub links: BTreeMap<Box<str>, Link>,
    /// The number of the last wake, which fences earlier workers.
    pub generation: u64,
    /// The wake in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// Set while deliveries fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Transient: linked streams with content beyond the acknowledged position.
    #[serde(skip)]
    pub pending: BTreeSet<Box<str>>,
}

/// A change, in the form of the subscription's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "snake_case")]
pub enum Event {
    /// A stream was linked at position `at`: by name if `explicit`, else by the pattern.
    Link {
        path: Box<str>,
        explicit: bool,
        #[serde(with = "offset")]
        at: Position,
    },
    /// A stream was unlinked: its name if `explicit`, else the pattern's match.
    Unlink { path: Box<str>, explicit: bool },
    /// A worker has processed the stream up to `offset`.
    Ack {
        path: Box<str>,
        #[serde(with = "offset")]
        offset: Position,
    },
    /// A wake began. `lease_until` is in milliseconds since 1970.
    Wake {
        generation: u64,
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease_until: Option<u64>,
    },
    /// The webhook has accepted the wake.
    Delivered,
    /// A worker has claimed the wake.
    Claim { holder: String, lease_until: u64 },
    /// The worker has asked for a longer lease.
    Extend { lease_until: u64 },
    /// The wake succeeded: earlier failures are forgotten.
    Done,
    /// The wake is over: released, or past its lease.
    Over,
    /// The wake is over: it could not be delivered.
    Fail { count: u32, next_attempt_at: u64 },
}

/// The next need of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The lease is over.
    Expire,
    /// Work is pending, and no worker was woken.
    Wake,
}

impl Subscription {
    /// A subscription without streams.
    #[must_use]
    pub fn new(config: Config, base: String, now: Millis) -> Self {
        Self {
            config,
            created_at: now.0,
            base,
            links: BTreeMap::new(),
            generation: 0,
            wake: None,
            retry: None,
            pending: BTreeSet::new(),
        }
    }

    /// Applies an event, live or in recovery.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Link { path, explicit, at } => {
                let link = self.links.entry(path.clone()).or_insert_with(|| Link {
                    explicit: false,
                    glob: false,
                    acked: *at,
                    tail: Position::default(),
                });
                link.explicit |= *explicit;
                link.glob |= !*explicit;
            }
            Event::Unlink { path, explicit } => {
                if let Some(link) = self.links.get_mut(path) {
                    if *explicit {
                        link.explicit = false;
                    } else {
                        link.glob = false;
                    }
                    if !link.explicit && !link.glob {
                        self.links.remove(path);
                        self.pending.remove(path);
                    }
                }
            }
            Event::Ack { path, offset } => {
                if let Some(link) = self.links.get_mut(path)
                    && order(*offset) > order(link.acked)
                {
                    link.acked = *offset;
                    if !link.is_pending() {
                        self.pending.remove(path);
                    }
                }
            }
            Event::Wake { generation, id, lease_until } => {
                self.generation = *generation;
                self.wake = Some(Wake { id: id.clone(), lease_until: *lease_until, holder: None, delivered: false });
            }
            Event::Delivered => {
                self.retry = None;
                if let Some(wake) = &mut self.wake {
                    wake.delivered = true;
                }
            }
            Event::Claim { holder, lease_until } => {
                self.retry = None;
                if let Some(wake) = &mut self.wake {
                    wake.holder = Some(holder.clone());
                    wake.lease_until = Some(*lease_until);
                }
            }
            Event::Extend { lease_until } => {
                if let Some(wake) = &mut self.wake {
                    wake.lease_until = Some(*lease_until);
                }
            }
            Event::Done => {
                self.wake = None;
                self.retry = None;
            }
            Event::Over => self.wake = None,
            Event::Fail { count, next_attempt_at } => {
                self.wake = None;
                self.retry = Some(Retry { count: *count, next_attempt_at: *next_attempt_at });
            }
        }
    }

    /// The durable end of a linked stream is now known.
    pub fn learn(&mut self, path: &str, tail: Position) {
        let Some(link) = self.links.get_mut(path) else { return };
        link.tail = tail;
        if link.is_pending() {
            self.pending.insert(path.into());
        } else {
            self.pending.remove(path);
        }
    }

    /// The next need of the subscription at `now`.
    #[must_use]
    pub fn want(&self, now: Millis) -> Option<Want> {
        match (&self.wake, self.retry) {
            (Some(wake), _) => wake.lease_until.is_some_and(|until| until <= now.0).then_some(Want::Expire),
            (None, Some(retry)) if retry.next_attempt_at > now.0 => None,
            (None, _) => (!self.pending.is_empty()).then_some(Want::Wake),
        }
    }

    /// The end of a lease that begins at `now`, in milliseconds since 1970.
    #[must_use]
    pub fn lease_until(&self, now: Millis) -> u64 {
        now.plus(self.config.lease_ttl_ms).0
    }

    /// The failure of a delivery, `random` being any number: from 1 s, doubling up to 60 s, with 20% jitter either way.
    #[must_use]
    pub fn failure(&self, now: Millis, random: u64) -> Event {
        let count = self.retry.map_or(0, |retry| retry.count).saturating_add(1);
        let delay = 1_000_u64.saturating_mul(1 << (count - 1).min(6)).min(60_000);
        let jitter = random % (delay * 2 / 5 + 1);
        Event::Fail { count, next_attempt_at: now.plus(delay * 4 / 5 + jitter).0 }
    }
}

/// Positions as clients see them; `-1` is before everything.
pub mod offset {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use thalweg_streams::format::offset::{OffsetParam, Position};

    /// The offset on the wire; `-1` before everything.
    #[must_use]
    pub fn text(position: Position) -> String {
        if position == Position::default() {
            "-1".into()
        } else {
            String::from_utf8_lossy(&position.to_text()).into_owned()
        }
    }

    /// The position of an offset on the wire.
    #[must_use]
    pub fn parse(text: &str) -> Option<Position> {
        match OffsetParam::parse(text.as_bytes())? {
            OffsetParam::Start => Some(Position::default()),
            OffsetParam::At(position) => Some(position),
            OffsetParam::Tail => None,
        }
    }

    pub fn serialize<S: Serializer>(position: &Position, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&text(*position))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Position, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
        parse(&text).ok_or_else(|| D::Error::custom("not an offset"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(incarnation: u64, offset: u64) -> Position {
        Position { incarnation, offset: Offset(offset) }
    }

    fn hook() -> Subscription {
        let config = Config {
            kind: Kind::Webhook,
            pattern: Some("a/*".into()),
            streams: Vec::new(),
            url: Some("https://example.com/".into()),
            wake_stream: None,
            lease_ttl_ms: 1_000,
            description: None,
        };
        let mut sub = Subscription::new(config, "http://h/v1/stream/".into(), Millis(5));
        sub.apply(&Event::Link { path: "a/b".into(), explicit: false, at: at(1, 4) });
        sub
    }

    fn wake(sub: &mut Subscription) {
        let event = Event::Wake { generation: sub.generation + 1, id: "w".into(), lease_until: Some(100) };
        sub.apply(&event);
    }

    #[test]
    fn work_past_the_acknowledged_position_wants_a_wake() {
        let mut sub = hook();
        sub.learn("a/b", at(1, 4));
        assert_eq!(sub.want(Millis(0)), None);
        sub.learn("a/b", at(1, 5));
        assert_eq!(sub.want(Millis(0)), Some(Want::Wake));
        sub.apply(&Event::Ack { path: "a/b".into(), offset: at(1, 5) });
        assert_eq!(sub.want(Millis(0)), None);
    }

    #[test]
    fn acknowledgements_never_go_backwards() {
        let mut sub = hook();
        sub.apply(&Event::Ack { path: "a/b".into(), offset: at(1, 9) });
        sub.apply(&Event::Ack { path: "a/b".into(), offset: at(1, 5) });
        assert_eq!(sub.links["a/b"].acked, at(1, 9));
    }

    #[test]
    fn a_stream_made_again_is_work_once_it_has_content() {
        let mut sub = hook();
        sub.learn("a/b", at(7, 0));
        assert_eq!(sub.want(Millis(0)), None);
        sub.learn("a/b", at(7, 1));
        assert_eq!(sub.want(Millis(0)), Some(Want::Wake));
    }

    #[test]
    fn one_wake_at_a_time_until_its_lease_is_over() {
        let mut sub = hook();
        sub.learn("a/b", at(1, 5));
        wake(&mut sub);
        assert_eq!(sub.want(Millis(99)), None);
        assert_eq!(sub.want(Millis(100)), Some(Want::Expire));
        sub.apply(&Event::Extend { lease_until: 200 });
        assert_eq!(sub.want(Millis(199)), None);
        sub.apply(&Event::Over);
        assert_eq!(sub.want(Millis(0)), Some(Want::Wake));
    }

    #[test]
    fn failures_back_off_to_a_minute_and_success_forgets_them() {
        let mut sub = hook();
        sub.learn("a/b", at(1, 5));
        for (n, delay) in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000].into_iter().enumerate() {
            for random in [0, 1, u64::MAX] {
                let Event::Fail { count, next_attempt_at } = sub.failure(Millis(0), random) else { panic!() };
                assert_eq!(count as usize, n + 1);
                assert!((delay * 4 / 5..=delay * 6 / 5).contains(&next_attempt_at), "{next_attempt_at}");
            }
            wake(&mut sub);
            sub.apply(&sub.failure(Millis(0), 0));
            assert_eq!(sub.want(Millis(0)), None);
        }
        assert_eq!(sub.want(Millis(60_000)), Some(Want::Wake));
        wake(&mut sub);
        sub.apply(&Event::Delivered);
        assert_eq!(sub.retry, None);
    }

    #[test]
    fn a_glob_link_outlives_the_explicit_one() {
        let mut sub = hook();
        sub.apply(&Event::Link { path: "a/b".into(), explicit: true, at: at(1, 9) });
        assert_eq!(sub.links["a/b"].acked, at(1, 4), "linking again keeps the cursor");
        sub.apply(&Event::Unlink { path: "a/b".into(), explicit: true });
        assert!(sub.links["a/b"].glob);
        sub.apply(&Event::Unlink { path: "a/b".into(), explicit: false });
        assert!(sub.links.is_empty());
    }
}
