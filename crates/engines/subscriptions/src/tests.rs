//! Subscriptions over streams in memory, step by step: the test sets time and randomness.

use crate::config::SubscriptionsConfig;
use crate::core::{Answer, Core};
use crate::keys::Keys;
use crate::routes::{self, ControlRoute};
use crate::store::Store;
use crate::webhook::{Delivery, Outcome, Targets};
use serde_json::{Value, json};
use std::sync::Arc;
use thalweg_base::Millis;
use thalweg_http::{Body, Context, Headers, Method, Poll, Reply, Request, Waker};
use thalweg_journal::{Journal, MemoryJournal, Options};
use thalweg_log::{Logs, LogsOptions};
use thalweg_manifest::MemoryManifest;
use thalweg_storage::MemoryStorage;
use thalweg_streams::{StreamState, Streams, StreamsConfig};

struct Rig {
    journal: Arc<MemoryJournal>,
    /// The journal of replicated streams, once they are joined.
    replicated: Option<Arc<MemoryJournal>>,
    logs: Arc<Logs<StreamState>>,
    streams: Arc<Streams>,
    config: SubscriptionsConfig,
    core: Core,
    folder: tempfile::TempDir,
    now: u64,
}

fn unit(options: LogsOptions) -> (Arc<MemoryJournal>, Arc<Logs<StreamState>>) {
    let journal = Arc::new(MemoryJournal::new(Options::default()));
    let (storage, manifest) = (Arc::new(MemoryStorage::new()), Arc::new(MemoryManifest::new()));
    let opening = Logs::begin(options, storage, manifest, thalweg_log::Loss::Nothing).unwrap();
    let logs = opening.finish(Arc::clone(&journal) as _).unwrap();
    (journal, Arc::new(logs))
}

struct Got {
    status: u16,
    body: Value,
}

impl Got {
    fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap()
    }
}

impl Rig {
    fn new() -> Self {
        Self::with(SubscriptionsConfig { targets: Targets::Local, ..SubscriptionsConfig::default() })
    }

    fn with(config: SubscriptionsConfig) -> Self {
        Self::over(config, StreamsConfig::default())
    }

    fn over(config: SubscriptionsConfig, streams: StreamsConfig) -> Self {
        let (journal, logs) = unit(LogsOptions::default());
        let streams = Streams::new(Arc::clone(&logs), streams);
        let folder = tempfile::tempdir().unwrap();
        let core = open(&logs, &streams, &config, &folder);
        Self { journal, replicated: None, logs, streams, config, core, folder, now: 1_800_000_000_000 }
    }

    /// With a store, whose streams can be found once they are joined.
    fn with_store() -> Self {
        let streams = StreamsConfig { has_store: true, ..StreamsConfig::default() };
        Self::over(SubscriptionsConfig { targets: Targets::Local, ..SubscriptionsConfig::default() }, streams)
    }

    fn join(&mut self) {
        let (journal, logs) = unit(LogsOptions { ids_from: 1 << 40, ..LogsOptions::default() });
        self.streams.join(logs, Millis(self.now));
        self.replicated = Some(journal);
        self.step();
    }

    /// Restarts with the stored state.
    fn reopen(&mut self) {
        self.core = open(&self.logs, &self.streams, &self.config, &self.folder);
        self.step();
    }

    fn kick(&self) {
        self.journal.kick();
        self.replicated.iter().for_each(|journal| journal.kick());
    }

    fn step(&mut self) {
        self.kick();
        let changes = self.streams.take_changes();
        self.core.learn(&changes, Millis(self.now));
        self.core.step(Millis(self.now));
        self.kick();
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.step();
    }

    fn ask(&mut self, method: Method<'_>, rest: &str, token: Option<&str>, body: &[u8]) -> Got {
        let bearer = format!("Bearer {}", token.unwrap_or_default());
        let mut headers: Vec<(&str, &[u8])> = vec![("host", b"h:1")];
        if token.is_some() {
            headers.push(("authorization", bearer.as_bytes()));
        }
        let path = format!("/v1/stream/__ds/{rest}");
        let request = Request { method, path: &path, query: None, headers: Headers(&headers), body };
        match routes::read(&request, rest, crate::MAIN, &self.config) {
            Ok(ControlRoute::Control(control)) => {
                let changes = self.streams.take_changes();
                self.core.learn(&changes, Millis(self.now));
                let Answer { after, status, body } = self.core.answer(&control, Millis(self.now));
                self.step();
                assert!(after <= self.logs.durable());
                Got { status, body: body.unwrap_or_default() }
            }
            Ok(_) => panic!("no control request"),
            Err(refusal) => {
                let response = routes::refusal(&refusal);
                let Body::Bytes(body) = response.body else { panic!() };
                Got { status: response.status, body: serde_json::from_slice(&body).unwrap() }
            }
        }
    }

    fn send(&mut self, method: Method<'_>, rest: &str, token: Option<&str>, body: Value) -> Got {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.ask(method, &format!("subscriptions/{rest}"), token, &body)
    }

    fn stream(&mut self, method: Method<'_>, name: &str, body: &[u8]) {
        self.stream_as(method, name, &[], body);
    }

    fn stream_as(&mut self, method: Method<'_>, name: &str, more: &[(&'static str, &'static [u8])], body: &[u8]) {
        self.change(method, name, more, body);
        self.step();
    }

    /// Changes a stream, and lets nobody hear of it yet.
    fn change(&self, method: Method<'_>, name: &str, more: &[(&'static str, &'static [u8])], body: &[u8]) {
        let waker = || Waker::from_fn(|| ());
        let mut cx = Context::detached(self.now, &waker);
        let path = format!("/v1/stream/{name}");
        let json: &[(&str, &[u8])] = &[("content-type", b"application/json")];
        let headers = [json, more].concat();
        let request = Request { method, path: &path, query: None, headers: Headers(&headers), body };
        let reply = self.streams.handle(&request, &mut cx);
        self.kick();
        let response = match reply {
            Reply::Now(response) | Reply::Held(_, response) => response,
            Reply::Later(mut pending) => match pending.poll(&mut cx) {
                Poll::Ready(Reply::Now(response)) => response,
                _ => panic!("it waits"),
            },
        };
        assert!(response.status < 300, "{}", response.status);
    }

    fn put(&mut self, name: &str) {
        self.stream(Method::Put, name, b"[]");
    }

    fn append(&mut self, name: &str) {
        self.stream(Method::Post, name, b"{\"n\":1}");
    }

    fn hook(&mut self) -> Got {
        let body =
            json!({"type":"webhook","pattern":"e/*","webhook":{"url":"http://127.0.0.1:9/h"},"lease_ttl_ms":1000});
        self.send(Method::Put, "s", None, body)
    }

    fn pull(&mut self) -> Got {
        self.put("w");
        let body = json!({"type":"pull-wake","pattern":"e/*","wake_stream":"w","lease_ttl_ms":1000});
        self.send(Method::Put, "s", None, body)
    }

    fn claim(&mut self, worker: &str) -> Got {
        self.send(Method::Post, "s/claim", None, json!({ "worker": worker }))
    }

    /// The only pending delivery.
    fn delivery(&mut self) -> Delivery {
        let (_, after, delivery) = self.core.deliveries.pop().expect("a delivery");
        assert!(after <= self.logs.durable());
        assert!(self.core.deliveries.is_empty(), "one at a time");
        delivery
    }

    fn result(&mut self, delivery: &Delivery, outcome: Outcome) {
        self.core.delivered(delivery, &outcome, Millis(self.now));
        self.step();
    }

    fn acked(&mut self, path: &str) -> Option<String> {
        let got = self.send(Method::Get, "s", None, Value::Null);
        let streams = got.body["streams"].as_array()?.clone();
        let link = streams.iter().find(|link| link["path"] == path)?;
        Some(link["acked_offset"].as_str()?.to_owned())
    }

    fn status(&mut self) -> String {
        self.send(Method::Get, "s", None, Value::Null).body["status"].as_str().unwrap().to_owned()
    }
}

fn open(
    logs: &Arc<Logs<StreamState>>,
    streams: &Arc<Streams>,
    config: &SubscriptionsConfig,
    folder: &tempfile::TempDir,
) -> Core {
    let store = Store::new(crate::MAIN, Arc::clone(logs), Some(Arc::clone(streams)));
    let stored = store.recover().unwrap();
    let keys = Arc::new(Keys::open(&folder.path().join("keys")).unwrap());
    // Wakes after a restart must not repeat ids of earlier wakes.
    let mut n = logs.journal().end().0 << 20;
    let random = Box::new(move || {
        n += 1;
        n
    });
    let mut core = Core::new(Arc::clone(streams) as _, config.clone(), keys, random);
    core.join(store, stored, Default::default(), Millis::ZERO);
    core
}

fn body_of(delivery: &Delivery) -> Value {
    serde_json::from_slice(&delivery.body).unwrap()
}

fn done(wake: &Value, acks: Value) -> Value {
    json!({"wake_id": wake["wake_id"], "generation": wake["generation"], "acks": acks, "done": true})
}

fn ack_all(wake: &Value) -> Value {
    let streams = wake["streams"].as_array().unwrap();
    streams.iter().map(|s| json!({"stream": s["path"], "offset": s["tail_offset"]})).collect()
}

#[test]
fn a_subscription_is_made_once_and_confirmed_after() {
    let mut rig = Rig::new();
    assert_eq!(rig.hook().status, 201);
    assert_eq!(rig.hook().status, 200);
    let other = json!({"type":"webhook","pattern":"x/*","webhook":{"url":"http://127.0.0.1:9/h"}});
    let got = rig.send(Method::Put, "s", None, other);
    assert_eq!((got.status, got.code()), (409, "SUBSCRIPTION_ALREADY_EXISTS"));
    assert_eq!(rig.send(Method::Delete, "s", None, Value::Null).status, 204);
    assert_eq!(rig.send(Method::Get, "s", None, Value::Null).code(), "SUBSCRIPTION_NOT_FOUND");
    assert_eq!(rig.send(Method::Delete, "s", None, Value::Null).status, 204);
}

#[test]
fn history_is_not_replayed_but_every_later_append_is_told() {
    let mut rig = Rig::new();
    rig.put("e/old");
    rig.append("e/old");
    rig.hook();
    rig.pass(10_000);
    assert!(rig.core.deliveries.is_empty());
    rig.append("e/old");
    let delivery = rig.delivery();
    let body = body_of(&delivery);
    assert_eq!(body["streams"][0]["path"], "e/old");
    assert_eq!(body["callback_url"], "http://h:1/v1/stream/__ds/subscriptions/s/callback");
    // The next wake covers content that arrives during this one.
    rig.append("e/old");
    rig.put("e/new");
    rig.append("e/new");
    assert!(rig.core.deliveries.is_empty());
    rig.result(&delivery, Outcome::Done);
    assert_eq!(rig.acked("e/old").as_deref(), body["streams"][0]["tail_offset"].as_str());
    let next = rig.delivery();
    assert_eq!(next.generation, delivery.generation + 1);
    let paths: Vec<&str> = next.tails.iter().map(|(path, _)| &**path).collect();
    assert_eq!(paths, ["e/new", "e/old"]);
    rig.result(&next, Outcome::Done);
    rig.pass(100_000);
    assert!(rig.core.deliveries.is_empty());
}

#[test]
fn only_what_is_durable_is_told() {
    let mut rig = Rig::new();
    rig.put("e/a");
    rig.hook();
    let waker = || Waker::from_fn(|| ());
    let mut cx = Context::detached(rig.now, &waker);
    let headers: &[(&str, &[u8])] = &[("content-type", b"application/json")];
    let request =
        Request { method: Method::Post, path: "/v1/stream/e/a", query: None, headers: Headers(headers), body: b"1" };
    let _ = rig.streams.handle(&request, &mut cx);
    let changes = rig.streams.take_changes();
    rig.core.learn(&changes, Millis(rig.now));
    rig.core.step(Millis(rig.now));
    assert!(rig.core.deliveries.is_empty());
    rig.step();
    rig.delivery();
}

#[test]
fn a_callback_extends_acknowledges_and_is_fenced_after() {
    let mut rig = Rig::new();
    rig.hook();
    rig.put("e/a");
    rig.append("e/a");
    let delivery = rig.delivery();
    let wake = body_of(&delivery);
    let token = wake["callback_token"].as_str().unwrap().to_owned();
    rig.result(&delivery, Outcome::Taken);
    rig.pass(900);
    let beat = json!({"wake_id": wake["wake_id"], "generation": wake["generation"]});
    assert_eq!(rig.send(Method::Post, "s/callback", Some(&token), beat.clone()).status, 200);
    rig.pass(900);
    let finish = done(&wake, ack_all(&wake));
    let got = rig.send(Method::Post, "s/callback", Some(&token), finish.clone());
    assert_eq!(got.body, json!({"ok": true, "next_wake": false}));
    let got = rig.send(Method::Post, "s/callback", Some(&token), finish);
    assert_eq!((got.status, got.code()), (409, "FENCED"));
    assert_eq!(rig.send(Method::Post, "s/callback", Some("x"), beat.clone()).code(), "TOKEN_INVALID");
    assert_eq!(rig.send(Method::Post, "s/callback", None, beat).code(), "TOKEN_INVALID");
}

#[test]
fn a_lease_that_ends_without_an_acknowledgement_wakes_again_and_fences_the_old_wake() {
    let mut rig = Rig::new();
    rig.hook();
    rig.put("e/a");
    rig.append("e/a");
    let first = rig.delivery();
    rig.result(&first, Outcome::Taken);
    rig.pass(999);
    assert!(rig.core.deliveries.is_empty());
    rig.pass(1);
    let second = rig.delivery();
    assert!(second.generation > first.generation);
    let wake = body_of(&first);
    let token = wake["callback_token"].as_str().unwrap().to_owned();
    assert_eq!(rig.send(Method::Post, "s/callback", Some(&token), done(&wake, json!([]))).code(), "FENCED");
    // The late answer to the first delivery changes nothing.
    rig.result(&first, Outcome::Done);
    assert_eq!(rig.acked("e/a").as_deref(), Some("-1"));
}

#[test]
fn a_failed_delivery_says_why_until_one_is_taken() {
    let mut rig = Rig::new();
    rig.hook();
    rig.put("e/a");
    rig.append("e/a");
    let why = |rig: &mut Rig| rig.send(Method::Get, "s", None, Value::Null).body["last_error"].clone();
    assert_eq!(why(&mut rig), Value::Null);
    let delivery = rig.delivery();
    rig.result(&delivery, Outcome::Failed("the receiver answered 500".into()));
    assert_eq!(why(&mut rig), "the receiver answered 500");
    rig.pass(10_000);
    let delivery = rig.delivery();
    rig.result(&delivery, Outcome::Failed("x".repeat(100_000)));
    assert_eq!(why(&mut rig).as_str().map(str::len), Some(300));
    rig.pass(10_000);
    let delivery = rig.delivery();
    rig.result(&delivery, Outcome::Done);
    assert_eq!((rig.status().as_str(), why(&mut rig)), ("active", Value::Null));
}

#[test]
fn failures_back_off_and_the_schedule_survives_a_restart() {
    let mut rig = Rig::new();
    rig.hook();
    rig.put("e/a");
    rig.append("e/a");
    for _ in 0..4 {
        let delivery = rig.delivery();
        rig.result(&delivery, Outcome::Failed("no".into()));
        assert_eq!(rig.status(), "failed");
        if !rig.core.deliveries.is_empty() {
            panic!("at once");
        }
        rig.pass(10_000);
    }
    let delivery = rig.delivery();
    rig.result(&delivery, Outcome::Failed("no".into()));
    // The fifth failure: 16 s, more or less a fifth.
    rig.reopen();
    assert!(rig.core.deliveries.is_empty());
    assert_eq!(rig.status(), "failed");
    rig.pass(12_000);
    assert!(rig.core.deliveries.is_empty());
    rig.pass(8_000);
    let delivery = rig.delivery();
    rig.result(&delivery, Outcome::Done);
    assert_eq!(rig.status(), "active");
}

#[test]
fn a_wake_that_nobody_is_known_to_have_taken_is_told_again_after_a_restart() {
    let mut rig = Rig::new();
    rig.hook();
    rig.put("e/a");
    rig.append("e/a");
    let before = rig.delivery();
    rig.reopen();
    let after = rig.delivery();
    assert_eq!((&after.wake, after.generation), (&before.wake, before.generation));
    rig.result(&after, Outcome::Taken);
    rig.reopen();
    assert!(rig.core.deliveries.is_empty(), "it was taken: its lease decides");
}

#[test]
fn what_was_appended_before_a_restart_is_told_after_it() {
    let mut rig = Rig::new();
    rig.hook();
    rig.put("e/a");
    // The driver ends before it has taken the reports.
    let body = b"{}";
    let waker = || Waker::from_fn(|| ());
    for (method, name) in [(Method::Post, "e/a"), (Method::Put, "e/b")] {
        let mut cx = Context::detached(rig.now, &waker);
        let path = format!("/v1/stream/{name}");
        let headers: &[(&str, &[u8])] = &[("content-type", b"application/json")];
        let request = Request { method, path: &path, query: None, headers: Headers(headers), body };
        let _ = rig.streams.handle(&request, &mut cx);
    }
    rig.journal.kick();
    let _ = rig.streams.take_changes();
    rig.reopen();
    let delivery = rig.delivery();
    let paths: Vec<&str> = delivery.tails.iter().map(|(path, _)| &**path).collect();
    assert_eq!(paths, ["e/a", "e/b"]);
}

#[test]
fn one_worker_holds_a_wake_and_the_claim_survives_a_restart() {
    let mut rig = Rig::new();
    rig.pull();
    rig.put("e/a");
    assert_eq!(rig.claim("one").code(), "NO_PENDING_WORK");
    rig.append("e/a");
    let wake = rig.claim("one").body;
    let token = wake["token"].as_str().unwrap().to_owned();
    let busy = rig.claim("two");
    assert_eq!((busy.status, busy.code()), (409, "ALREADY_CLAIMED"));
    assert_eq!(busy.body["error"]["current_holder"], "one");
    rig.reopen();
    assert_eq!(rig.claim("two").code(), "ALREADY_CLAIMED");
    let got = rig.send(Method::Post, "s/ack", Some(&token), done(&wake, ack_all(&wake)));
    assert_eq!(got.body, json!({"ok": true, "next_wake": false}));
    rig.append("e/a");
    let next = rig.claim("two").body;
    assert!(next["generation"].as_u64() > wake["generation"].as_u64());
    for route in ["s/ack", "s/release"] {
        assert_eq!(rig.send(Method::Post, route, Some(&token), done(&wake, json!([]))).code(), "FENCED");
    }
    let token = next["token"].as_str().unwrap().to_owned();
    assert_eq!(rig.send(Method::Post, "s/release", Some(&token), done(&next, json!([]))).status, 204);
    assert_eq!(rig.claim("three").status, 200, "a released wake is work again");
}

#[test]
fn an_expired_claim_is_fenced_after_a_restart_too() {
    let mut rig = Rig::new();
    rig.pull();
    rig.put("e/a");
    rig.append("e/a");
    let wake = rig.claim("one").body;
    let token = wake["token"].as_str().unwrap().to_owned();
    rig.now += 1_000;
    rig.reopen();
    assert_eq!(rig.send(Method::Post, "s/ack", Some(&token), done(&wake, ack_all(&wake))).code(), "FENCED");
    assert_eq!(rig.claim("two").status, 200);
}

#[test]
fn a_wake_event_stands_in_the_wake_stream_for_every_generation() {
    let mut rig = Rig::new();
    rig.pull();
    rig.put("e/a");
    let before = rig.streams.published("w").unwrap();
    rig.append("e/a");
    let after = rig.streams.published("w").unwrap();
    assert!(after.offset > before.offset);
    rig.append("e/a");
    assert_eq!(rig.streams.published("w").unwrap(), after, "one wake at a time");
    let wake = rig.claim("one").body;
    let token = wake["token"].as_str().unwrap().to_owned();
    rig.send(Method::Post, "s/release", Some(&token), done(&wake, json!([])));
    assert!(rig.streams.published("w").unwrap().offset > after.offset, "released work is announced again");
}

#[test]
fn a_missing_wake_stream_is_tried_again() {
    let mut rig = Rig::new();
    let body = json!({"type":"pull-wake","streams":["e/a"],"wake_stream":"w"});
    assert_eq!(rig.send(Method::Put, "s", None, body).status, 201);
    rig.put("e/a");
    rig.append("e/a");
    assert_eq!(rig.status(), "failed");
    rig.put("w");
    rig.pass(60_000);
    assert!(rig.streams.published("w").unwrap().offset.0 > 0);
    assert_eq!(rig.claim("one").status, 200);
    assert_eq!(rig.status(), "active");
}

#[test]
fn a_deleted_stream_leaves_its_pattern_and_one_made_again_starts_over() {
    let mut rig = Rig::new();
    rig.hook();
    rig.put("e/a");
    rig.append("e/a");
    let delivery = rig.delivery();
    rig.result(&delivery, Outcome::Done);
    rig.stream(Method::Delete, "e/a", b"");
    assert_eq!(rig.acked("e/a"), None);
    rig.put("e/a");
    rig.append("e/a");
    assert_eq!(rig.delivery().tails.len(), 1);
}

#[test]
fn a_stream_of_which_only_the_end_is_reported_is_unlinked() {
    let mut rig = Rig::new();
    rig.hook();
    rig.put("e/x");
    rig.append("e/x");
    assert_eq!(rig.acked("e/x").as_deref(), Some("-1"));
    // Of other nodes' streams a delete is reported alone.
    rig.change(Method::Delete, "e/x", &[], b"");
    let changes = rig.streams.take_changes();
    assert_eq!(changes.gone.len(), 1);
    let changes = thalweg_streams::Changes { logs: Vec::new(), ..changes };
    rig.core.learn(&changes, Millis(rig.now));
    assert_eq!(rig.acked("e/x"), None);
}

#[test]
fn explicit_links_come_and_go() {
    let mut rig = Rig::new();
    rig.hook();
    assert_eq!(rig.send(Method::Post, "s/streams", None, json!({"streams":["m/a","/m/b/"]})).status, 204);
    rig.put("m/b");
    rig.append("m/b");
    let delivery = rig.delivery();
    assert_eq!(&*delivery.tails[0].0, "m/b");
    rig.result(&delivery, Outcome::Done);
    assert_eq!(rig.send(Method::Delete, "s/streams/m%2Fb", None, Value::Null).status, 204);
    assert_eq!(rig.send(Method::Delete, "s/streams/m/b", None, Value::Null).status, 204);
    rig.append("m/b");
    assert!(rig.core.deliveries.is_empty());
    assert_eq!(rig.acked("m/a").as_deref(), Some("-1"));
}

#[test]
fn acknowledgements_are_checked() {
    let mut rig = Rig::new();
    rig.pull();
    rig.put("e/a");
    rig.append("e/a");
    let wake = rig.claim("one").body;
    let token = wake["token"].as_str().unwrap().to_owned();
    for ack in [
        json!([{"stream": "e/unlinked", "offset": "-1"}]),
        json!([{"stream": "e/a", "offset": "nonsense"}]),
        json!([{"stream": "e/a", "offset": "9999999999999999_9999999999999999"}]),
    ] {
        assert_eq!(rig.send(Method::Post, "s/ack", Some(&token), done(&wake, ack)).code(), "INVALID_OFFSET");
    }
    assert_eq!(rig.acked("e/a").as_deref(), Some("-1"));
    let offset = wake["streams"][0]["tail_offset"].clone();
    let ack = json!([{"stream": "e/a", "offset": offset}, {"stream": "e/a", "offset": "-1"}]);
    assert_eq!(rig.send(Method::Post, "s/ack", Some(&token), done(&wake, ack)).status, 200);
    assert_eq!(rig.acked("e/a").as_deref(), offset.as_str());
}

#[test]
fn acknowledging_for_ever_does_not_grow_the_log() {
    let mut rig = Rig::new();
    rig.pull();
    rig.put("e/a");
    let size = |rig: &Rig| {
        let mut guard = rig.logs.lock(&["__ds/subscriptions/s"]);
        let log = guard.find("__ds/subscriptions/s").unwrap();
        let view = guard.view(log).unwrap();
        (view.tail.since(view.start), view.tail.0)
    };
    for _ in 0..2_000 {
        rig.append("e/a");
        let wake = rig.claim("one").body;
        let token = wake["token"].as_str().unwrap().to_owned();
        assert_eq!(rig.send(Method::Post, "s/ack", Some(&token), done(&wake, ack_all(&wake))).status, 200);
        assert!(size(&rig).0 < 80 << 10);
    }
    assert!(size(&rig).1 > 300 << 10, "it was trimmed several times");
    let acked = rig.acked("e/a");
    rig.reopen();
    assert_eq!(rig.acked("e/a"), acked);
}

#[test]
fn every_refusal_has_a_request_that_meets_it() {
    let mut rig = Rig::with(SubscriptionsConfig {
        targets: Targets::Local,
        subscriptions_max: 2,
        streams_max: 2,
        ..SubscriptionsConfig::default()
    });
    rig.hook();
    let put = |rig: &mut Rig, id: &str, body: Value| rig.send(Method::Put, id, None, body);
    for body in [
        json!({}),
        json!([]),
        json!({"type":"webhook","pattern":"e/*"}),
        json!({"type":"webhook","webhook":{"url":"http://127.0.0.1:9/"}}),
        json!({"type":"pull-wake","pattern":"e/*"}),
        json!({"type":"pull-wake","pattern":"e/*","wake_stream":"__ds/x"}),
        json!({"type":"pull-wake","pattern":"e/*","wake_stream":"w","lease_ttl_ms":999}),
        json!({"type":"pull-wake","pattern":"e/*","wake_stream":"w","lease_ttl_ms":600_001}),
        json!({"type":"pull-wake","pattern":"x".repeat(1_025),"wake_stream":"w"}),
        json!({"type":"pull-wake","streams":["a//b"],"wake_stream":"w"}),
    ] {
        let got = put(&mut rig, "x", body.clone());
        assert_eq!((got.status, got.code()), (400, "INVALID_REQUEST"), "{body}");
    }
    let bad_id = "i".repeat(257);
    assert_eq!(rig.send(Method::Get, &bad_id, None, Value::Null).code(), "INVALID_REQUEST");
    assert_eq!(rig.send(Method::Get, "%00", None, Value::Null).code(), "INVALID_REQUEST");
    let url = json!({"type":"webhook","pattern":"e/*","webhook":{"url":"http://10.0.0.1/hook"}});
    let got = put(&mut rig, "x", url);
    assert_eq!((got.status, got.code()), (400, "WEBHOOK_URL_REJECTED"));
    assert_eq!(rig.claim("one").code(), "INVALID_REQUEST", "a webhook cannot be claimed");
    assert_eq!(rig.send(Method::Get, "none", None, Value::Null).status, 404);
    assert_eq!(rig.send(Method::Post, "s/nothing", None, Value::Null).code(), "NOT_FOUND");
    assert_eq!(rig.ask(Method::Get, "nothing", None, b"").code(), "NOT_FOUND");
    for (method, path) in [(Method::Post, "s"), (Method::Get, "s/claim"), (Method::Get, "s/streams/x")] {
        assert_eq!(rig.send(method, path, None, Value::Null).code(), "METHOD_NOT_ALLOWED");
    }
    let big = vec![b' '; routes::BODY_BYTES_MAX + 1];
    assert_eq!(rig.ask(Method::Put, "subscriptions/x", None, &big).code(), "TOO_LARGE");
    let many = json!({"streams":["m/1","m/2","m/3"]});
    assert_eq!(rig.send(Method::Post, "s/streams", None, many.clone()).code(), "TOO_MANY_STREAMS");
    let mut body = many;
    body["type"] = json!("pull-wake");
    body["wake_stream"] = json!("w");
    assert_eq!(put(&mut rig, "x", body).code(), "TOO_MANY_STREAMS");
    let fine = json!({"type":"pull-wake","pattern":"e/*","wake_stream":"w"});
    assert_eq!(put(&mut rig, "x", fine.clone()).status, 201);
    let got = put(&mut rig, "y", fine);
    assert_eq!((got.status, got.code()), (429, "TOO_MANY_SUBSCRIPTIONS"));
}

#[test]
fn the_table_of_refusals_is_complete() {
    use crate::Refusal as R;
    use std::collections::BTreeMap;
    let all = [
        R::Invalid(String::new()),
        R::Url(""),
        R::Token,
        R::NotFound,
        R::NoRoute,
        R::Method(""),
        R::Exists,
        R::Fenced,
        R::Claimed { holder: String::new(), generation: 0 },
        R::NoWork,
        R::Offset(String::new()),
        R::TooLarge(0),
        R::TooManySubscriptions(0),
        R::TooManyStreams(0),
        R::Busy,
        R::Unavailable(String::new()),
    ];
    let ours: BTreeMap<String, u16> = all.iter().map(|refusal| (refusal.code().into(), refusal.status())).collect();
    let page = include_str!("../../../../docs/protocol/refusals.md");
    let table = page.split("\n## Subscriptions").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let status = cells.next()?.parse().ok()?;
        Some((cells.next()?.trim_matches('`').to_owned(), status))
    };
    let documented: BTreeMap<String, u16> = table.lines().filter_map(row).collect();
    assert_eq!(ours, documented);
}

#[test]
fn a_full_disk_is_said_and_nothing_has_changed() {
    let mut rig = Rig::new();
    rig.logs.set_low_on_space(true);
    let got = rig.hook();
    assert_eq!((got.status, got.code()), (503, "UNAVAILABLE"));
    rig.logs.set_low_on_space(false);
    assert_eq!(rig.hook().status, 201);
    rig.put("e/a");
    rig.append("e/a");
    let delivery = rig.delivery();
    rig.logs.set_low_on_space(true);
    rig.result(&delivery, Outcome::Done);
    assert_eq!(rig.acked("e/a").as_deref(), Some("-1"), "not stored, so not so");
    rig.logs.set_low_on_space(false);
    rig.pass(2_000);
    let again = rig.delivery();
    rig.result(&again, Outcome::Done);
    assert_ne!(rig.acked("e/a").as_deref(), Some("-1"));
}

/// As on nodes: wake streams are in other journals.
#[test]
fn a_wake_event_whose_end_cannot_be_stored_is_told_again() {
    for outcome in [Outcome::Failed("the wake stream has no owner".into()), Outcome::Taken] {
        let mut rig = Rig::new();
        rig.put("w");
        let store = Store::new(crate::MAIN, Arc::clone(&rig.logs), None);
        rig.core.join(store, Vec::new(), Default::default(), Millis(rig.now));
        assert_eq!(rig.pull().status, 201);
        rig.put("e/a");
        rig.append("e/a");
        let delivery = rig.delivery();
        rig.logs.set_low_on_space(true);
        rig.result(&delivery, outcome);
        rig.pass(500);
        assert!(rig.core.deliveries.is_empty(), "it rests");
        rig.logs.set_low_on_space(false);
        rig.pass(1_000);
        let again = rig.delivery();
        assert_eq!(body_of(&again)["generation"], body_of(&delivery)["generation"]);
        rig.result(&again, Outcome::Taken);
        rig.pass(5_000);
        assert!(rig.core.deliveries.is_empty(), "once it is stored it is not told again");
    }
}

#[test]
fn the_end_of_a_delivery_acknowledges_nothing_of_a_stream_that_was_made_again() {
    let mut rig = Rig::with_store();
    rig.join();
    rig.hook();
    rig.stream_as(Method::Put, "e/a", &[("stream-durability", b"replicated")], b"[]");
    rig.append("e/a");
    let delivery = rig.delivery();
    // Made again in the unit of the data folder, whose ids are lower.
    rig.stream(Method::Delete, "e/a", b"");
    rig.put("e/a");
    rig.append("e/a");
    rig.result(&delivery, Outcome::Done);
    rig.pass(2_000);
    let told = rig.delivery();
    assert_eq!(body_of(&told)["streams"][0]["path"], "e/a", "the new stream's message is told");
}

/// The thread and the client, against a receiver that takes the first request and says nothing more.
#[test]
fn a_delivery_reaches_its_receiver_and_a_full_queue_refuses() {
    use std::io::{Read, Write};
    let rig = Rig::new();
    let clock = || Millis(1_800_000_000_000);
    let start = |config: SubscriptionsConfig| {
        let keys = Keys::open(&rig.folder.path().join("keys")).unwrap();
        let (logs, streams) = (Arc::clone(&rig.logs), Arc::clone(&rig.streams));
        crate::Subscriptions::open(logs, streams, config, keys, clock, Box::new(|| 7)).unwrap()
    };
    let waker = || Waker::from_fn(|| ());
    let ask = |subscriptions: &crate::Subscriptions, body: &str| {
        let mut cx = Context::detached(0, &waker);
        let path = "/v1/stream/__ds/subscriptions/s";
        let headers: &[(&str, &[u8])] = &[("host", b"h")];
        let request =
            Request { method: Method::Put, path, query: None, headers: Headers(headers), body: body.as_bytes() };
        assert!(subscriptions.serves(path));
        subscriptions.handle(&request, &mut cx)
    };
    let receiver = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", receiver.local_addr().unwrap());
    let body = json!({"type":"webhook","streams":["a"],"webhook":{"url":url}}).to_string();

    let full = start(SubscriptionsConfig { queue_max: 0, targets: Targets::Local, ..SubscriptionsConfig::default() });
    let Reply::Now(refused) = ask(&full, &body) else { panic!("it waits") };
    assert_eq!(refused.status, 503);
    assert!(String::from_utf8(refused.head).unwrap().contains("retry-after: 1"));
    full.stop();

    let config = SubscriptionsConfig { targets: Targets::Local, ..SubscriptionsConfig::default() };
    let streams = Arc::clone(&rig.streams);
    rig.journal.subscribe(Arc::new(move || streams.on_durable()));
    // The earlier observer stays: the driver itself reads these streams.
    let subscriptions = start(config);
    let mut waiting = ask(&subscriptions, &body);
    let Reply::Later(pending) = &mut waiting else { panic!("at once") };
    let mut cx = Context::detached(0, &waker);
    let mut status = 0;
    while status == 0 {
        match pending.poll(&mut cx) {
            thalweg_http::Poll::Ready(Reply::Held(_, response) | Reply::Now(response)) => status = response.status,
            _ => std::thread::yield_now(),
        }
    }
    assert_eq!(status, 201);
    let mut rig = rig;
    let headers: &[(&str, &[u8])] = &[("content-type", b"application/json")];
    let request =
        Request { method: Method::Put, path: "/v1/stream/a", query: None, headers: Headers(headers), body: b"1" };
    let _ = rig.streams.handle(&request, &mut cx);
    rig.journal.kick();
    let (mut socket, _) = receiver.accept().unwrap();
    let mut bytes = [0; 4096];
    let n = socket.read(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes[..n]).to_lowercase();
    assert!(text.starts_with("post /hook http/1.1"), "{text}");
    assert!(text.contains("webhook-signature: t=1800000000,kid=ds_"), "{text}");
    socket.write_all(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n").unwrap();
    while subscriptions.stats().failed == 0 {
        std::thread::yield_now();
    }
    subscriptions.stop();
    rig.step();
}

#[test]
fn streams_over_the_limit_are_left_out_and_counted() {
    let mut rig =
        Rig::with(SubscriptionsConfig { targets: Targets::Local, streams_max: 1, ..SubscriptionsConfig::default() });
    rig.hook();
    rig.put("e/a");
    rig.put("e/b");
    rig.append("e/b");
    assert!(rig.core.deliveries.is_empty());
    assert!(rig.core.stats.unlinked >= 1);
    assert_eq!(rig.acked("e/b"), None);
}

#[test]
fn nothing_that_is_sent_panics() {
    let mut rig = Rig::new();
    rig.hook();
    let mut random = 7_u64;
    let mut any = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    let words = [
        "s",
        "x",
        "/",
        "%",
        "%2",
        "%zz",
        "%ff",
        "streams",
        "claim",
        "ack",
        "..",
        "\u{e9}",
        "{",
        "\"type\":",
        "[",
        "1e9",
    ];
    for _ in 0..5_000 {
        let text =
            |any: &mut dyn FnMut() -> usize| -> String { (0..any() % 5).map(|_| words[any() % words.len()]).collect() };
        let (path, body) = (format!("subscriptions/{}", text(&mut any)), text(&mut any));
        let method = [Method::Put, Method::Get, Method::Post, Method::Delete][any() % 4];
        let _ = rig.ask(method, &path, Some("1.w.x"), body.as_bytes());
    }
}

const REPLICATED: &[(&str, &[u8])] = &[("stream-durability", b"replicated")];

#[test]
fn replicated_streams_wake_as_others_do() {
    let mut rig = Rig::with_store();
    rig.join();
    rig.stream_as(Method::Put, "e/old", REPLICATED, b"[]");
    rig.stream_as(Method::Put, "w", REPLICATED, b"[]");
    let body = json!({"type":"pull-wake","pattern":"e/*","wake_stream":"w","lease_ttl_ms":1000});
    assert_eq!(rig.send(Method::Put, "s", None, body).status, 201);
    let end = |rig: &Rig| rig.streams.published("w").unwrap();
    let before = end(&rig);
    rig.append("e/old");
    let first = end(&rig);
    assert!(first.offset > before.offset, "the wake stream got an event");
    let claimed = rig.claim("me");
    assert_eq!((claimed.status, &claimed.body["streams"][0]["path"]), (200, &json!("e/old")));
    let token = claimed.body["token"].as_str().unwrap().to_owned();
    let offset = claimed.body["streams"][0]["tail_offset"].clone();
    let done = json!({
        "wake_id": claimed.body["wake_id"], "generation": claimed.body["generation"],
        "acks": [{"stream": "e/old", "offset": offset}], "done": true,
    });
    assert_eq!(rig.send(Method::Post, "s/ack", Some(&token), done).status, 200);
    // A new one is linked by the pattern, and unlinked when it goes.
    rig.stream_as(Method::Put, "e/new", REPLICATED, b"[]");
    let linked =
        |rig: &mut Rig| rig.send(Method::Get, "s", None, Value::Null).body["streams"].as_array().unwrap().len();
    assert_eq!(linked(&mut rig), 2);
    rig.stream(Method::Delete, "e/new", b"");
    assert_eq!(linked(&mut rig), 1);
}

#[test]
fn the_event_of_an_unclaimed_wake_is_told_again_after_a_restart() {
    let mut rig = Rig::with_store();
    rig.join();
    rig.stream_as(Method::Put, "w", REPLICATED, b"[]");
    rig.put("e/a");
    let body = json!({"type":"pull-wake","pattern":"e/*","wake_stream":"w","lease_ttl_ms":1000});
    rig.send(Method::Put, "s", None, body);
    rig.append("e/a");
    let told = rig.streams.published("w").unwrap().offset;
    // The event may have been lost with the machine, before the bucket had it.
    rig.reopen();
    let again = rig.streams.published("w").unwrap().offset;
    assert!(again > told);
    rig.step();
    assert_eq!(rig.streams.published("w").unwrap().offset, again, "once");
    assert_eq!(rig.claim("me").status, 200);
    rig.reopen();
    assert_eq!(rig.streams.published("w").unwrap().offset, again, "a claimed wake is known");
}

#[test]
fn nothing_is_unlinked_while_not_all_streams_can_be_found() {
    let mut rig = Rig::with_store();
    let refused = rig.hook();
    assert_eq!((refused.status, refused.code()), (503, "UNAVAILABLE"));
    rig.join();
    rig.stream_as(Method::Put, "e/a", REPLICATED, b"[]");
    assert_eq!(rig.hook().status, 201);
    let replicated = rig.replicated.take();
    // A start before the bucket has answered.
    let streams = StreamsConfig { has_store: true, ..StreamsConfig::default() };
    rig.streams = Streams::new(Arc::clone(&rig.logs), streams);
    rig.reopen();
    let linked = rig.send(Method::Get, "s", None, Value::Null);
    assert_eq!(linked.body["streams"].as_array().unwrap().len(), 1, "{:?}", linked.body);
    drop(replicated);
}

/// The ids of one unit's logs are below those of the other: positions of two streams do not compare.
#[test]
fn a_link_begins_anew_when_its_stream_is_made_again_in_another_unit() {
    let mut rig = Rig::with_store();
    rig.join();
    rig.stream_as(Method::Put, "e/a", REPLICATED, b"[1]");
    assert_eq!(rig.hook().status, 201);
    rig.stream(Method::Delete, "e/a", b"");
    rig.put("e/a");
    rig.append("e/a");
    let (_, _, delivery) = rig.core.deliveries.pop().expect("a wake for the new stream");
    let body: Value = serde_json::from_slice(&delivery.body).unwrap();
    assert_eq!(body["streams"][0]["path"], json!("e/a"));
    // Also if nobody looked between the delete and the making.
    rig.stream_as(Method::Put, "b", REPLICATED, b"[1]");
    let body = json!({"type":"webhook","streams":["b"],"webhook":{"url":"http://127.0.0.1:9/h"},"lease_ttl_ms":1000});
    assert_eq!(rig.send(Method::Put, "t", None, body).status, 201);
    assert!(rig.core.deliveries.is_empty(), "linked at its end");
    rig.change(Method::Delete, "b", &[], b"");
    rig.change(Method::Put, "b", &[], b"[]");
    rig.append("b");
    let (_, _, delivery) = rig.core.deliveries.pop().expect("a wake for the new stream");
    assert_eq!(delivery.subscription, "t");
}
