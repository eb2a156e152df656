//! Shapes made on real servers.

use super::Filling;
use super::check::Checked;
use super::scan::scans;
use crate::config::ShapesConfig;
use crate::database::{Database, on_each};
use crate::format::note::Stored;
use crate::read;
use crate::serve::settings::Settings;
use crate::server::ShapesServer;
use crate::shape::{Phase, Shape};
use crate::store::Store;
use crate::unit;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use thalweg_base::Millis;
use thalweg_log::When;
use thalweg_shapes_core::state::recent::RecentMark;
use thalweg_shapes_model::definition::{Definition, LogMode};
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_source::clock::SystemClock;
use thalweg_shapes_source::session::Session;

const CHUNK_BYTES: u64 = 1 << 20;

struct World {
    folder: TempDir,
    server: Arc<ShapesServer>,
    session: Session,
}

fn config(db: &Database, folder: &Path) -> ShapesConfig {
    ShapesConfig {
        database: db.config.clone(),
        query_database: db.config.clone(),
        secret: None,
        http: Settings { chunk_bytes: CHUNK_BYTES, ..Settings::default() },
        shapes_max: 1000,
        log_bytes_max: 1 << 30,
        log_keep_ms: 60_000,
        compact_bytes: 1 << 20,
        connections: 4,
        stream_id: "test".into(),
        stack: None,
        ownership: Default::default(),
        manual_publishing: false,
        temporary_slot: false,
        failover_slot: false,
        database_idle: std::time::Duration::ZERO,
        ephemeral: false,
        spill: folder.join("spill"),
        hot_bytes: 1 << 20,
        io_threads: 1,
        unsent_bytes_max: 1 << 30,
    }
}

impl World {
    fn new(db: &Database) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = config(db, folder.path());
        db.run(&format!("CREATE PUBLICATION {}", config.publication()));
        let logs = unit::open(folder.path());
        let server = Arc::new(ShapesServer::new(config, Store::open(logs).unwrap(), Arc::new(SystemClock)));
        Self { folder, server, session: db.session() }
    }

    /// As after `kill -9`, of what had been written.
    fn again(self, db: &Database) -> Self {
        let Self { folder, server, session } = self;
        server.changes.store.wait(server.changes.store.logs().journal().end()).unwrap();
        // The folder has one owner at a time.
        drop(server);
        let logs = unit::open(folder.path());
        let server =
            Arc::new(ShapesServer::new(config(db, folder.path()), Store::open(logs).unwrap(), Arc::new(SystemClock)));
        server.recover().unwrap();
        Self { folder, server, session }
    }

    /// Logs of rows that several shapes have.
    fn shared_rows(&self) -> usize {
        self.server.changes.store.found().unwrap().shared_rows.len()
    }

    fn settle(&self) {
        let logs = self.server.changes.store.logs();
        self.server.changes.store.wait(logs.journal().end()).unwrap();
        while logs.settle(Millis(1), When::Now).unwrap() {}
    }

    /// The stored shapes, with their handles.
    fn kept(&self) -> Vec<(String, Stored)> {
        let mut all = Vec::new();
        self.server.changes.store.each_shape(&mut |kept| all.push((kept.handle.to_owned(), kept.stored.clone())));
        all
    }

    fn begin(&mut self, definition: &Definition) -> Result<(Arc<Shape>, Option<Filling>), Failure> {
        let query_key = format!("{definition:?}");
        let found = self.server.table_of(&mut self.session, &definition.table)?;
        self.server.begin(&mut self.session, &found, definition, query_key.as_bytes(), 1)
    }

    fn register(&self, shape: &Arc<Shape>, checked: &Checked) -> Option<RecentMark> {
        self.server.feed.lock().register(shape, &checked.table, &checked.selected, checked.predicate.clone())
    }

    /// Makes all of them at once. How many scans that took is given too.
    fn make(&mut self, definitions: &[Definition]) -> (Vec<Arc<Shape>>, usize) {
        let (mut shapes, mut fillings) = (Vec::new(), Vec::new());
        for definition in definitions {
            let (shape, filling) = self.begin(definition).unwrap_or_else(|error| panic!("{definition:?}: {error:?}"));
            shapes.push(shape);
            fillings.extend(filling);
        }
        let scans = scans(fillings);
        let count = scans.len();
        scans.into_iter().for_each(|fillings| self.server.fill(&mut self.session, fillings));
        (shapes, count)
    }

    /// The shape's messages by the row's id.
    fn rows(&self, shape: &Shape) -> BTreeMap<String, serde_json::Value> {
        let (log, upto) = {
            let state = shape.lock();
            assert!(state.is_live(), "{:?} {:?}", shape.condition.where_sql(), state.phase);
            (state.log.unwrap(), *state.chunks.last().unwrap())
        };
        let wanted = read::ReadRange::Rows { log, from: 0, upto };
        let bytes = read::read(shape.number, &wanted, self.server.changes.sources()).unwrap().concat();
        let messages = read::split(&bytes).map(|message| serde_json::from_slice::<serde_json::Value>(message).unwrap());
        let all: Vec<_> =
            messages.map(|message| (message["value"]["id"].as_str().unwrap().to_owned(), message)).collect();
        let count = all.len();
        let by_id: BTreeMap<_, _> = all.into_iter().collect();
        assert_eq!(by_id.len(), count, "a row comes once");
        by_id
    }
}

fn definition(where_sql: &str) -> Definition {
    Definition { where_sql: Some(where_sql.to_owned()), ..Definition::of_table("public", "t") }
}

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, name text, code char(4), price numeric, ok bool, at timestamptz, note text);
    INSERT INTO t SELECT i, CASE WHEN i % 7 = 0 THEN NULL ELSE 'Name-' || i % 5 END, 'c' || i % 3, (i % 4)::numeric(10, 2), i % 2 = 0,
        '2024-01-01T00:00:00Z'::timestamptz + i * interval '1 hour', E'tab\\tquote\"back\\\\slash ' || i FROM generate_series(1, 200) i";

#[test]
fn shapes_of_one_table_are_made_for_the_same_columns() {
    on_each(|db| {
        db.run(TABLE);
        let mut world = World::new(db);
        let before = world.server.table_of(&mut world.session, &definition("ok").table).unwrap();
        let checked = world.server.check(&mut world.session, &before, &definition("ok")).unwrap();
        db.run("ALTER TABLE t ADD COLUMN extra int DEFAULT 1");
        let (shape, _) = world.begin(&definition("id = 1")).unwrap();
        assert_eq!(world.register(&shape, &checked), None, "it was looked at before the table was altered");
        let now = world.server.table_of(&mut world.session, &definition("ok").table).unwrap();
        let checked = world.server.check(&mut world.session, &now, &definition("ok")).unwrap();
        assert!(world.register(&shape, &checked).is_some());
    });
}

#[test]
fn shapes_that_share_a_scan_have_the_rows_that_each_has_alone() {
    let wheres = [
        "name = 'Name-1'",
        "name = 'Name-2'",
        "'Name-3' = name AND id > 50",
        "name = 'nobody'",
        "name = 'name-1'",
        "code = 'c1'",
        "code = 'c1  ' AND ok",
        "price = 2.0",
        "price = 3",
        "ok",
        "NOT ok",
        "ok IS NOT TRUE",
        "id = 7",
        "id = 7 AND name IS NULL",
        "name ILIKE 'name-_'",
        "name LIKE 'Name-4%' OR id < 9",
        "at > '2024-01-03 00:00:00+00'",
        "note LIKE E'%\\t%'",
        "name IS NULL",
        "id > 1000",
        "price IN (1, 2) AND ok",
        "id BETWEEN 20 AND 29",
    ];
    on_each(|db| {
        db.run(TABLE);
        let mut world = World::new(db);
        let mut definitions: Vec<Definition> = wheres.iter().map(|sql| definition(sql)).collect();
        // Other definitions select columns that the predicate does not use.
        definitions.extend(
            wheres.iter().map(|sql| Definition { columns: Some(vec!["id".into(), "note".into()]), ..definition(sql) }),
        );
        let (shapes, scans) = world.make(&definitions);
        assert_eq!(scans, 2 * 4, "values of three columns, and the rest; twice");
        for shape in &shapes {
            let sql = shape.condition.where_sql().unwrap();
            let expected = db.value(&format!(
                "SELECT coalesce(string_agg(id::text, ' ' ORDER BY id::text COLLATE \"C\"), '') FROM t WHERE {sql}"
            ));
            let rows = world.rows(shape);
            let ids: Vec<&str> = rows.keys().map(String::as_str).collect();
            assert_eq!(ids.join(" "), expected, "{sql}");
            let columns = if shape.family.columns.is_some() { 2 } else { 7 };
            for (id, row) in &rows {
                assert_eq!(row["value"].as_object().unwrap().len(), columns, "{row}");
                assert_eq!(row["value"]["note"], format!("tab\tquote\"back\\slash {id}"));
            }
        }
        // The moment is the same for all of a scan, and it is kept.
        let snapshot = |at: usize| shapes[at].lock().snapshot.clone().unwrap();
        assert_eq!(snapshot(0), snapshot(4));
        let kept = world.kept();
        assert_eq!(kept.len(), shapes.len());
        for (handle, kept) in kept {
            let shape = shapes.iter().find(|shape| shape.handle.to_string() == handle).unwrap();
            let state = shape.lock();
            assert!(kept.complete);
            assert_eq!(kept.snapshot.as_ref(), state.snapshot.as_deref());
            assert_eq!(kept.chunks[..], state.chunks[..]);
        }
    });
}

#[test]
fn one_that_cannot_be_read_does_not_take_the_others_with_it() {
    on_each(|db| {
        db.run(TABLE);
        let mut world = World::new(db);
        let all: Vec<Definition> =
            ["id > 190", "10 / (id - 100) > 3", "id < 3"].iter().map(|sql| definition(sql)).collect();
        let (shapes, scans) = world.make(&all);
        assert_eq!(scans, 1);
        assert_eq!((world.rows(&shapes[0]).len(), world.rows(&shapes[2]).len()), (10, 2));
        assert!(matches!(shapes[1].lock().phase, Phase::Failed(_)), "a division by zero");
        assert_eq!(world.kept().len(), 2);
        assert!(world.session.is_usable());
    });
}

#[test]
fn a_shape_that_is_dropped_while_it_is_made_leaves_nothing() {
    on_each(|db| {
        db.run(TABLE);
        let mut world = World::new(db);
        let mut made: Vec<_> =
            ["id > 190", "id > 191"].iter().map(|sql| world.begin(&definition(sql)).unwrap()).collect();
        world.server.retirement.drop_shape(&made[0].0);
        let fillings = made.iter_mut().filter_map(|(_, filling)| filling.take()).collect();
        world.server.fill(&mut world.session, fillings);
        assert!(matches!(made[0].0.lock().phase, Phase::Gone));
        assert_eq!(world.rows(&made[1].0).len(), 9);
        assert_eq!(world.kept().len(), 1);
    });
}

#[test]
fn many_rows_are_shown_in_chunks_and_only_changes_in_none() {
    on_each(|db| {
        db.run(TABLE);
        db.run("INSERT INTO t SELECT i, 'x', 'y', 1, true, now(), E'tab\\tquote\"back\\\\slash ' || i || repeat('z', 200) FROM generate_series(1000, 9000) i");
        let mut world = World::new(db);
        let mut all: Vec<Definition> = ["id > 900", "id > 0", "id < 1500"].iter().map(|sql| definition(sql)).collect();
        all.push(Definition { log: LogMode::ChangesOnly, ..definition("id > 5") });
        all.push(Definition::of_table("public", "t"));
        let (shapes, scans) = world.make(&all);
        assert_eq!(scans, 2);
        let counts: Vec<usize> = shapes.iter().map(|shape| world.rows(shape).len()).collect();
        assert_eq!(counts, [8001, 8201, 700, 0, 8201]);
        for shape in [&shapes[0], &shapes[1], &shapes[4]] {
            let chunks = shape.lock().chunks.clone();
            assert!(chunks.len() >= 3 && chunks[0] >= CHUNK_BYTES, "{chunks:?}");
        }
        let kept = world.kept();
        assert!(kept.iter().all(|(_, kept)| kept.complete));
        // Postgres does not get the same query again.
        let known = world.begin(&definition("id > 900")).unwrap();
        assert!(known.1.is_none() && known.0.number == shapes[0].number);
    });
}

const LONG: &str = "CREATE TABLE t (id bigint PRIMARY KEY, name text, note text);
    INSERT INTO t SELECT i, 'name-' || i % 3, repeat('n', 150) || i FROM generate_series(1, 2000) i";

/// The rows that each shape must have, by its condition.
fn expected(db: &Database, sql: &str) -> u64 {
    db.value(&format!("SELECT count(*) FROM t WHERE {sql}")).parse().unwrap()
}

#[test]
fn rows_that_shapes_have_in_common_lie_once_and_as_long_as_one_of_them_is_there() {
    on_each(|db| {
        db.run(LONG);
        let mut world = World::new(db);
        // All rows, half, some, few, none.
        let wheres =
            ["id > 0", "id > -1", "id > 1000", "id BETWEEN 500 AND 1500", "id < 3", "id > 5000", "note LIKE '%n7'"];
        let (shapes, scans) = world.make(&wheres.map(definition));
        assert_eq!(scans, 1);
        let (whole, written) =
            (shapes[0].lock().chunks.last().copied().unwrap(), world.server.changes.store.logs().journal().end());
        assert!(whole > 400_000 && world.shared_rows() == 1);
        assert!(written.0 < 2 * whole, "{whole} bytes of rows, {written} of the journal");
        let check = |world: &World, shapes: &[Arc<Shape>]| {
            for shape in shapes {
                let sql = shape.condition.where_sql().unwrap();
                assert_eq!(world.rows(shape).len() as u64, expected(db, sql), "{sql}");
            }
        };
        check(&world, &shapes);
        world.settle();
        check(&world, &shapes);
        let handles: Vec<String> = shapes.iter().map(|shape| shape.handle.to_string()).collect();
        let chunks: Vec<Vec<u64>> = shapes.iter().map(|shape| shape.lock().chunks.to_vec()).collect();
        drop(shapes);
        let world = world.again(db);
        let shapes: Vec<Arc<Shape>> = {
            let registry = world.server.catalog.registry.read();
            handles.iter().map(|handle| Arc::clone(registry.by_handle(handle).unwrap())).collect()
        };
        assert_eq!(shapes.iter().map(|shape| shape.lock().chunks.to_vec()).collect::<Vec<_>>(), chunks);
        check(&world, &shapes);
        for at in (1..shapes.len()).rev() {
            world.server.retirement.drop_shape(&shapes[at]);
            assert_eq!(world.shared_rows(), 1);
            check(&world, &shapes[..at]);
        }
        world.server.retirement.drop_shape(&shapes[0]);
        assert_eq!(world.shared_rows(), 0, "the last one takes them along");
        assert_eq!((world.kept().len(), world.server.changes.shared_rows.len()), (0, 0));
    });
}

#[test]
fn common_rows_that_no_shape_came_to_refer_to_go_with_the_next_start() {
    on_each(|db| {
        db.run(LONG);
        let mut world = World::new(db);
        world.make(&["id > 0", "id > -1"].map(definition));
        let lengths = thalweg_log::Lengths::one(3);
        let rows = thalweg_log::Append::Bytes { parts: &[b"{},"], lengths: &lengths };
        let number = world.server.catalog.ids.new_number();
        world.server.changes.store.create_shared_rows(number, &[number + 1, number + 2], rows).unwrap();
        assert_eq!(world.shared_rows(), 2);
        let mut world = world.again(db);
        assert_eq!(world.shared_rows(), 1);
        assert!(world.server.catalog.ids.new_number() > number, "numbers are not used again");
        let (shapes, _) = world.make(&["id > -2", "id > -3"].map(definition));
        assert_eq!((world.shared_rows(), world.rows(&shapes[1]).len()), (2, 2000));
    });
}

#[test]
fn large_scans_are_written_little_by_little() {
    on_each(|db| {
        db.run(LONG);
        db.run("INSERT INTO t SELECT i, 'name-' || i % 3, repeat('m', 900) || i FROM generate_series(10001, 30000) i");
        let mut world = World::new(db);
        // Three sets of shapes have rows in common, in turn; each has rows of its own.
        let wheres = ["name <> 'name-1'", "name <> 'name-2'", "name <> 'name-0'"];
        let (shapes, _) = world.make(&wheres.map(definition));
        for shape in &shapes {
            let sql = shape.condition.where_sql().unwrap();
            assert_eq!(world.rows(shape).len() as u64, expected(db, sql), "{sql}");
            let chunks = shape.lock().chunks.to_vec();
            assert!(chunks.len() > 10 && chunks.windows(2).all(|ends| ends[1] - ends[0] <= CHUNK_BYTES + 2000));
            assert!(chunks[..chunks.len() - 1].windows(2).all(|ends| ends[1] - ends[0] >= CHUNK_BYTES));
        }
        assert!(world.shared_rows() > 1, "a log for so much of a scan");
        for shape in &shapes {
            world.server.retirement.drop_shape(shape);
        }
        assert_eq!(world.shared_rows(), 0);
    });
}
