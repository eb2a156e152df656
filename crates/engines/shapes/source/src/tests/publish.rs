use super::{Database, on_each, session_timed_by};
use crate::catalog::lookup;
use crate::clock::Clock;
use crate::clock::manual::ManualClock;
use crate::publish::{PublishError, Publisher};
use crate::session::Session;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use thalweg_shapes_model::table::{Table, TableName};

fn name(table: &str) -> TableName {
    TableName { schema: "public".into(), name: table.into() }
}

fn table(db: &Database, table: &str) -> Table {
    lookup(&mut db.session(), "p", &name(table)).unwrap().unwrap().table
}

/// Names of tables that the publication names, and those with full identity.
fn published(db: &Database) -> String {
    db.value(
        "SELECT coalesce(string_agg(prrelid::regclass::text, ' ' ORDER BY prrelid), '') || '; ' || (SELECT coalesce(string_agg(relname,
            ' ' ORDER BY oid), '') FROM pg_class WHERE relreplident = 'f') FROM pg_publication_rel",
    )
}

#[test]
fn a_table_is_added_with_its_whole_old_rows() {
    on_each(|db| {
        db.run("CREATE TABLE \"T 1\" (i int); CREATE PUBLICATION p");
        let (mut session, publisher) = (db.session(), Publisher::new("p".into(), false));
        let table = table(db, "T 1");
        publisher.ensure(&mut session, &table).unwrap();
        assert_eq!(published(db), "\"T 1\"; T 1");
        publisher.ensure(&mut session, &table).unwrap();
        Publisher::new("p".into(), false).ensure(&mut session, &table).unwrap();
        // A known table is not checked again, until it is forgotten.
        db.run("ALTER PUBLICATION p DROP TABLE \"T 1\"");
        publisher.ensure(&mut session, &table).unwrap();
        assert_eq!(published(db), "; T 1");
        publisher.forget(table.oid);
        publisher.ensure(&mut session, &table).unwrap();
        assert_eq!(published(db), "\"T 1\"; T 1");
        assert!(session.is_usable());
    });
}

#[test]
fn what_was_found_lacking_is_done_whatever_has_happened_since() {
    on_each(|db| {
        db.run("CREATE TABLE t (i int); CREATE TABLE u (i int); CREATE PUBLICATION p");
        let (mut session, publisher) = (db.session(), Publisher::new("p".into(), false));
        let find = |table: &str| lookup(&mut db.session(), "p", &name(table)).unwrap().unwrap();
        let (t, u) = (find("t"), find("u"));
        publisher.ensure_found(&mut session, &t).unwrap();
        assert_eq!(published(db), "t; t");
        // Another client has made the changes.
        db.run("ALTER TABLE u REPLICA IDENTITY FULL; ALTER PUBLICATION p ADD TABLE u");
        publisher.ensure_found(&mut session, &u).unwrap();
        assert_eq!(published(db), "t u; t u");
        // The earlier finding is not trusted.
        let u = find("u");
        publisher.forget(u.table.oid);
        db.run("ALTER PUBLICATION p DROP TABLE u");
        publisher.ensure_found(&mut session, &u).unwrap();
        assert_eq!(published(db), "t u; t u");
        assert!(session.is_usable());
    });
}

#[test]
fn a_tree_is_published_by_its_root_or_by_all_who_inherit() {
    on_each(|db| {
        db.run(
            "CREATE TABLE root (i int) PARTITION BY LIST (i); CREATE TABLE a PARTITION OF root FOR VALUES IN (1);
            CREATE TABLE b PARTITION OF root FOR VALUES IN (2) PARTITION BY LIST (i); CREATE TABLE b1 PARTITION OF b FOR VALUES IN (2);
            CREATE TABLE parent (i int); CREATE TABLE child () INHERITS (parent); CREATE PUBLICATION p",
        );
        let (mut session, publisher) = (db.session(), Publisher::new("p".into(), false));
        publisher.ensure(&mut session, &table(db, "root")).unwrap();
        assert_eq!(published(db), "root; a b1");
        publisher.ensure(&mut session, &table(db, "parent")).unwrap();
        assert_eq!(published(db), "root parent child; a b1 parent child");
        publisher.ensure(&mut session, &table(db, "b1")).unwrap();
        // A new part of a known table.
        db.run("CREATE TABLE c PARTITION OF root FOR VALUES IN (3)");
        publisher.ensure(&mut session, &table(db, "root")).unwrap();
        assert_eq!(published(db), "root parent child; a b1 parent child c");
    });
}

#[test]
fn many_may_ask_at_once() {
    on_each(|db| {
        for n in 0..6 {
            db.run(&format!("CREATE TABLE t{n} (i int)"));
        }
        db.run("CREATE PUBLICATION p");
        let publisher = Publisher::new("p".into(), false);
        let tables: Vec<Table> = (0..6).map(|n| table(db, &format!("t{n}"))).collect();
        let start = Barrier::new(12);
        std::thread::scope(|scope| {
            for n in 0..12 {
                let (publisher, tables, start) = (&publisher, &tables, &start);
                // Two of them are other servers.
                let other = (n % 6 == 0).then(|| Publisher::new("p".into(), false));
                scope.spawn(move || {
                    let mut session = db.session();
                    start.wait();
                    for k in 0..6 {
                        let publisher = other.as_ref().unwrap_or(publisher);
                        publisher.ensure(&mut session, &tables[(n + k) % 6]).unwrap();
                    }
                });
            }
        });
        assert_eq!(published(db), "t0 t1 t2 t3 t4 t5; t0 t1 t2 t3 t4 t5");
    });
}

#[test]
fn no_transaction_that_wrote_before_is_left_behind() {
    on_each(|db| {
        db.run("CREATE TABLE t (i int); CREATE PUBLICATION p");
        for manual in [false, true] {
            // The second time the table is published already, but an open transaction may have written to it before
            // that.
            let publisher = Publisher::new("p".into(), manual);
            let (mut session, mut writer, table) = (db.session(), db.plain(), table(db, "t"));
            writer.simple("BEGIN; INSERT INTO t VALUES (1)").unwrap();
            std::thread::scope(|scope| {
                let ensured = scope.spawn(|| publisher.ensure(&mut session, &table));
                std::thread::sleep(Duration::from_millis(300));
                assert!(!ensured.is_finished());
                // Later transactions are not waited for.
                let mut reader = db.plain();
                reader.simple("BEGIN; SELECT FROM t").unwrap();
                writer.simple("COMMIT").unwrap();
                std::thread::sleep(Duration::from_millis(if manual { 0 } else { 300 }));
                reader.simple("COMMIT").unwrap();
                ensured.join().unwrap().unwrap();
            });
            assert_eq!(published(db), "t; t");
        }
    });
}

#[test]
fn a_check_that_began_before_tables_were_forgotten_is_made_again() {
    on_each(|db| {
        db.run("CREATE TABLE t (i int); ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t");
        let publisher = Publisher::new("p".into(), false);
        let (mut session, table) = (db.session(), table(db, "t"));
        let (mut first, mut second) = (db.plain(), db.plain());
        first.simple("BEGIN; INSERT INTO t VALUES (1)").unwrap();
        std::thread::scope(|scope| {
            let ensured = scope.spawn(|| publisher.ensure(&mut session, &table));
            std::thread::sleep(Duration::from_millis(300));
            assert!(!ensured.is_finished(), "it waits for the first writer");
            // The check does not wait for this one, but the slot that is made now does not have what it wrote either.
            second.simple("BEGIN; INSERT INTO t VALUES (2)").unwrap();
            publisher.forget_all();
            first.simple("COMMIT").unwrap();
            std::thread::sleep(Duration::from_millis(300));
            assert!(!ensured.is_finished(), "it waits for the second writer");
            second.simple("COMMIT").unwrap();
            ensured.join().unwrap().unwrap();
        });
    });
}

#[test]
fn who_is_not_waited_for_does_not_wait_for_us() {
    on_each(|db| {
        db.run("CREATE TABLE t (i int); CREATE PUBLICATION p");
        let (mut session, mut writer, table) = (db.session(), db.plain(), table(db, "t"));
        writer.simple("BEGIN; INSERT INTO t VALUES (1)").unwrap();
        let publisher = Publisher::new("p".into(), false);
        std::thread::scope(|scope| {
            let ensured = scope.spawn(|| publisher.ensure(&mut session, &table));
            let mut longest = Duration::ZERO;
            while !ensured.is_finished() {
                let began = Instant::now();
                db.run("INSERT INTO t VALUES (2)");
                longest = longest.max(began.elapsed());
            }
            let busy = ensured.join().unwrap();
            assert!(matches!(busy, Err(PublishError::Busy { .. })), "{busy:?}");
            assert!(longest < Duration::from_secs(2), "{longest:?}");
        });
        writer.simple("ROLLBACK").unwrap();
        publisher.forget(table.oid);
        publisher.ensure(&mut session, &table).unwrap();
    });
}

#[test]
fn a_busy_table_is_attempted_again_after_five_seconds() {
    on_each(|db| {
        db.run("CREATE TABLE busy (i int); CREATE PUBLICATION p");
        let clock = Arc::new(ManualClock::new());
        let (publisher, mut session) = (Publisher::new("p".into(), false), session_timed_by(&db.config, &clock));
        let table = table(db, "busy");
        let mut is_busy = || matches!(publisher.ensure(&mut session, &table), Err(PublishError::Busy { .. }));
        let mut writer = db.plain();
        writer.simple("BEGIN; INSERT INTO busy VALUES (1)").unwrap();
        assert!(is_busy());
        writer.simple("COMMIT").unwrap();
        clock.sleep(Duration::from_millis(4999));
        assert!(is_busy(), "the answer is given again");
        clock.sleep(Duration::from_millis(1));
        assert!(!is_busy());
        assert_eq!(published(db).split(';').next(), Some("busy"));
    });
}

#[test]
fn a_busy_table_is_attempted_once_for_all_who_ask_and_holds_up_no_other_table() {
    on_each(|db| {
        db.run("CREATE TABLE busy (i int); CREATE TABLE idle (i int); CREATE PUBLICATION p");
        let found = |table: &str| lookup(&mut db.session(), "p", &name(table)).unwrap().unwrap();
        let (busy, idle, mut writer) = (found("busy"), found("idle"), db.plain());
        writer.simple("BEGIN; INSERT INTO busy VALUES (1)").unwrap();
        let publisher = Publisher::new("p".into(), false);
        let is_busy = |outcome| matches!(outcome, Err(PublishError::Busy { .. }));
        std::thread::scope(|scope| {
            let asked = [0, 1].map(|_| scope.spawn(|| publisher.ensure_found(&mut db.session(), &busy)));
            let inner = scope.spawn(|| publisher.ensure(&mut db.session(), &busy.table));
            // The attempts have begun when the lock requests wait.
            while db.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'busy'::regclass") == "0" {
                std::thread::yield_now();
            }
            publisher.ensure_found(&mut db.session(), &idle).unwrap();
            assert!(asked.iter().all(|asked| !asked.is_finished()), "another table is published at the same time");
            assert!(asked.into_iter().all(|asked| is_busy(asked.join().unwrap())) && is_busy(inner.join().unwrap()));
        });
        let began = Instant::now();
        let mut session = db.session();
        for _ in 0..100 {
            assert!(is_busy(publisher.ensure_found(&mut session, &busy)));
            assert!(is_busy(publisher.ensure(&mut session, &busy.table)));
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?} for 200 refusals", began.elapsed());
        writer.simple("COMMIT").unwrap();
        publisher.forget(busy.table.oid);
        publisher.ensure_found(&mut session, &busy).unwrap();
        assert_eq!(published(db).split(';').next(), Some("busy idle"));
    });
}

#[test]
fn who_may_not_change_anything_says_what_is_lacking() {
    on_each(|db| {
        db.run("CREATE TABLE t (i int); CREATE PUBLICATION p");
        let (mut session, table) = (db.session(), table(db, "t"));
        let manual = |session: &mut Session| Publisher::new("p".into(), true).ensure(session, &table);
        let missing = manual(&mut session).unwrap_err().to_string();
        assert!(
            missing.contains("\"public.t\" is missing from the publication \"p\" and the ELECTRIC_MANUAL"),
            "{missing}"
        );
        let mut stranger = super::session(&db.role(""));
        let missing = Publisher::new("p".into(), false).ensure(&mut stranger, &table).unwrap_err().to_string();
        assert!(missing.ends_with("Electric lacks privileges to add it"), "{missing}");
        db.run("ALTER PUBLICATION p ADD TABLE t");
        assert!(matches!(manual(&mut session), Err(PublishError::Identity { .. })));
        assert!(matches!(
            Publisher::new("p".into(), false).ensure(&mut stranger, &table),
            Err(PublishError::Identity { .. })
        ));
        db.run("ALTER TABLE t REPLICA IDENTITY FULL");
        manual(&mut session).unwrap();
        Publisher::new("p".into(), false).ensure(&mut stranger, &table).unwrap();
        // Owner of the table, but not of the publication.
        db.run(&format!(
            "ALTER PUBLICATION p DROP TABLE t; ALTER TABLE t OWNER TO {}",
            stranger.conn().parameter("session_authorization").unwrap()
        ));
        let missing = Publisher::new("p".into(), false).ensure(&mut stranger, &table).unwrap_err();
        assert!(matches!(missing, PublishError::Missing { manual: false, .. }), "{missing}");
        assert!(stranger.is_usable());
        if db.major >= 15 {
            db.run("ALTER PUBLICATION p ADD TABLE t WHERE (i > 0)");
            assert!(matches!(manual(&mut session), Err(PublishError::Cut { .. })));
        }
        db.run("DROP TABLE t");
        assert!(matches!(manual(&mut session), Err(PublishError::Gone { .. })));
        db.run(
            "CREATE TABLE root (i int) PARTITION BY LIST (i); CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1);
            DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)",
        );
        let leaf = lookup(&mut db.session(), "p", &name("leaf")).unwrap().unwrap().table;
        let as_root = Publisher::new("p".into(), true).ensure(&mut session, &leaf);
        assert!(matches!(as_root, Err(PublishError::AsRoot { .. })));
    });
}

#[test]
fn what_nobody_uses_is_released() {
    on_each(|db| {
        db.run("CREATE TABLE a (i int); CREATE TABLE b (i int); CREATE TABLE c (i int); CREATE TABLE child () INHERITS (c); CREATE PUBLICATION p");
        let (mut session, publisher) = (db.session(), Publisher::new("p".into(), false));
        let tables = ["a", "b", "c"].map(|one| table(db, one));
        tables.iter().for_each(|table| publisher.ensure(&mut session, table).unwrap());
        let hour = Duration::from_secs(3600);
        assert!(publisher.release(&mut session, hour, |_| false).unwrap().is_empty(), "all were asked for just now");
        let in_use = |oid| oid == tables[1].oid || oid == tables[2].oid;
        assert_eq!(publisher.release(&mut session, Duration::ZERO, in_use).unwrap(), [name("a")]);
        assert_eq!(published(db).split(';').next(), Some("b c child"));
        publisher.ensure(&mut session, &tables[0]).unwrap();
        assert_eq!(published(db).split(';').next(), Some("a b c child"));
        let manual = Publisher::new("p".into(), true);
        assert!(manual.release(&mut session, Duration::ZERO, |_| false).unwrap().is_empty());
    });
}

#[test]
fn generated_columns_need_a_publication_that_has_them() {
    on_each(|db| {
        db.run("CREATE TABLE t (i int, s int GENERATED ALWAYS AS (i + 1) STORED); CREATE PUBLICATION p FOR TABLE t");
        let judge = |publication: &str, selected: &[usize]| {
            let found = lookup(&mut db.session(), publication, &name("t")).unwrap().unwrap();
            Publisher::new(publication.into(), true).generated(&found.table, selected, &found.standing)
        };
        assert!(judge("p", &[0]).is_ok());
        assert!(matches!(judge("p", &[0, 1]), Err(PublishError::Generated { .. })));
        if db.major >= 18 {
            db.run("CREATE PUBLICATION q FOR TABLE t WITH (publish_generated_columns = stored)");
            assert!(judge("q", &[0, 1]).is_ok());
        }
    });
}
