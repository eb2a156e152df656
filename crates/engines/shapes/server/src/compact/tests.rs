//! A shape on a kernel unit in a folder, and clients of it that began at different times. After any sequence of merges,
//! removals and crashes each client has the rows, or is told to begin again.

use super::make::{delta_max, make, show};
use super::pace::Pace;
use crate::config::ShapesConfig;
use crate::format::note::{ShapeNote, Stored};
use crate::format::references::{Group, References};
use crate::read;
use crate::serve::read_plan::{ReadPlan, plan_read};
use crate::serve::settings::Settings;
use crate::server::ShapesServer;
use crate::shape::Shape;
use crate::state::transaction::Transaction;
use crate::store::Store;
use crate::trim_index::TrimPoint;
use proptest::prelude::*;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use thalweg_journal::Options;
use thalweg_log::Lengths;
use thalweg_pg::PgLsn;
use thalweg_shapes_core::encode::projection::{Difference, Place, Projection};
use thalweg_shapes_core::route::ids::{ProjectionId, RouteId};
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_model::definition::{Definition, Identity, LogMode, Replica};
use thalweg_shapes_model::handle::Handle;
use thalweg_shapes_model::offset::From;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_model::table::sample::{self, TEXT, column};
use thalweg_shapes_source::clock::SystemClock;

const HANDLE: &str = "1-1";

fn table() -> Table {
    let columns = vec![column("id", TEXT, Some(0)), column("a", TEXT, None), column("b", TEXT, None)];
    Table { oid: 16_500, ..sample::table("t", columns) }
}

/// Two columns of a row; the first is the key.
type Cells = [Option<String>; 3];

fn cells(row: &Cells) -> [Option<&[u8]>; 3] {
    row.each_ref().map(|cell| cell.as_ref().map(String::as_bytes))
}

fn open(folder: &Path, chunk_bytes: u64) -> Arc<ShapesServer> {
    open_with(folder, chunk_bytes, 1 << 30)
}

fn open_with(folder: &Path, chunk_bytes: u64, log_bytes_max: u64) -> Arc<ShapesServer> {
    let options = Options { segment_bytes: 2 << 20, max_payload: 1 << 20, batch_bytes: 1 << 20, ..Options::default() };
    let logs = crate::unit::open_with(folder, options);
    let database: thalweg_pg::Config = "postgres://nobody@localhost/nothing".parse().unwrap();
    let config = ShapesConfig {
        database: database.clone(),
        query_database: database,
        secret: None,
        http: Settings { chunk_bytes, ..Settings::default() },
        shapes_max: 10,
        log_bytes_max,
        log_keep_ms: 60_000,
        compact_bytes: 1,
        connections: 1,
        stream_id: "test".into(),
        stack: None,
        ownership: Default::default(),
        manual_publishing: false,
        temporary_slot: false,
        failover_slot: false,
        database_idle: std::time::Duration::ZERO,
        ephemeral: false,
        spill: folder.join("spill"),
        hot_bytes: 4 << 10,
        io_threads: 1,
        unsent_bytes_max: 1 << 30,
    };
    Arc::new(ShapesServer::new(config, Store::open(logs).unwrap(), Arc::new(SystemClock)))
}

/// A model of the table's rows, and the server whose answers are compared with it.
struct World {
    folder: TempDir,
    chunk_bytes: u64,
    log_bytes_max: u64,
    server: Arc<ShapesServer>,
    projection: Projection,
    rows: BTreeMap<String, Cells>,
    lsn: u64,
    tail: u64,
    references_tail: u64,
}

impl World {
    /// One shape with these rows.
    fn new(rows: &[Cells], log: LogMode, replica: Replica, chunk_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = open(folder.path(), chunk_bytes);
        let definition = Definition { log, replica, ..Definition::of_table("public", "t") };
        let projection = Projection::all(&table(), replica);
        let stored = Stored {
            number: 1,
            table: table().oid,
            definition,
            identity: Identity::of(b"t"),
            snapshot: None,
            chunks: Vec::new(),
            complete: false,
            rows_gone: false,
        };
        server.changes.store.put_table(&table()).unwrap();
        let (shape, _) = server.changes.store.create_shape(HANDLE.parse().unwrap(), &stored, None).unwrap();
        let snapshot = PgSnapshot { lsn: 10, ..("5:5:".parse().unwrap()) };
        let mut ends = 0;
        let none = Lengths::default();
        server.changes.store.write_shape(shape, Some(&ShapeNote::SnapshotTaken(snapshot)), b"", &none).unwrap();
        for rows in rows.chunks(3) {
            let (mut bytes, mut lengths) = (Vec::new(), Lengths::default());
            for row in rows {
                let before = bytes.len();
                projection.snapshot_row(&cells(row), &mut bytes);
                lengths.push((bytes.len() - before) as u32);
            }
            ends += bytes.len() as u64;
            server.changes.store.write_shape(shape, Some(&ShapeNote::ChunkEnd(ends)), &bytes, &lengths).unwrap();
        }
        if rows.is_empty() {
            server.changes.store.write_shape(shape, Some(&ShapeNote::ChunkEnd(0)), b"", &none).unwrap();
        }
        server.changes.store.write_shape(shape, Some(&ShapeNote::Complete), b"", &none).unwrap();
        let rows = rows.iter().map(|row| (row[0].clone().unwrap(), row.clone())).collect();
        let mut world = Self {
            folder,
            chunk_bytes,
            log_bytes_max: 1 << 30,
            server,
            projection,
            rows,
            lsn: 100,
            tail: 0,
            references_tail: 0,
        };
        world.restart();
        world
    }

    /// As after `kill -9`, of what had been written.
    fn restart(&mut self) {
        let end = self.server.changes.store.logs().journal().end();
        self.server.changes.store.wait(end).unwrap();
        self.server.lifetime.stop();
        let empty = tempfile::tempdir().unwrap();
        // The folder has one owner at a time.
        let idle = std::mem::replace(&mut self.server, open(empty.path(), self.chunk_bytes));
        drop(idle);
        self.server = open_with(self.folder.path(), self.chunk_bytes, self.log_bytes_max);
        self.server.recover().unwrap();
        (self.tail, self.references_tail) =
            (self.server.changes.store.changes_tail(), self.server.changes.store.references_tail());
        self.server.watermarks.set_published(self.tail);
    }

    fn shape(&self) -> Arc<Shape> {
        Arc::clone(self.server.catalog.registry.read().by_handle(HANDLE).expect("the shape is there"))
    }

    /// A transaction that sets these rows to the given values.
    fn apply(&mut self, changes: &[(Cells, bool)]) {
        self.lsn += 10;
        let mut transaction = Transaction::new(self.lsn as u32, self.lsn, 1000);
        for (row, there) in changes {
            let key = row[0].clone().unwrap();
            let old = self.rows.get(&key).cloned();
            let place = Place { xid: transaction.xid, lsn: transaction.lsn, op: transaction.op() };
            let mut body = Vec::new();
            match (old, there) {
                (None, true) => self.projection.insert(place, &cells(row), &mut body),
                (Some(old), false) => self.projection.delete(place, &cells(&old), &mut body),
                (Some(old), true) => match self.projection.difference(&cells(&old), &cells(row)) {
                    Difference::Columns => self.projection.update(place, &cells(&old), &cells(row), &mut body),
                    _ => continue,
                },
                (None, false) => continue,
            }
            transaction.add(ProjectionId(0), &[RouteId(0)], place.op, |out| out.extend_from_slice(&body));
            if *there {
                self.rows.insert(key, row.clone())
            } else {
                self.rows.remove(&key)
            };
        }
        if transaction.is_empty() {
            return;
        }
        let first = self.tail;
        let (bodies, lengths) = transaction.place(self.tail);
        let group = |placed: &crate::state::transaction::Placed| Group {
            at: placed.at,
            len: placed.len,
            op: placed.op,
            shapes: [1].into(),
        };
        let groups = transaction.placed().iter().map(group).collect();
        let references = References { groups, ..References::new(self.lsn, transaction.xid) };
        let written = self.server.changes.store.write_changes(&bodies, &lengths, &[references]).unwrap();
        self.server.changes.trim_index.lock().note(TrimPoint { bodies: first, references: self.references_tail });
        self.references_tail += written.references;
        self.tail += bodies.len() as u64;
        self.server.changes.recent_window.push(&self.server.changes.store, first, bodies, written.end).unwrap();
        self.server.watermarks.set_applied(PgLsn(self.lsn));
        let shape = self.shape();
        for placed in transaction.placed() {
            let entry = Entry { lsn: self.lsn, at: placed.at, op: placed.op, len: placed.len };
            shape.lock().push(transaction.xid, entry, self.chunk_bytes);
        }
        self.server.watermarks.processed(PgLsn(self.lsn));
        self.server.watermarks.set_published(self.tail);
    }

    fn compact(&self, delta_max: usize) -> bool {
        let mut pace = Pace::new(Arc::new(SystemClock));
        let Some(made) = make(&self.server.compactor, &self.shape(), &mut pace, delta_max).unwrap() else {
            return false;
        };
        self.server.changes.store.wait(made.durable).unwrap();
        show(&self.server.compactor, made);
        true
    }

    /// The rows that a client of the shape must have.
    fn truth(&self) -> BTreeMap<String, Map<String, Value>> {
        let value = |row: &Cells| {
            let names = ["id", "a", "b"].into_iter();
            names.zip(row).map(|(name, cell)| (name.to_owned(), cell.clone().map_or(Value::Null, Into::into))).collect()
        };
        self.rows.iter().map(|(key, row)| (format!("\"public\".\"t\"/\"{key}\""), value(row))).collect()
    }
}

#[derive(Clone, Debug, Default)]
struct Client {
    handle: Option<String>,
    from: Option<From>,
    rows: BTreeMap<String, Map<String, Value>>,
    /// Deletes of rows that it has not, inserts of rows that it has.
    odd: Vec<String>,
}

enum Read {
    More,
    UpToDate,
    /// It must begin again, with this handle.
    Again(String),
}

impl Client {
    fn read(&mut self, server: &ShapesServer, shape: &Shape) -> Read {
        let from = self.from.unwrap_or(From::Start);
        let base = self.handle.as_ref().map(|handle| Handle::parse(handle).base);
        let found = plan_read(&shape.lock(), base, from, false, server.watermarks.processed_lsn().0);
        let answer = match found {
            ReadPlan::Answer(answer) => answer,
            ReadPlan::Past => return Read::Again(shape.newest_handle()),
            other => panic!("{from}: {other:?}"),
        };
        let messages = answer
            .range
            .as_ref()
            .map(|wanted| read::joined(read::read(shape.number, wanted, server.changes.sources()).unwrap()));
        let messages = messages.unwrap_or_default();
        let messages = match answer.skip {
            Some(from) => read::skip(&messages, from),
            None => messages,
        };
        assert_eq!(read::split(&messages).map(|message| message.len() + 1).sum::<usize>(), messages.len());
        for message in read::split(&messages) {
            self.take(&serde_json::from_slice(message).unwrap());
        }
        self.handle.get_or_insert_with(|| shape.handle_of(answer.base));
        self.from = Some(From::After(answer.end));
        if answer.up_to_date.is_some() { Read::UpToDate } else { Read::More }
    }

    fn take(&mut self, message: &Value) {
        let (key, value) = (message["key"].as_str().unwrap().to_owned(), message["value"].as_object().unwrap().clone());
        let odd = match message["headers"]["operation"].as_str().unwrap() {
            "insert" => self.rows.insert(key.clone(), value).is_some(),
            "update" => {
                let known = self.rows.contains_key(&key);
                self.rows.entry(key.clone()).or_default().extend(value);
                !known
            }
            _ => self.rows.remove(&key).is_none(),
        };
        if odd {
            self.odd.push(message.to_string());
        }
    }

    /// Reads to the end; whether it could.
    fn follow(&mut self, server: &ShapesServer, shape: &Shape) -> bool {
        loop {
            match self.read(server, shape) {
                Read::More => {}
                Read::UpToDate => return true,
                Read::Again(handle) => {
                    assert_ne!(Some(handle), self.handle, "a client never takes the handle that it was sent away with");
                    return false;
                }
            }
        }
    }
}

fn row(key: &str, a: &str, b: Option<&str>) -> Cells {
    [Some(key.to_owned()), Some(a.to_owned()), b.map(ToOwned::to_owned)]
}

fn rows(count: u32) -> Vec<Cells> {
    (0..count).map(|n| row(&format!("k{n}"), "first", None)).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<(Cells, bool)>),
    Compact {
        parts: bool,
    },
    /// Gives up all bases but the newest.
    Release,
    Restart,
    /// A client begins, and reads so many answers for now.
    Begin(usize),
    /// A present client reads so many answers.
    Go(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = "[a-c{}\",\\\\]{0,8}";
    let change = (0..9_u32, text, prop::option::of(text), prop::bool::weighted(0.7))
        .prop_map(|(key, a, b, there)| (row(&format!("k{key}"), &a, b.as_deref()), there));
    let step = prop_oneof![
        6 => prop::collection::vec(change, 1..6).prop_map(Step::Apply),
        2 => any::<bool>().prop_map(|parts| Step::Compact { parts }),
        1 => Just(Step::Release),
        1 => Just(Step::Restart),
        2 => (0..4_usize).prop_map(Step::Begin),
        3 => (any::<usize>(), 1..3_usize).prop_map(|(who, reads)| Step::Go(who, reads)),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_client_has_the_rows_or_is_told_to_begin_again(
        steps in steps(), first in 0..5_u32, full: bool, chunk_bytes in 200..2000_u64,
    ) {
        let replica = if full { Replica::Full } else { Replica::Default };
        let mut world = World::new(&rows(first), LogMode::Full, replica, chunk_bytes);
        let mut clients: Vec<Client> = Vec::new();
        let mut released = false;
        for step in steps {
            match step {
                Step::Apply(changes) => world.apply(&changes),
                Step::Compact { parts } => {
                    world.compact(if parts { 300 } else { delta_max() });
                }
                Step::Release => {
                    released |= world.shape().lock().bases.is_some();
                    world.server.retirement.release_bases(&world.shape(), u64::MAX).unwrap();
                    prop_assert!(world.shape().lock().bases.as_ref().is_none_or(|bases| bases.count() == 1));
                }
                Step::Restart => world.restart(),
                Step::Begin(reads) => {
                    let mut client = Client::default();
                    (0..reads).for_each(|_| drop(client.read(&world.server, &world.shape())));
                    clients.push(client);
                }
                Step::Go(who, reads) if !clients.is_empty() => {
                    let at = who % clients.len();
                    let again = (0..reads).any(|_| matches!(clients[at].read(&world.server, &world.shape()), Read::Again(_)));
                    if again {
                        prop_assert!(released);
                        clients[at] = Client::default();
                    }
                }
                Step::Go(..) => {}
            }
        }
        for round in 0..2 {
            let truth = world.truth();
            clients.push(Client::default());
            for client in &mut clients {
                if client.follow(&world.server, &world.shape()) {
                    prop_assert_eq!(&client.rows, &truth);
                    prop_assert_eq!(&client.odd, &[""; 0]);
                } else {
                    prop_assert!(released);
                    *client = Client::default();
                }
            }
            if round == 0 {
                world.compact(delta_max());
                world.restart();
                let news = [(row("k1", "news", None), true), (row("k2", "", None), false)];
                world.apply(&news);
            }
        }
    }
}

fn large(world: &mut World, transactions: u32) {
    for n in 0..transactions {
        let key = |n: u32| format!("k{}", n % 7);
        world.apply(&[
            (row(&key(n), &"x".repeat(60_000), Some(&n.to_string())), true),
            (row(&key(n + 3), "", None), false),
        ]);
    }
}

#[test]
fn who_begins_reads_no_change_that_was_overwritten() {
    let mut world = World::new(&rows(4), LogMode::Full, Replica::Default, 10_000);
    for n in 0..500 {
        world.apply(&[(row("k1", &n.to_string(), None), true)]);
    }
    let before = world.shape().lock().since();
    assert!(world.compact(delta_max()));
    assert_eq!(world.shape().lock().since(), 0);
    let mut client = Client::default();
    assert!(matches!(client.read(&world.server, &world.shape()), Read::More));
    assert_eq!(client.rows, world.truth(), "one answer has it all, {before} bytes before");
    assert!(client.follow(&world.server, &world.shape()));
    assert!(!world.compact(delta_max()), "there is nothing to merge");
}

#[test]
fn a_log_of_changes_alone_is_forgotten_without_rows() {
    let mut world = World::new(&[], LogMode::ChangesOnly, Replica::Default, 10_000);
    let mut early = Client::default();
    assert!(early.follow(&world.server, &world.shape()));
    world.apply(&[(row("a", "1", None), true)]);
    assert!(world.compact(delta_max()));
    assert!(early.clone().follow(&world.server, &world.shape()));
    world.server.retirement.release_bases(&world.shape(), u64::MAX).unwrap();
    assert!(world.shape().lock().entries.is_empty());
    let mut late = Client::default();
    assert!(late.follow(&world.server, &world.shape()));
    assert!(late.rows.is_empty());
    assert!(!early.follow(&world.server, &world.shape()), "it would miss a change");
    world.restart();
    world.apply(&[(row("b", "1", None), true)]);
    assert!(late.follow(&world.server, &world.shape()));
    assert_eq!(late.rows.len(), 1);
}

#[test]
fn what_the_newest_base_has_is_cut_from_the_change_log() {
    let mut world = World::new(&rows(2), LogMode::Full, Replica::Default, 100_000);
    large(&mut world, 60);
    let held = world.server.changes.store.changes_held();
    assert!(held > 3 << 20);
    world.compact(delta_max());
    world.server.trim_change_log();
    assert_eq!(world.server.changes.store.changes_held(), held, "clients may have been away");
    world.server.retirement.release_bases(&world.shape(), u64::MAX).unwrap();
    world.server.trim_change_log();
    assert!(world.server.changes.store.changes_held() < 2 << 20, "{}", world.server.changes.store.changes_held());
    world.restart();
    let mut client = Client::default();
    assert!(client.follow(&world.server, &world.shape()));
    assert_eq!(client.rows, world.truth());
}

#[test]
fn a_shape_that_holds_the_change_log_back_is_rebased_and_not_dropped() {
    let mut world = World::new(&rows(2), LogMode::Full, Replica::Default, 100_000);
    world.log_bytes_max = 8 << 20;
    world.restart();
    let (mut pace, mut made) = (Pace::new(Arc::new(SystemClock)), Vec::new());
    let mut live = Client::default();
    assert!(live.follow(&world.server, &world.shape()));
    let mut away = live.clone();
    for round in 0..60 {
        large(&mut world, 7);
        assert!(live.follow(&world.server, &world.shape()), "round {round}");
        world.server.trim_change_log();
        while super::step(&world.server.compactor, &mut pace, &mut made) {}
        let held = world.server.changes.store.changes_held();
        assert!(held < world.log_bytes_max + (2 << 20), "{held} bytes are held in round {round}");
    }
    assert_eq!((&live.rows, &live.odd), (&world.truth(), &vec![]));
    assert!(world.shape().lock().newest() > 2);
    assert!(!away.follow(&world.server, &world.shape()), "its place was given up before its time");
    let mut new = Client::default();
    assert!(new.follow(&world.server, &world.shape()));
    assert_eq!(new.rows, world.truth());
}

#[test]
fn a_shape_that_cannot_be_merged_is_left_alone_and_dropped_when_it_holds_too_much() {
    let mut world = World::new(&rows(2), LogMode::Full, Replica::Default, 100_000);
    world.log_bytes_max = 4 << 20;
    world.restart();
    world.apply(&[(row("k1", "x", None), true)]);
    let event = b"{\"headers\":{\"event\":\"move-out\",\"patterns\":[],\"txids\":[]}},";
    let at = world.tail;
    let lengths = Lengths::one(event.len() as u32);
    world.server.changes.store.write_changes(&bytes::Bytes::from_static(event), &lengths, &[]).unwrap();
    world.tail += event.len() as u64;
    world.lsn += 10;
    world.shape().lock().push(9, Entry { lsn: world.lsn, at, op: 0, len: event.len() as u32 }, 100_000);
    world.server.watermarks.processed(PgLsn(world.lsn));
    let end = world.server.changes.store.logs().journal().end();
    world.server.changes.store.wait(end).unwrap();
    let (mut pace, mut made) = (Pace::new(Arc::new(SystemClock)), Vec::new());
    large(&mut world, 40);
    world.server.trim_change_log();
    assert!(super::step(&world.server.compactor, &mut pace, &mut made));
    assert!(made.is_empty());
    assert_eq!(world.server.changes.store.found().unwrap().bases.len(), 0, "nothing is left of the attempt");
    world.server.trim_change_log();
    assert!(!super::step(&world.server.compactor, &mut pace, &mut made), "it is not tried again");
    assert_eq!(world.server.catalog.registry.read().len(), 1);
    large(&mut world, 40);
    world.server.trim_change_log();
    assert_eq!(world.server.catalog.registry.read().len(), 0);
    assert!(world.server.changes.store.changes_held() < 2 << 20);
}

/// Copies the folder of an idle unit.
fn image(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() { image(&file.path(), &to) } else { drop(std::fs::copy(file.path(), to)) }
    }
}

/// Bases are made, given up, and the change log is cut; the server is killed after each frame of all that.
#[test]
fn a_crash_between_any_two_steps_loses_nothing() {
    let mut world = World::new(&rows(5), LogMode::Full, Replica::Default, 100_000);
    let mut clients = vec![Client::default()];
    drop(clients[0].read(&world.server, &world.shape()));
    large(&mut world, 30);
    clients.push(Client::default());
    clients[1].follow(&world.server, &world.shape());
    world.compact(delta_max());
    large(&mut world, 30);
    clients.push(Client::default());
    drop(clients[2].read(&world.server, &world.shape()));
    let truth = world.truth();

    let images = tempfile::tempdir().unwrap();
    let count = Arc::new(parking_lot::Mutex::new(0_usize));
    let (counted, folder, to) = (Arc::clone(&count), world.folder.path().to_owned(), images.path().to_owned());
    *world.server.changes.store.on_write.lock() = Some(Box::new(move |store: &Store, end| {
        store.wait(end).unwrap();
        let mut count = counted.lock();
        image(&folder, &to.join(count.to_string()));
        *count += 1;
    }));
    world.compact(40_000);
    world.server.retirement.release_bases(&world.shape(), u64::MAX).unwrap();
    world.server.trim_change_log();
    *world.server.changes.store.on_write.lock() = None;
    let count = *count.lock();
    assert!(count > 6, "{count} steps");

    let mut held = Vec::new();
    for step in 0..count {
        let folder: PathBuf = images.path().join(step.to_string());
        let server = open(&folder, world.chunk_bytes);
        server.recover().unwrap();
        server.watermarks.set_published(server.changes.store.changes_tail());
        let shape = Arc::clone(server.catalog.registry.read().by_handle(HANDLE).expect("the shape is there"));
        let mut new = Client::default();
        assert!(new.follow(&server, &shape), "step {step}");
        assert_eq!((new.rows, new.odd), (truth.clone(), vec![]), "step {step}");
        for (who, client) in clients.iter().enumerate() {
            let mut client = client.clone();
            if client.follow(&server, &shape) {
                assert_eq!((client.rows, client.odd), (truth.clone(), vec![]), "client {who} after step {step}");
            } else {
                assert!(shape.lock().bases.as_ref().is_some_and(|bases| bases.first_is_gone()), "step {step}");
            }
        }
        // An unfinished base leaves no log behind, and the interrupted merge can be repeated.
        let found = server.changes.store.found().unwrap();
        assert_eq!(found.bases.len(), shape.lock().bases.iter().map(|bases| bases.logs().count()).sum::<usize>());
        let mut pace = Pace::new(Arc::new(SystemClock));
        if let Some(made) = make(&server.compactor, &shape, &mut pace, delta_max()).unwrap() {
            server.changes.store.wait(made.durable).unwrap();
            show(&server.compactor, made);
        }
        server.retirement.release_bases(&shape, u64::MAX).unwrap();
        server.trim_change_log();
        held.push(server.changes.store.changes_held());
        let mut new = Client::default();
        assert!(new.follow(&server, &shape));
        assert_eq!(new.rows, truth, "step {step}");
        server.lifetime.stop();
    }
    assert!(held.iter().all(|held| *held < 2 << 20), "{held:?}");
}

#[test]
fn a_shape_that_goes_takes_its_bases_with_it() {
    let mut world = World::new(&rows(5), LogMode::Full, Replica::Default, 1000);
    world.apply(&[(row("k1", "x", None), true)]);
    world.compact(delta_max());
    world.apply(&[(row("k1", "y", None), true)]);
    let shape = world.shape();
    let made =
        make(&world.server.compactor, &shape, &mut Pace::new(Arc::new(SystemClock)), delta_max()).unwrap().unwrap();
    world.server.retirement.drop_shape(&shape);
    show(&world.server.compactor, made);
    let found = world.server.changes.store.found().unwrap();
    let mut shapes = 0;
    world.server.changes.store.each_shape(&mut |_| shapes += 1);
    assert_eq!((shapes, found.bases.len()), (0, 0));
}
