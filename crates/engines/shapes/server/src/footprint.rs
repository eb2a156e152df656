//! Measures the memory of a registered shape, and the time of a start with many shapes.
//!
//! `SHAPES=1000000 cargo test -p thalweg-shapes --release -- --ignored --nocapture footprint::measured`
//!
//! The benchmark needs no Postgres: it fills the kernel unit as [`crate::make`] does, and measures the growth of a
//! process that opens the unit again, with the server's allocator. So each measurement runs in a process of its own.

use crate::config::ShapesConfig;
use crate::format::note::{ShapeNote, Stored};
use crate::server::ShapesServer;
use crate::shape::{Phase, Shape, State};
use crate::store::Store;
use crate::unit;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use thalweg_base::Millis;
use thalweg_log::{Lengths, When};
use thalweg_shapes_model::definition::{Condition, Definition, Identity};
use thalweg_shapes_model::family::Family;
use thalweg_shapes_model::predicate;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_model::table::sample::{self, INT4, TEXT, column};
use thalweg_shapes_source::clock::SystemClock;

/// The bound on the memory of a shape, in bytes.
const EACH_MAX: usize = 700;

/// Bytes of memory that this process has from the system.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

pub(crate) fn config() -> ShapesConfig {
    let database: thalweg_pg::Config = "postgres://u@127.0.0.1:1/d".parse().unwrap();
    ShapesConfig {
        query_database: database.clone(),
        database,
        secret: None,
        http: crate::Settings::default(),
        shapes_max: usize::MAX,
        log_bytes_max: u64::MAX,
        log_keep_ms: u64::MAX,
        compact_bytes: u64::MAX,
        connections: 1,
        stream_id: "default".into(),
        stack: None,
        ownership: Default::default(),
        manual_publishing: false,
        temporary_slot: false,
        failover_slot: false,
        database_idle: std::time::Duration::ZERO,
        ephemeral: false,
        spill: PathBuf::new(),
        hot_bytes: 1 << 20,
        io_threads: 1,
        unsent_bytes_max: 1 << 30,
    }
}

fn table() -> Table {
    let columns = vec![
        column("id", (20, "int8"), Some(0)),
        column("project", INT4, None),
        column("name", TEXT, None),
        column("done", (16, "bool"), None),
        column("at", (1184, "timestamptz"), None),
    ];
    Table { oid: 16400, ..sample::table("items", columns) }
}

fn definition(n: u64) -> Definition {
    Definition { where_sql: Some(format!("id = {}", 100_000 + n)), ..Definition::of_table("public", "items") }
}

fn server(folder: &Path) -> Arc<ShapesServer> {
    Arc::new(ShapesServer::new(config(), Store::open(unit::open(folder)).unwrap(), Arc::new(SystemClock)))
}

/// Waits until all logs are durable, and settles them.
fn settle(server: &ShapesServer, now: u64) {
    let logs = server.changes.store.logs();
    server.changes.store.wait(logs.journal().end()).unwrap();
    while logs.settle(Millis(now), When::Now).unwrap() {}
    logs.settle(Millis(now + 10_000), When::Due).unwrap();
}

/// Makes shapes without rows, as they are while the server runs.
fn fill(server: &ShapesServer, numbers: Range<u64>) {
    let (table, snapshot) = (Arc::new(table()), PgSnapshot { lsn: 1 << 30, ..("1000:1000:".parse().unwrap()) });
    server.changes.store.put_table(&table).unwrap();
    let selected: Vec<usize> = (0..table.columns.len()).collect();
    for n in numbers.clone() {
        let (number, definition) = (server.catalog.ids.new_number(), definition(n));
        let identity = Identity::of(&n.to_le_bytes());
        let handle = server.catalog.ids.new_handle(identity, 1_700_000_000_000_000);
        let stored = Stored {
            number,
            table: table.oid,
            definition: definition.clone(),
            identity,
            snapshot: None,
            chunks: Vec::new(),
            complete: false,
            rows_gone: false,
        };
        let (log, _) = server.changes.store.create_shape(handle, &stored, None).unwrap();
        for note in [ShapeNote::SnapshotTaken(snapshot.clone()), ShapeNote::ChunkEnd(0), ShapeNote::Complete] {
            server.changes.store.write_shape(log, Some(&note), b"", &Lengths::default()).unwrap();
        }
        let header = thalweg_shapes_core::encode::schema::header(&table, &selected);
        let family = server.catalog.families.share(Family::of(&definition, table.oid, header));
        let mut state = State::default();
        (state.phase, state.log) = (Phase::Live, Some(log));
        state.snapshot_taken(server.catalog.shared_snapshot(&snapshot), 1000);
        state.chunks.push(0);
        let shape = Shape::new(number, handle, family, Condition::of(&definition), identity, state);
        let (shape, sql) = (Arc::new(shape), definition.where_sql.unwrap());
        let predicate = predicate::parse(&sql, &[], &table).unwrap();
        server.catalog.registry.write().insert(Arc::clone(&shape));
        let route_id = server.feed.lock().insert(&shape, &table, &selected, Some(Arc::new(predicate)));
        shape.lock().route_id = Some(route_id);
        if n % 5000 == 4999 {
            settle(server, n);
        }
    }
    settle(server, numbers.end);
}

/// In a process of its own: opens a unit again, and prints the time and memory.
#[test]
#[ignore = "a part of others"]
fn opened_again() {
    let Some(folder) = std::env::var_os("FOOTPRINT_FOLDER") else { return };
    let (before, began) = (resident(), Instant::now());
    let server = server(Path::new(&folder));
    let kernel = (resident(), began.elapsed());
    let recovered = server.recover().unwrap();
    let whole = (resident(), began.elapsed());
    let shapes = recovered.shapes.max(1);
    let each = |bytes: usize| bytes.saturating_sub(before) / shapes;
    println!(
        "shapes={} bytes={} each={} kernel={} ms={} kernel_ms={}",
        recovered.shapes,
        whole.0.saturating_sub(before),
        each(whole.0),
        each(kernel.0),
        whole.1.as_millis(),
        kernel.1.as_millis()
    );
    assert_found(&server, recovered.shapes as u64);
}

/// In a process of its own: makes shapes as they are while the server runs.
#[test]
#[ignore = "a part of others"]
fn made() {
    let Some(folder) = std::env::var_os("FOOTPRINT_FOLDER") else { return };
    let count: u64 = std::env::var("SHAPES").unwrap().parse().unwrap();
    let server = server(Path::new(&folder));
    // Buffers and tables that every server has.
    let some = count / 8;
    fill(&server, 0..some);
    let (before, began) = (resident(), Instant::now());
    fill(&server, some..count);
    let each = resident().saturating_sub(before) / (count - some) as usize;
    println!("shapes={count} each={each} base={before} ms={}", began.elapsed().as_millis());
    assert_found(&server, count);
}

fn assert_found(server: &ShapesServer, count: u64) {
    let row: [Option<&[u8]>; 5] =
        [Some(b"100007"), Some(b"1"), Some(b"n"), Some(b"t"), Some(b"2024-01-01 00:00:00+00")];
    let began = Instant::now();
    let route_ids = server.feed.lock().router.route_ids_of(16400, &row);
    let took = began.elapsed();
    assert_eq!(route_ids.len(), 1, "of {count} shapes one has the row");
    let feed = server.feed.lock();
    assert_eq!(feed.shape(route_ids[0]).unwrap().condition.where_sql(), Some("id = 100007"));
    println!("found in {took:?}");
}

/// Runs one measurement in a process of its own, and returns its values.
fn apart(part: &str, folder: &Path, count: u64) -> std::collections::HashMap<String, usize> {
    let part = format!("footprint::{part}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &part, "--ignored", "--nocapture"]);
    // Free memory goes back to the system at once: it is not memory of shapes.
    let command = command.env("FOOTPRINT_FOLDER", folder).env("SHAPES", count.to_string());
    let out = command.env("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    eprintln!(
        "{part}: {}",
        text.lines().filter(|line| line.contains('=') || line.contains("found")).collect::<Vec<_>>().join("; ")
    );
    text.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter_map(|(name, n)| Some((name.into(), n.parse().ok()?)))
        .collect()
}

#[test]
fn a_registered_shape_costs_at_most_700_bytes() {
    let (some, count) = (2_500, 20_000);
    let (few, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    apart("made", few.path(), some);
    let made = apart("made", many.path(), count);
    assert!(made["each"] <= EACH_MAX, "{made:?}");
    // Without the memory of a server without shapes.
    let [few, many] = [few, many].map(|folder| apart("opened_again", folder.path(), 0));
    let each = (many["bytes"] - few["bytes"]) / (many["shapes"] - few["shapes"]);
    assert_eq!((few["shapes"], many["shapes"]), (some as usize, count as usize));
    assert!(each <= EACH_MAX, "{each} bytes: {few:?} {many:?}");
}

#[test]
#[ignore = "a measurement"]
fn measured() {
    let count: u64 = std::env::var("SHAPES").map_or(100_000, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    apart("made", folder.path(), count);
    (0..3).for_each(|_| drop(apart("opened_again", folder.path(), count)));
}
