//! Shapes made on real servers.

use super::Filling;
use super::scan::scans;
use crate::definition::{Definition, LogMode};
use crate::engine::{Engine, ShapesConfig};
use crate::format::note::Stored;
use crate::read;
use crate::serve::settings::Settings;
use crate::shape::{Failure, Phase, Shape};
use crate::source::session::Session;
use crate::source::tests::{Database, on_each};
use crate::store::Store;
use crate::unit;
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;

const CHUNK_BYTES: u64 = 1 << 20;

struct Server {
    _folder: TempDir,
    engine: Arc<Engine>,
    session: Session,
}

impl Server {
    fn new(db: &Database) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = ShapesConfig {
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
            manual_publishing: false,
            spill: folder.path().join("spill"),
            hot_bytes: 1 << 20,
            io_threads: 1,
            unsent_bytes_max: 1 << 30,
        };
        db.run(&format!("CREATE PUBLICATION {}", config.publication()));
        let logs = unit::open(folder.path());
        let engine = Arc::new(Engine::new(config, Store::open(logs).unwrap()));
        Self { _folder: folder, engine, session: db.session() }
    }

    /// What lies on the disk, with handles.
    fn kept(&self) -> Vec<(String, Stored)> {
        let mut all = Vec::new();
        self.engine.store.each_shape(&mut |kept| all.push((kept.handle.to_owned(), kept.stored.clone())));
        all
    }

    fn begin(&mut self, definition: &Definition) -> Result<(Arc<Shape>, Option<Filling>), Failure> {
        let words = format!("{definition:?}");
        let found = self.engine.table_of(&mut self.session, &definition.table)?;
        self.engine.begin(&mut self.session, &found, definition, words.as_bytes(), 1)
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
        scans.into_iter().for_each(|fillings| self.engine.fill(&mut self.session, fillings));
        (shapes, count)
    }

    /// The shape's messages by the row's id.
    fn rows(&self, shape: &Shape) -> BTreeMap<String, serde_json::Value> {
        let (log, upto) = {
            let state = shape.lock();
            assert!(state.is_live(), "{:?} {:?}", shape.condition.where_sql(), state.phase);
            (state.log.unwrap(), *state.chunks.last().unwrap())
        };
        let wanted = read::Wanted::Rows { log, from: 0, upto };
        let bytes = read::read(shape.number, &wanted, self.engine.sources()).unwrap().concat();
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
        let mut server = Server::new(db);
        let mut definitions: Vec<Definition> = wheres.iter().map(|sql| definition(sql)).collect();
        // Others select columns that the predicate does not look at.
        definitions.extend(
            wheres.iter().map(|sql| Definition { columns: Some(vec!["id".into(), "note".into()]), ..definition(sql) }),
        );
        let (shapes, scans) = server.make(&definitions);
        assert_eq!(scans, 2 * 4, "values of three columns, and the rest; twice");
        for shape in &shapes {
            let sql = shape.condition.where_sql().unwrap();
            let expected = db.value(&format!(
                "SELECT coalesce(string_agg(id::text, ' ' ORDER BY id::text COLLATE \"C\"), '') FROM t WHERE {sql}"
            ));
            let rows = server.rows(shape);
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
        let kept = server.kept();
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
        let mut server = Server::new(db);
        let all: Vec<Definition> =
            ["id > 190", "10 / (id - 100) > 3", "id < 3"].iter().map(|sql| definition(sql)).collect();
        let (shapes, scans) = server.make(&all);
        assert_eq!(scans, 1);
        assert_eq!((server.rows(&shapes[0]).len(), server.rows(&shapes[2]).len()), (10, 2));
        assert!(matches!(shapes[1].lock().phase, Phase::Failed(_)), "a division by zero");
        assert_eq!(server.kept().len(), 2);
        assert!(server.session.is_usable());
    });
}

#[test]
fn a_shape_that_is_dropped_while_it_is_made_leaves_nothing() {
    on_each(|db| {
        db.run(TABLE);
        let mut server = Server::new(db);
        let mut made: Vec<_> =
            ["id > 190", "id > 191"].iter().map(|sql| server.begin(&definition(sql)).unwrap()).collect();
        server.engine.drop_shape(&made[0].0);
        let fillings = made.iter_mut().filter_map(|(_, filling)| filling.take()).collect();
        server.engine.fill(&mut server.session, fillings);
        assert!(matches!(made[0].0.lock().phase, Phase::Gone));
        assert_eq!(server.rows(&made[1].0).len(), 9);
        assert_eq!(server.kept().len(), 1);
    });
}

#[test]
fn many_rows_are_shown_in_chunks_and_only_changes_in_none() {
    on_each(|db| {
        db.run(TABLE);
        db.run("INSERT INTO t SELECT i, 'x', 'y', 1, true, now(), E'tab\\tquote\"back\\\\slash ' || i || repeat('z', 200) FROM generate_series(1000, 9000) i");
        let mut server = Server::new(db);
        let mut all: Vec<Definition> = ["id > 900", "id > 0", "id < 1500"].iter().map(|sql| definition(sql)).collect();
        all.push(Definition { log: LogMode::ChangesOnly, ..definition("id > 5") });
        all.push(Definition::of_table("public", "t"));
        let (shapes, scans) = server.make(&all);
        assert_eq!(scans, 2);
        let counts: Vec<usize> = shapes.iter().map(|shape| server.rows(shape).len()).collect();
        assert_eq!(counts, [8001, 8201, 700, 0, 8201]);
        for shape in [&shapes[0], &shapes[1], &shapes[4]] {
            let chunks = shape.lock().chunks.clone();
            assert!(chunks.len() >= 3 && chunks[0] >= CHUNK_BYTES, "{chunks:?}");
        }
        let kept = server.kept();
        assert!(kept.iter().all(|(_, kept)| kept.complete));
        // Postgres is not asked for the same again.
        let known = server.begin(&definition("id > 900")).unwrap();
        assert!(known.1.is_none() && known.0.number == shapes[0].number);
    });
}
