//! Two desks, with a unit each, and a table that follows both.

use super::{Cluster, Desk, NewsRequest, Source, Spread};
use crate::watched::{Interest, Watched};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_http::{Context, Headers, Method, Request, Waker};
use thalweg_journal::{Journal, MemoryJournal, Options};
use thalweg_log::{Logs, LogsOptions, Loss};
use thalweg_manifest::MemoryManifest;
use thalweg_storage::MemoryStorage;
use thalweg_streams::{StreamState, Streams, StreamsConfig};

const UNITS: u64 = 2;
const WITHIN: Duration = Duration::from_secs(30);

fn logs(ids_from: u64) -> (Arc<MemoryJournal>, Arc<Logs<StreamState>>) {
    let journal = Arc::new(MemoryJournal::new(Options::default()));
    let options = LogsOptions { ids_from, ..LogsOptions::default() };
    let (storage, manifest) = (Arc::new(MemoryStorage::new()), Arc::new(MemoryManifest::new()));
    let opening = Logs::begin(options, storage, manifest, Loss::Nothing).unwrap();
    let logs = opening.finish(Arc::clone(&journal) as _).unwrap();
    (journal, Arc::new(logs))
}

/// A node, as far as its desk goes.
struct Node {
    name: &'static str,
    streams: Arc<Streams>,
    desk: Arc<Desk>,
    /// The units that it serves by a lease, with their epochs.
    leased: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Node {
    fn new(name: &'static str) -> Self {
        let config = StreamsConfig { units_of_nodes: UNITS as usize, ..StreamsConfig::default() };
        let streams = Streams::new(logs(1).1, config);
        let leased: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let of_desk = Arc::clone(&leased);
        let desk = Desk::new(Arc::clone(&streams), name.into(), Box::new(move || of_desk.lock().clone()));
        Self { name, streams, desk, leased }
    }

    fn take(&self, unit: u64, epoch: u64, (journal, logs): &(Arc<MemoryJournal>, Arc<Logs<StreamState>>)) {
        if let Some(wake) = self.streams.join_unit(unit, Arc::clone(logs)) {
            journal.subscribe(Arc::new(wake));
        }
        self.leased.lock().push((unit, epoch));
    }

    fn give_up(&self, unit: u64) {
        self.leased.lock().retain(|(leased, _)| *leased != unit);
        self.streams.leave_unit(unit);
    }

    /// Changes a stream of a unit; durable once its journal is kicked. By a grant, so that any name may be in any unit.
    fn change(&self, unit: u64, method: Method<'_>, name: &str, body: &[u8]) {
        let path = format!("/v1/stream/{name}");
        let headers: [(&str, &[u8]); 2] = [("content-type", b"text/plain"), (thalweg_streams::GRANT, b"1")];
        let request = Request { method, path: &path, query: None, headers: Headers(&headers), body };
        let waker = || Waker::from_fn(|| ());
        let mut cx = Context::detached(1_800_000_000_000, &waker);
        assert!(self.streams.handle_in(unit, &request, &mut cx).is_some());
    }
}

struct Nodes(Mutex<Vec<(String, Arc<dyn Source>)>>);

impl Cluster for Nodes {
    fn sources(&self) -> Vec<(String, Arc<dyn Source>)> {
        self.0.lock().clone()
    }
}

fn all(nodes: &[&Node]) -> Vec<(String, Arc<dyn Source>)> {
    nodes.iter().map(|node| (node.name.to_owned(), Arc::clone(&node.desk) as Arc<dyn Source>)).collect()
}

struct Table {
    spread: Arc<Spread>,
    bell: Arc<(Mutex<u64>, Condvar)>,
}

impl Table {
    fn of(nodes: &Arc<Nodes>) -> Self {
        let spread = Spread::start(UNITS, Arc::clone(nodes) as _).unwrap();
        let bell = Arc::new((Mutex::new(0), Condvar::new()));
        let rings = Arc::clone(&bell);
        spread.observe(Arc::new(move || {
            *rings.0.lock() += 1;
            rings.1.notify_all();
        }));
        Self { spread, bell }
    }

    fn until(&self, what: &str, mut is_so: impl FnMut(&Spread) -> bool) {
        let began = Instant::now();
        let mut rung = self.bell.0.lock();
        while !is_so(&self.spread) {
            assert!(began.elapsed() < WITHIN, "{what}");
            self.bell.1.wait_for(&mut rung, Duration::from_millis(20));
        }
    }

    /// Waits for everything that is visible now.
    fn catch_up(&self) {
        let mark = self.spread.mark();
        self.until("the mark is passed", |spread| spread.passed() >= mark && spread.is_complete());
    }

    fn end_of(&self, name: &str) -> Option<u64> {
        self.spread.published(name).map(|end| end.offset.0)
    }
}

fn wish(pattern: &str) -> Interest {
    Interest { patterns: vec![pattern.into()], names: Vec::new() }
}

#[test]
fn a_mark_that_is_passed_shows_what_was_visible_on_every_node() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let (first, second) = (logs(1_000), logs(2_000));
    a.take(0, 1, &first);
    b.take(1, 1, &second);
    let nodes = Arc::new(Nodes(Mutex::new(all(&[&a, &b]))));
    let table = Table::of(&nodes);
    a.change(0, Method::Put, "t/old", b"123");
    first.0.kick();
    table.spread.want(wish("t/*"));
    table.catch_up();
    assert_eq!(table.end_of("t/old"), Some(3));
    for n in 0..50 {
        let (node, unit) = if n % 2 == 0 { (&a, 0) } else { (&b, 1) };
        node.change(unit, Method::Put, &format!("t/{n}"), b"");
        node.change(unit, Method::Post, &format!("t/{n}"), b"12345");
        first.0.kick();
        second.0.kick();
        table.catch_up();
        assert_eq!(table.end_of(&format!("t/{n}")), Some(5));
    }
    // What is not durable is not shown, and a delete neither.
    b.change(1, Method::Post, "t/1", b"6");
    b.change(1, Method::Delete, "t/3", b"");
    table.catch_up();
    assert_eq!((table.end_of("t/1"), table.end_of("t/3")), (Some(5), Some(5)));
    second.0.kick();
    table.catch_up();
    assert_eq!((table.end_of("t/1"), table.end_of("t/3")), (Some(6), None));
    let changes = table.spread.take_changes();
    assert!(changes.gone.iter().any(|(_, name)| &**name == "t/3"));
    assert_eq!(table.end_of("u"), None);
}

#[test]
fn a_unit_that_moves_is_asked_for_at_its_new_owner() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let (first, second) = (logs(1_000), logs(2_000));
    a.take(0, 1, &first);
    b.take(1, 1, &second);
    a.change(0, Method::Put, "kept", b"1");
    a.change(0, Method::Put, "lost", b"1");
    first.0.kick();
    let nodes = Arc::new(Nodes(Mutex::new(all(&[&a, &b]))));
    let table = Table::of(&nodes);
    table.spread.want(wish("*"));
    table.catch_up();
    assert_eq!((table.end_of("kept"), table.end_of("lost")), (Some(1), Some(1)));
    // The owner dies: nobody knows whether its streams are still there.
    *nodes.0.lock() = all(&[&b]);
    a.give_up(0);
    table.until("the unit is away", |spread| !spread.is_complete());
    assert!(!table.spread.is_settled("missing") && table.spread.is_settled("kept"));
    let mark = table.spread.mark();
    assert!(table.spread.passed() < mark);
    // Another history of the unit: one of its streams was deleted by the next owner, another one has grown.
    let third = logs(3_000);
    b.take(0, 2, &third);
    b.change(0, Method::Put, "kept", b"12");
    third.0.kick();
    table.until("the unit is back", Watched::is_complete);
    table.catch_up();
    assert_eq!((table.end_of("kept"), table.end_of("lost")), (Some(2), None));
    assert!(table.spread.is_settled("missing"));
}

#[test]
fn a_follower_that_the_desk_has_forgotten_changes_for_hears_of_it() {
    let node = Node::new("a");
    let unit = logs(1_000);
    node.take(0, 1, &unit);
    let (first, is_new) = node.desk.answer(&NewsRequest::default());
    assert!(is_new && first.changes.is_empty() && first.units.len() == 1);
    node.change(0, Method::Put, "x", b"1");
    unit.0.kick();
    let ask = NewsRequest { session: first.session.clone(), after: first.seq, wait_ms: 0 };
    let (second, _) = node.desk.answer(&ask);
    assert_eq!(second.changes.len(), 1);
    // The same question has the same answer, and one from another session none of it.
    assert_eq!(node.desk.answer(&ask).0.changes, second.changes);
    let other = NewsRequest { session: "other".into(), ..ask };
    assert!(node.desk.answer(&other).0.changes.is_empty());
    // Every name once, however often it changes.
    for _ in 0..10 {
        node.change(0, Method::Post, "x", b"1");
        unit.0.kick();
    }
    assert_eq!(node.desk.answer(&ask).0.changes.len(), 1);
}
