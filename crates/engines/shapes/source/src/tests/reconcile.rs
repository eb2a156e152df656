use super::{Database, on_each};
use crate::catalog::lookup;
use crate::publish::Publisher;
use crate::reconcile::{Gone, reconcile};
use thalweg_shapes_model::table::{Table, TableName};

fn table(db: &Database, table: &str) -> Table {
    let name = TableName { schema: "public".into(), name: table.into() };
    lookup(&mut db.session(), "p", &name).unwrap().unwrap().table
}

#[test]
fn what_was_changed_without_a_write_is_found() {
    on_each(|db| {
        let names = [
            "same",
            "dropped",
            "recreated",
            "renamed",
            "added",
            "retyped",
            "moved",
            "unpublished",
            "identity",
            "stats",
        ];
        for name in names {
            db.run(&format!("CREATE TABLE {name} (i int PRIMARY KEY, s text)"));
        }
        db.run("CREATE PUBLICATION p; CREATE SCHEMA other");
        let (mut session, publisher) = (db.session(), Publisher::new("p".into(), false));
        let tables: Vec<Table> = names.iter().map(|name| table(db, name)).collect();
        tables.iter().for_each(|table| publisher.ensure(&mut session, table).unwrap());
        assert!(reconcile(&mut session, "p", &tables).unwrap().gone.is_empty());
        // Publishing a table alters it.
        let tables: Vec<Table> = names.iter().map(|name| table(db, name)).collect();
        db.run(
            "DROP TABLE dropped; DROP TABLE recreated; CREATE TABLE recreated (i int PRIMARY KEY, s text);
            ALTER TABLE recreated REPLICA IDENTITY FULL; ALTER PUBLICATION p ADD TABLE recreated;
            ALTER TABLE renamed RENAME TO named; ALTER TABLE added ADD d int DEFAULT 5; ALTER TABLE retyped ALTER s TYPE varchar(9);
            ALTER TABLE moved SET SCHEMA other; ALTER PUBLICATION p DROP TABLE unpublished; ALTER TABLE identity REPLICA IDENTITY DEFAULT;
            ALTER TABLE stats ALTER s SET STATISTICS 5; CREATE INDEX ON stats (s); INSERT INTO stats VALUES (1)",
        );
        let reconciled = reconcile(&mut session, "p", &tables).unwrap();
        let gone: Vec<(&str, String)> = reconciled
            .gone
            .iter()
            .map(|(oid, gone)| {
                let at = tables.iter().position(|table| table.oid == *oid).unwrap();
                (names[at], gone.to_string())
            })
            .collect();
        let expected = [
            ("dropped", "was dropped"),
            ("recreated", "was dropped"),
            ("renamed", "was renamed to \"public\".\"named\""),
            ("added", "was altered"),
            ("retyped", "was altered"),
            ("moved", "was renamed to \"other\".\"moved\""),
            ("unpublished", "is no longer in the publication"),
            ("identity", "no longer has REPLICA IDENTITY FULL"),
        ];
        assert_eq!(gone, expected.map(|(name, why)| (name, why.to_owned())));
        let moved: Vec<&str> = reconciled.moved.iter().map(|found| found.table.name.name.as_str()).collect();
        // Its columns were altered, without a change of any value or row.
        assert_eq!(moved, ["stats"]);
        db.run("DROP PUBLICATION p");
        assert_eq!(reconcile(&mut session, "p", &tables[..1]).unwrap().gone, [(tables[0].oid, Gone::Unpublished)]);
    });
}

#[test]
fn an_enum_with_a_new_label_is_another_type() {
    on_each(|db| {
        db.run("CREATE TYPE mood AS ENUM ('a'); CREATE TABLE t (m mood); CREATE PUBLICATION p");
        let (mut session, table) = (db.session(), table(db, "t"));
        Publisher::new("p".into(), false).ensure(&mut session, &table).unwrap();
        db.run("ALTER TYPE mood ADD VALUE 'b'");
        assert_eq!(reconcile(&mut session, "p", [&table]).unwrap().gone, [(table.oid, Gone::Altered)]);
    });
}

#[test]
fn parts_that_come_with_rows_or_take_rows_away_are_told_from_new_ones() {
    on_each(|db| {
        db.run(
            "CREATE TABLE root (i int) PARTITION BY LIST (i); CREATE TABLE a PARTITION OF root FOR VALUES IN (1);
            CREATE TABLE loose (i int); CREATE PUBLICATION p",
        );
        let (mut session, publisher) = (db.session(), Publisher::new("p".into(), false));
        let (root, loose) = (table(db, "root"), table(db, "loose"));
        publisher.ensure(&mut session, &root).unwrap();
        publisher.ensure(&mut session, &loose).unwrap();

        db.run("CREATE TABLE b PARTITION OF root FOR VALUES IN (2)");
        let reconciled = reconcile(&mut session, "p", [&root]).unwrap();
        assert!(reconciled.gone.is_empty());
        let moved = &reconciled.moved[0].table;
        assert_eq!(moved.parts, [table(db, "a").oid, table(db, "b").oid]);
        assert!(reconciled.moved[0].standing.parts.iter().any(|part| part.name.name == "b"));
        publisher.ensure(&mut session, moved).unwrap();
        assert_eq!(db.value("SELECT relreplident FROM pg_class WHERE relname = 'b'"), "f");
        let later = reconcile(&mut session, "p", [moved]).unwrap();
        assert!(later.gone.is_empty() && later.moved.is_empty());

        db.run("ALTER TABLE root ATTACH PARTITION loose FOR VALUES IN (3)");
        let attached = reconcile(&mut session, "p", [moved, &loose]).unwrap();
        assert_eq!(attached.gone, [(root.oid, Gone::Attached { part: "\"public\".\"loose\"".into() })]);
        assert_eq!(attached.moved[0].table.ancestors, [root.oid], "the part's own rows are the same");
        db.run("ALTER TABLE root DETACH PARTITION loose; DROP TABLE a");
        assert_eq!(reconcile(&mut session, "p", [moved]).unwrap().gone, [(root.oid, Gone::Detached)]);
        // An inheriting table is not published with its parent.
        db.run("CREATE TABLE child () INHERITS (loose)");
        let inherited = reconcile(&mut session, "p", [&attached.moved[0].table]).unwrap();
        assert_eq!(inherited.gone, [(loose.oid, Gone::Attached { part: "\"public\".\"child\"".into() })]);
    });
}
