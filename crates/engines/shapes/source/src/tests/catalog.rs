use super::{on_each, session_timed_by};
use crate::catalog::{Identity, LookupError, Tables, Unsupported, lookup, lookup_oids};
use crate::clock::Clock;
use crate::clock::manual::ManualClock;
use crate::session::Session;
use crate::snapshot;
use crate::validate::filter;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_shapes_model::table::{Column, Generated, Kind, Table, TableName};

fn name(schema: &str, name: &str) -> TableName {
    TableName { schema: schema.into(), name: name.into() }
}

fn public(table: &str) -> TableName {
    name("public", table)
}

fn column<'a>(table: &'a Table, name: &str) -> &'a Column {
    &table.columns[table.column(name).unwrap()]
}

#[test]
fn columns_have_the_oids_of_base_types_and_the_names_of_domains() {
    on_each(|db| {
        db.run(
            "CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s'); ALTER TYPE mood ADD VALUE 'so' BEFORE 'ok';
            CREATE DOMAIN posint AS int CHECK (value > 0); CREATE DOMAIN pos2 AS posint;
            CREATE DOMAIN vc AS varchar(7); CREATE DOMAIN ia AS int[];
            CREATE TABLE t (id int8 PRIMARY KEY, gone int, \"Na\"\"me\" varchar(10) NOT NULL, m mood, ms mood[][], p pos2,
                ps posint[], v vc, vs vc[], a ia, n numeric(10,2), c char(5), iv interval day to second, ov oidvector,
                g int GENERATED ALWAYS AS (id * 2) STORED);
            ALTER TABLE t DROP gone",
        );
        let found = lookup(&mut db.session(), "none", &public("t")).unwrap().unwrap();
        let table = &found.table;
        assert_eq!((&table.name, table.kind), (&public("t"), Kind::Ordinary));
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["id", "Na\"me", "m", "ms", "p", "ps", "v", "vs", "a", "n", "c", "iv", "ov", "g"]);
        let ty = |name| {
            let ty = &column(table, name).ty;
            (ty.name.as_str(), ty.modifier, ty.dimensions, ty.element)
        };
        assert_eq!(ty("id"), ("int8", -1, 0, 0));
        assert_eq!(ty("Na\"me"), ("varchar", 14, 0, 0));
        assert_eq!(ty("p"), ("pos2", -1, 0, 0));
        assert_eq!(ty("ps"), ("posint", -1, 1, 23));
        assert_eq!(ty("v"), ("vc", -1, 0, 0));
        assert_eq!(ty("vs"), ("vc", 11, 1, 1043));
        assert_eq!(ty("a"), ("int4", -1, 1, 23));
        assert_eq!(ty("n"), ("numeric", (10 << 16) | (2 + 4), 0, 0));
        assert_eq!(ty("c"), ("bpchar", 9, 0, 0));
        assert_eq!(ty("ov"), ("oidvector", -1, 0, 0));
        let oids = ["id", "p", "ps", "a", "v", "vs"].map(|name| column(table, name).ty.oid);
        assert_eq!(oids, [20, 23, 1007, 1007, 1043, 1015], "as if there were no domains");
        let mood = &column(table, "m").ty;
        assert_eq!(
            (mood.name.as_str(), &mood.labels[..]),
            ("mood", &["sad", "so", "ok", "it's"].map(String::from)[..])
        );
        let moods = &column(table, "ms").ty;
        assert_eq!((moods.dimensions, moods.element, &moods.labels), (2, mood.oid, &mood.labels));
        assert!(column(table, "id").not_null && column(table, "Na\"me").not_null && !column(table, "m").not_null);
        assert_eq!(column(table, "g").generated, Some(Generated::Stored));
        assert_eq!(column(table, "id").generated, None);
        assert_eq!(lookup_oids(&mut db.session(), "none", &[table.oid, 1]).unwrap(), [found]);
    });
}

#[test]
fn the_key_is_in_its_own_order_and_without_what_its_index_includes() {
    on_each(|db| {
        db.run("CREATE TABLE k (b int, a int, c int, PRIMARY KEY (a, b) INCLUDE (c)); CREATE TABLE \"S.x\" (i int)");
        let table = lookup(&mut db.session(), "none", &public("k")).unwrap().unwrap().table;
        assert_eq!(table.key().iter().map(|at| table.columns[*at].name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let keyless = lookup(&mut db.session(), "none", &public("S.x")).unwrap().unwrap().table;
        assert!(keyless.columns.iter().all(|column| column.key.is_none()));
    });
}

#[test]
fn a_name_is_taken_as_it_is() {
    on_each(|db| {
        db.run("CREATE SCHEMA \"S x\"; CREATE TABLE \"S x\".\"T y\" (i int); CREATE TABLE t (i int)");
        let mut session = db.session();
        assert!(lookup(&mut session, "none", &name("S x", "T y")).unwrap().is_some());
        for (schema, table) in [("s x", "T y"), ("public", "T"), ("public", "t' OR true --"), ("", "t")] {
            assert!(lookup(&mut session, "none", &name(schema, table)).unwrap().is_none(), "{schema}.{table}");
        }
        if db.major >= 18 {
            db.run("CREATE TABLE g (i int, v int GENERATED ALWAYS AS (i + 1) VIRTUAL)");
            let table = lookup(&mut session, "none", &public("g")).unwrap().unwrap().table;
            assert_eq!(column(&table, "v").generated, Some(Generated::Virtual));
        }
    });
}

#[test]
fn what_is_no_table_is_refused_by_its_kind() {
    on_each(|db| {
        db.run(
            "CREATE TABLE t (i int); CREATE VIEW v AS SELECT * FROM t; CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
            CREATE UNLOGGED TABLE u (i int); CREATE SEQUENCE s; CREATE FOREIGN DATA WRAPPER w; CREATE SERVER f
            FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE ft (i int) SERVER f; CREATE TABLE p (i int) PARTITION BY LIST (i);
            CREATE FOREIGN TABLE pf PARTITION OF p FOR VALUES IN (1) SERVER f",
        );
        let mut session = db.session();
        let mut why = |table: TableName| match lookup(&mut session, "none", &table) {
            Err(LookupError::Unsupported(Unsupported::NotATable { what, .. })) => what,
            Err(LookupError::Unsupported(Unsupported::Untold { what, .. })) => what,
            Err(LookupError::Unsupported(Unsupported::Part { what, .. })) => what,
            other => panic!("{table}: {other:?}"),
        };
        assert_eq!(why(public("v")), "a view");
        assert_eq!(why(public("m")), "a materialized view");
        assert_eq!(why(public("ft")), "a foreign table");
        assert_eq!(why(public("u")), "unlogged");
        assert_eq!(why(public("p")), "a foreign table");
        assert_eq!(why(name("pg_catalog", "pg_class")), "a table of Postgres itself");
        assert!(lookup(&mut session, "none", &public("s")).unwrap().is_none());
    });
}

#[test]
fn a_tree_of_partitions_is_seen_from_both_ends() {
    on_each(|db| {
        db.run(
            "CREATE TABLE root (id int, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
            CREATE TABLE a PARTITION OF root FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
            CREATE TABLE b PARTITION OF root FOR VALUES FROM ('2021-01-01') TO ('2022-01-01') PARTITION BY HASH (id);
            CREATE TABLE b1 (at date NOT NULL, id int NOT NULL); INSERT INTO b1 VALUES ('2021-05-05', 1);
            ALTER TABLE b ATTACH PARTITION b1 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
            CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (x int) INHERITS (parent);
            CREATE PUBLICATION p FOR TABLE root; ALTER TABLE a REPLICA IDENTITY FULL; ALTER TABLE b1 REPLICA IDENTITY NOTHING",
        );
        let mut session = db.session();
        let mut find = |table| lookup(&mut session, "p", &public(table)).unwrap().unwrap();
        let (root, a, b, b1) = (find("root"), find("a"), find("b"), find("b1"));
        assert_eq!(root.table.kind, Kind::Partitioned);
        assert_eq!(root.table.parts, [a.table.oid, b.table.oid, b1.table.oid]);
        assert_eq!(b1.table.ancestors, [root.table.oid, b.table.oid]);
        assert_eq!(b1.table.columns[0].name, "at", "a part's columns are in its own order");
        let parts = &root.standing.parts;
        assert_eq!(
            parts.iter().map(|part| part.identity).collect::<Vec<_>>(),
            [Identity::Full, Identity::Key, Identity::Nothing]
        );
        assert_eq!(parts.iter().map(|part| part.made_as_part).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(parts.iter().map(|part| (part.published, part.member)).collect::<Vec<_>>(), [(true, false); 3]);
        assert!(root.standing.relation.member && b1.standing.relation.published);
        let (parent, child) = (find("parent"), find("child"));
        assert_eq!((parent.table.parts, child.table.ancestors), (vec![child.table.oid], vec![parent.table.oid]));
        assert!(!parent.standing.relation.published && !child.standing.relation.partition);
    });
}

#[test]
fn a_publication_may_have_a_table_in_several_ways() {
    on_each(|db| {
        db.run(
            "CREATE TABLE t (i int, j int); CREATE PUBLICATION everything FOR ALL TABLES; CREATE PUBLICATION nothing",
        );
        let mut session = db.session();
        let mut standing = |publication| lookup(&mut session, publication, &public("t")).unwrap().unwrap().standing;
        let all = standing("everything").relation;
        assert!(all.published && !all.member);
        assert!(!standing("nothing").relation.published);
        if db.major >= 15 {
            db.run(
                "CREATE PUBLICATION schema FOR TABLES IN SCHEMA public; CREATE PUBLICATION few FOR TABLE t WHERE (i > 0);
                CREATE PUBLICATION narrow FOR TABLE t (i)",
            );
            assert!(standing("schema").relation.published && !standing("schema").relation.cut);
            assert!(standing("few").relation.cut && standing("narrow").relation.cut);
        }
        if db.major >= 18 {
            db.run("CREATE PUBLICATION generated WITH (publish_generated_columns = stored)");
            assert!(standing("generated").publishes_generated);
        }
        assert!(!standing("nothing").publishes_generated);
        let relation =
            lookup(&mut super::session(&db.role("")), "nothing", &public("t")).unwrap().unwrap().standing.relation;
        assert!(!relation.owned && !relation.readable);
    });
}

#[test]
fn a_table_that_was_seen_is_looked_at_again_when_it_has_changed() {
    on_each(|db| {
        db.run("CREATE TABLE t (i int)");
        let (tables, mut session) = (Tables::new("none".into()), db.session());
        let mut find = || tables.find(&mut session, &public("t")).unwrap();
        let first = find().unwrap();
        assert!(Arc::ptr_eq(&first, &find().unwrap()));
        for (sql, columns) in [
            ("ALTER TABLE t ADD s text", "i s"),
            ("ALTER TABLE t RENAME s TO r", "i r"),
            ("ALTER TABLE t ALTER r SET NOT NULL", "i r"),
            ("ALTER TABLE t DROP i", "r"),
            ("DROP TABLE t; CREATE TABLE t (r text NOT NULL)", "r"),
        ] {
            let before = find().unwrap().table.clone();
            db.run(sql);
            let table = find().unwrap().table.clone();
            let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            assert_eq!(names.join(" "), columns);
            assert_ne!(table, before, "{sql}");
            assert_eq!(table.same_shape(&before), sql.ends_with("SET NOT NULL"), "{sql}");
        }
        db.run("DROP TABLE t");
        assert!(find().is_none());
    });
}

#[test]
fn what_the_rows_of_a_table_in_the_catalog_do_not_tell_is_believed_for_two_seconds() {
    on_each(|db| {
        db.run("CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t (m mood)");
        let clock = Arc::new(ManualClock::new());
        let (tables, mut session) = (Tables::new("none".into()), session_timed_by(&db.config, &clock));
        let mut labels =
            || tables.find(&mut session, &public("t")).unwrap().unwrap().table.columns[0].ty.labels.clone();
        assert_eq!(labels(), ["sad"]);
        db.run("ALTER TYPE mood ADD VALUE 'glad'");
        clock.sleep(Duration::from_millis(1999));
        assert_eq!(labels(), ["sad"]);
        clock.sleep(Duration::from_millis(1));
        assert_eq!(labels(), ["sad", "glad"]);
    });
}

/// Cost in queries of making a shape; `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_questions() {
    on_each(|db| {
        db.run("CREATE TABLE t (id int PRIMARY KEY, a text, b text, c timestamptz, d int, e numeric)");
        let (mut session, tables) = (db.session(), Tables::new("none".into()));
        let time = |what: &str, mut ask: Box<dyn FnMut(&mut Session) + '_>, session: &mut Session| {
            let began = Instant::now();
            (0..200).for_each(|_| ask(session));
            eprintln!("{what}: {:?}", began.elapsed() / 200);
        };
        let table = lookup(&mut session, "none", &public("t")).unwrap().unwrap().table;
        let select = snapshot::select(&table, &[0, 1, 2, 3, 4, 5], Some("a = 'x' AND d > 5"));
        for _ in 0..3 {
            let look = |session: &mut Session| drop(lookup(session, "none", &public("t")).unwrap());
            time("look", Box::new(look), &mut session);
            let again = |session: &mut Session| drop(tables.find(session, &public("t")).unwrap());
            time("look again", Box::new(again), &mut session);
            let read = |session: &mut Session| assert!(filter(session, &table, "a = 'x' AND d > 5", &[]).unwrap());
            time("validate", Box::new(read), &mut session);
            let copy = |session: &mut Session| {
                drop(snapshot::copy(session, &table, &select, None, |_| ControlFlow::Continue(())).unwrap());
            };
            time("snapshot", Box::new(copy), &mut session);
        }
    });
}
