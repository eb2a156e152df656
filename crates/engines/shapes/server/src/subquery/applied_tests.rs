//! Tests of the applier's writes for shapes with subqueries, and of recovery from them. Of Postgres the tests need the
//! messages only.

use super::dependence::{identity, inner_identity};
use super::tests::table;
use crate::applier::Applier;
use crate::footprint::config;
use crate::format::note::{ShapeNote, Stored};
use crate::format::references::References;
use crate::server::ShapesServer;
use crate::shape::Phase;
use crate::store::Store;
use crate::unit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_log::Lengths;
use thalweg_pg::PgLsn;
use thalweg_pg::pgoutput::{Decoder, Message, OldTuple, TupleWriter, Value, encode};
use thalweg_shapes_model::definition::{Definition, Identity, LogMode, Replica};
use thalweg_shapes_model::predicate;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_source::clock::SystemClock;
use thalweg_shapes_source::replicate::Apply;

const WHERE: &str = "a NOT IN (SELECT v FROM p WHERE g = 1)";
/// All transactions before this LSN were applied before the shapes began.
const BEGAN: u64 = 1000;

struct World {
    server: Arc<ShapesServer>,
    tables: [Arc<Table>; 2],
    outer: u64,
}

impl World {
    /// A shape of `t` that asks for values of `p`, and its inner shape with these rows, as a server has left them.
    fn open(folder: &Path, inner_rows: &str) -> Self {
        let tables = [table(1, "t", &["id", "a", "b"]), table(2, "p", &["id", "v", "g"])];
        let condition = predicate::condition(WHERE, &[], &tables[0], &tables).unwrap();
        let query = Arc::clone(&condition.memberships().next().unwrap().1.query);
        let outer = Definition { where_sql: Some(WHERE.into()), ..Definition::of_table("public", "t") };
        let columns = Some(["g", "id", "v"].map(str::to_owned).to_vec());
        let inner =
            Definition { columns, replica: Replica::Full, log: LogMode::Inner, ..Definition::of_table("public", "p") };
        let server = ShapesServer::new(config(), Store::open(unit::open(folder)).unwrap(), Arc::new(SystemClock));
        let snapshot = PgSnapshot { lsn: BEGAN, ..("10:10:".parse().unwrap()) };
        for (table, definition, identity, rows) in
            [(&tables[1], inner, inner_identity(&query), inner_rows), (&tables[0], outer, Identity::of(b"outer"), "")]
        {
            server.changes.store.put_table(table).unwrap();
            let number = server.catalog.ids.new_number();
            let handle = server.catalog.ids.new_handle(identity, number);
            let stored = Stored {
                number,
                table: table.oid,
                definition,
                identity,
                snapshot: Some(snapshot.clone()),
                chunks: vec![rows.len() as u64],
                complete: false,
                rows_gone: false,
            };
            let (log, _) = server.changes.store.create_shape(handle, &stored, None).unwrap();
            let lengths = if rows.is_empty() { Lengths::default() } else { Lengths::one(rows.len() as u32) };
            server.changes.store.write_shape(log, Some(&ShapeNote::Complete), rows.as_bytes(), &lengths).unwrap();
        }
        server.changes.store.wait(server.changes.store.logs().journal().end()).unwrap();
        drop(server);
        let world = Self { server: reopened(folder), tables, outer: 2 };
        assert!(world.server.feed.lock().graph.inner(&identity(&query)).is_some(), "it is back as what it was");
        world
    }

    fn is_live(&self) -> bool {
        self.server.feed.lock().graph.shape(self.outer).is_some_and(|shape| shape.lock().is_live())
    }

    /// Applies one transaction, which writes rows of these tables.
    fn write(&self, applier: &mut Applier, xid: u32, lsn: u64, writes: &[(usize, Row)]) {
        assert!(applier.begin(xid, lsn));
        let mut decoder = Decoder::new();
        for (at, row) in writes {
            let table = &self.tables[*at];
            let mut described = vec![b'R'];
            described.extend(table.oid.to_be_bytes());
            described.extend(format!("public\0{}\0f", table.name.name).bytes());
            described.extend((table.columns.len() as u16).to_be_bytes());
            for column in &table.columns {
                described.push(0);
                described.extend(format!("{}\0", column.name).bytes());
                described.extend(column.ty.oid.to_be_bytes());
                described.extend((-1_i32).to_be_bytes());
            }
            let (Row::Comes(values) | Row::Goes(values)) = row;
            let value = |text: &&'static str| if *text == "NULL" { Value::Null } else { Value::Text(text.as_bytes()) };
            let tuple: TupleWriter = values.iter().map(value).collect();
            let (xid, relation, tuple) = (None, table.oid, tuple.tuple());
            let mut change = Vec::new();
            match row {
                Row::Comes(_) => encode(&Message::Insert { xid, relation, new: tuple }, &mut change),
                Row::Goes(_) => encode(&Message::Delete { xid, relation, old: OldTuple::Full(tuple) }, &mut change),
            }
            for message in [described, change] {
                applier.change(&decoder.decode(&message).unwrap()).unwrap();
            }
        }
        applier.commit(lsn + 8).unwrap();
    }
}

enum Row {
    Comes([&'static str; 3]),
    Goes([&'static str; 3]),
}

fn reopened(folder: &Path) -> Arc<ShapesServer> {
    let server = Arc::new(ShapesServer::new(config(), Store::open(unit::open(folder)).unwrap(), Arc::new(SystemClock)));
    server.recover().unwrap();
    server
}

#[test]
fn a_start_brings_shapes_with_subqueries_back_as_their_logs_say() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), "");
    let mut applier = Applier::new(Arc::clone(&world.server), PgLsn(BEGAN));
    let rows = [(1, Row::Comes(["1", "5", "1"])), (0, Row::Comes(["1", "5", "0"])), (0, Row::Comes(["2", "6", "0"]))];
    world.write(&mut applier, 11, 1100, &rows);
    assert!(world.is_live());
    let World { server, tables, outer } = world;
    server.changes.store.wait(server.changes.store.logs().journal().end()).unwrap();
    drop((applier, server));
    let world = World { server: reopened(folder.path()), tables, outer };
    assert!(world.is_live());
    let told = |world: &World| {
        let shape = world.server.feed.lock().graph.shape(world.outer).unwrap();
        let state = shape.lock();
        state.entries.iter().map(|entry| entry.lsn).collect::<Vec<_>>()
    };
    assert_eq!(told(&world), [1100]);
    let mut applier = Applier::new(Arc::clone(&world.server), PgLsn(BEGAN));
    world.write(&mut applier, 12, 1200, &[(0, Row::Comes(["3", "5", "0"]))]);
    assert_eq!(told(&world), [1100], "5 is among the values still");
    world.write(&mut applier, 13, 1300, &[(0, Row::Comes(["4", "7", "0"]))]);
    assert_eq!(told(&world), [1100, 1300]);
}

#[test]
fn a_transaction_that_ends_a_shape_is_not_written_before_the_shape_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let null = r#"{"key":"9","value":{"id":"9","v":null,"g":"1"},"headers":{"operation":"insert"}},"#;
    let world = World::open(folder.path(), null);
    let mut applier = Applier::new(Arc::clone(&world.server), PgLsn(BEGAN));
    // Beside a null no row is NOT IN the values; without it every row may be.
    world.write(&mut applier, 12, 1200, &[(1, Row::Goes(["9", "NULL", "1"])), (0, Row::Comes(["2", "6", "0"]))]);
    assert!(!world.is_live());
    assert!(world.server.lifetime.counters.changes.load(Ordering::Relaxed) > 1, "it would have been told of the row");
    world.server.changes.store.wait(world.server.changes.store.logs().journal().end()).unwrap();
    let mut named = Vec::new();
    let each = &mut |_, references: References| {
        named.extend(references.groups.iter().flat_map(|group| group.shapes.iter().copied()));
    };
    world.server.changes.store.each_references(each).unwrap();
    // A crash right after this would otherwise have left the shape with a transaction behind it that ends it.
    assert!(named.is_empty(), "{named:?}");
}

#[test]
fn a_shape_goes_with_the_inner_shape_that_it_needs_before_another_transaction_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), "");
    let mut feed = world.server.feed.lock();
    let (inner, outer) = (feed.graph.shape(1).unwrap(), feed.graph.shape(world.outer).unwrap());
    let retired = feed.retire(&inner, Phase::Gone, |_| {});
    assert_eq!(retired.iter().map(|retired| retired.number).collect::<Vec<_>>(), [1, world.outer]);
    assert!(feed.graph.is_empty() && feed.router.tables().is_empty());
    assert!(matches!(outer.lock().phase, Phase::Gone));
}
