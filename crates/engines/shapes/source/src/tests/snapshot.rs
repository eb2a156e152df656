use super::{Database, on_each};
use crate::cancel::Cancel;
use crate::catalog::lookup;
use crate::error::SourceError;
use crate::session::Session;
use crate::snapshot::{Taken, copy, select};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::{Table, TableName};

/// Any table: `select` determines the rows, and each test creates `known`.
fn known(session: &mut Session) -> Table {
    let name = TableName { schema: "public".into(), name: "known".into() };
    lookup(session, "none", &name).unwrap().unwrap().table
}

fn rows(session: &mut Session, select: &str) -> Result<(PgSnapshot, Vec<String>), SourceError> {
    let table = known(session);
    rows_of(session, &table, select)
}

fn rows_of(session: &mut Session, table: &Table, select: &str) -> Result<(PgSnapshot, Vec<String>), SourceError> {
    let mut rows = Vec::new();
    let snapshot = copy(session, table, select, None, |taken| {
        if let Taken::Row(row) = taken {
            rows.push(String::from_utf8(row.to_vec()).unwrap());
        }
        ControlFlow::Continue(())
    })?;
    Ok((snapshot, rows))
}

#[test]
fn values_are_printed_as_the_replication_stream_prints_them() {
    on_each(|db| {
        db.run("CREATE TABLE known ()");
        db.run(
            "SET TimeZone = 'America/New_York';
            CREATE TABLE t (i int PRIMARY KEY, b bool, y bytea, ts timestamptz, d date, f float8, iv interval, c char(5), n text);
            INSERT INTO t VALUES (1, true, '\\xDEADBEEF', '2020-02-01 00:00:00+00', '2020-02-01', 0.1::float8 + 0.2, '1 day 02:03', 'ab', NULL),
                (2, false, '', 'infinity', '0044-03-15 BC', 'NaN', '-1 mon', '', E'a\\tb\\\\\\n');
            ALTER ROLE postgres SET TimeZone = 'Asia/Tokyo'; ALTER ROLE postgres SET IntervalStyle = 'postgres_verbose'",
        );
        let table = lookup(&mut db.session(), "none", &TableName { schema: "public".into(), name: "t".into() })
            .unwrap()
            .unwrap()
            .table;
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let expected = [
            r"1	t	\\xdeadbeef	2020-02-01 00:00:00+00	2020-02-01	0.30000000000000004	P1DT2H3M	ab   	\N",
            "2\tf\t\\\\x\tinfinity\t0044-03-15 BC\tNaN\tP-1M\t     \ta\\tb\\\\\\n",
        ];
        let mut session = db.session();
        assert_eq!(rows(&mut session, &select(&table, &all, None)).unwrap().1, expected);
        assert_eq!(
            rows(&mut session, &select(&table, &[8, 0], Some("i > 1 OR false"))).unwrap().1,
            ["a\\tb\\\\\\n\t2"]
        );
        // A pooler's server process that forgot.
        session.conn().simple("RESET ALL").unwrap();
        assert_eq!(rows(&mut session, &select(&table, &all, None)).unwrap().1, expected);
        // The name of another table by now.
        db.run("DROP TABLE t; CREATE TABLE t (i int)");
        assert!(matches!(rows_of(&mut session, &table, "SELECT i FROM public.t"), Err(SourceError::Replaced)));
        db.run("DROP TABLE t");
        assert!(matches!(rows_of(&mut session, &table, "SELECT i FROM public.t"), Err(SourceError::Replaced)));
        assert!(session.is_usable());
        db.run("ALTER ROLE postgres RESET ALL");
    });
}

#[test]
fn a_snapshot_says_which_transactions_it_has() {
    on_each(|db| {
        db.run("CREATE TABLE known ()");
        db.run("CREATE TABLE t (i int)");
        let (mut open, mut session) = (db.plain(), db.session());
        db.run("INSERT INTO t VALUES (1)");
        let before: u32 = db.value("SELECT xmin FROM t").parse().unwrap();
        let begun = open.simple("BEGIN; INSERT INTO t VALUES (2); SELECT pg_current_xact_id()").unwrap();
        let running: u32 = begun[2].value().unwrap().parse().unwrap();
        let mut after = 0;
        let known = known(&mut session);
        let mut seen = Vec::new();
        let snapshot = copy(&mut session, &known, "SELECT i FROM public.t", None, |taken| {
            match taken {
                Taken::Snapshot(_) => {
                    open.simple("COMMIT").unwrap();
                    after = db.value("INSERT INTO t VALUES (3) RETURNING xmin").parse().unwrap();
                }
                Taken::Row(row) => seen.push(String::from_utf8(row.to_vec()).unwrap()),
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(seen, ["1"]);
        let contains = |xid| snapshot.contains(xid, snapshot.lsn);
        assert!(contains(before) && !contains(running) && !contains(after), "{snapshot:?}");
        assert!(snapshot.lsn > 0 && session.is_usable());
        let end: thalweg_pg::PgLsn = db.value("SELECT pg_current_wal_insert_lsn()").parse().unwrap();
        assert!(snapshot.lsn < end.0);
    });
}

fn error(db: &Database, select: &str) -> SourceError {
    let mut session = db.session();
    let error = rows(&mut session, select).unwrap_err();
    assert!(session.is_usable(), "{error}");
    error
}

#[test]
fn every_failure_has_its_own_word() {
    on_each(|db| {
        db.run("CREATE TABLE known ()");
        db.run("CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 1000); CREATE TABLE secret (i int); CREATE TABLE rls (i int); INSERT INTO rls VALUES (1)");
        assert!(matches!(error(db, "SELECT x FROM public.t"), SourceError::SchemaChanged(_)));
        assert!(matches!(error(db, "SELECT 1 FROM public.u"), SourceError::SchemaChanged(_)));
        assert!(matches!(error(db, "SELECT 1 FROM s.u"), SourceError::SchemaChanged(_)));
        assert!(matches!(error(db, "SELECT 'x'::int FROM public.t"), SourceError::Invalid(_)));
        assert!(
            matches!(error(db, "SELECT 1000 / (i - 900) FROM public.t"), SourceError::Invalid(_)),
            "in the middle of the rows"
        );
        assert!(matches!(error(db, "SELECT FROM WHERE"), SourceError::Invalid(_)));

        let limit = Some(Duration::from_millis(30));
        let mut session = db.session();
        let known = known(&mut session);
        let slow = copy(&mut session, &known, "SELECT pg_sleep(9)", limit, |_| ControlFlow::Continue(()));
        assert!(matches!(slow, Err(SourceError::Interrupted(_))));
        assert!(session.is_usable());

        let role = db.role("");
        let mut stranger = super::session(&role);
        assert!(matches!(rows(&mut stranger, "SELECT i FROM public.secret"), Err(SourceError::Permission(_))));
        db.run(&format!("GRANT SELECT ON rls TO {}; ALTER TABLE rls ENABLE ROW LEVEL SECURITY", role.user));
        assert!(
            matches!(rows(&mut stranger, "SELECT i FROM public.rls"), Err(SourceError::Permission(_))),
            "rather than no rows"
        );

        let stopped = copy(&mut session, &known, "SELECT i FROM public.t", None, |taken| match taken {
            Taken::Row(_) => ControlFlow::Break(()),
            Taken::Snapshot(_) => ControlFlow::Continue(()),
        });
        assert!(matches!(stopped, Err(SourceError::Stopped)));

        let mut session = db.session();
        let process = session.conn().process_id().unwrap();
        let lost = copy(&mut session, &known, "SELECT pg_sleep(9)", None, |_| {
            db.run(&format!("SELECT pg_terminate_backend({process})"));
            ControlFlow::Continue(())
        });
        assert!(matches!(lost, Err(SourceError::Unreachable(_))), "{lost:?}");
        assert!(!session.is_usable());
    });
}

#[test]
fn a_query_can_be_cancelled_by_another_thread() {
    on_each(|db| {
        db.run("CREATE TABLE known ()");
        let mut session = db.session();
        session.cancel = Arc::new(Cancel::new());
        let cancel = Arc::clone(&session.cancel);
        assert!(cancel.begin(session.conn().cancel_token()));
        let began = Instant::now();
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| {
                let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%pg_sleep(60)%'";
                while db.value(running) == "0" {
                    std::thread::yield_now();
                }
                cancel.cancel();
            });
            rows(&mut session, "SELECT pg_sleep(60)")
        });
        assert!(matches!(taken, Err(SourceError::Cancelled)), "{taken:?}");
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(!cancel.end());
    });
}
