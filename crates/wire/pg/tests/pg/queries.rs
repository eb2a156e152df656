use crate::support::{config, connect, database, each_cluster};
use std::time::{Duration, Instant};
use thalweg_pg::{Conn, Error, ResultSet, TransactionStatus, quote_identifier, quote_literal};

fn rows(set: &ResultSet) -> Vec<Vec<Option<&str>>> {
    set.rows().map(|row| row.values().collect()).collect()
}

#[test]
fn a_session_knows_its_server() {
    each_cluster(|cluster| {
        let mut conn =
            connect(&format!("{}?application_name=a%20test&options=-c%20work_mem%3D7MB", cluster.url("postgres")));
        assert_eq!(conn.server_version().major, cluster.major());
        assert_eq!(conn.parameter("server_encoding"), Some("UTF8"));
        assert_eq!(conn.parameter("application_name"), Some("a test"));
        assert_eq!(conn.simple("SHOW work_mem").unwrap()[0].value(), Some("7MB"));
        let process = conn.simple("SELECT pg_backend_pid()").unwrap();
        assert_eq!(process[0].value().unwrap().parse().ok(), conn.process_id());
        assert!(!conn.is_tls() && !conn.is_poisoned());
        conn.simple("SET application_name = 'another'").unwrap();
        assert_eq!(conn.parameter("application_name"), Some("another"));
    });
}

#[test]
fn a_local_socket_and_a_name_with_two_addresses_are_ways_in() {
    each_cluster(|cluster| {
        let folder = cluster.folder().display();
        let local = connect(&format!("host={folder} port={} user=postgres sslmode=verify-full", cluster.port()));
        assert_eq!(local.server_version().major, cluster.major());
        // The server listens on 127.0.0.1 only; where localhost is ::1 too, the connection to ::1 fails first.
        connect(&format!("postgres://postgres@localhost:{}/postgres", cluster.port()));
        connect(&format!("postgres://postgres@[::1]:1,127.0.0.1:{0}/postgres", cluster.port()));
        connect(&format!("postgres://postgres@nowhere.invalid,127.0.0.1:{0}/postgres?port={0}", cluster.port()));
    });
}

#[test]
fn several_statements_give_several_results() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        let sets = conn
            .simple("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'é'), (2, NULL), (3, ''); SELECT * FROM t; ; SELECT")
            .unwrap();
        let commands: Vec<_> = sets.iter().map(|set| (set.command.as_str(), set.len(), set.rows_affected())).collect();
        let expected =
            [("CREATE TABLE", 0, None), ("INSERT 0 3", 0, Some(3)), ("SELECT 3", 3, Some(3)), ("SELECT 1", 1, Some(1))];
        assert_eq!(commands, expected);
        assert_eq!(rows(&sets[2]), [[Some("1"), Some("é")], [Some("2"), None], [Some("3"), Some("")]]);
        let column = &sets[2].columns[sets[2].column("b").unwrap()];
        assert_eq!((column.type_oid, column.type_size, column.table_column), (25, -1, 2));
        assert_eq!(conn.simple("").unwrap(), [ResultSet::default()]);
    });
}

#[test]
fn parameters_are_text_and_can_be_null() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        let hard = "it's \"quoted\" \\ $1; --";
        let set =
            conn.query("SELECT $1::int + 1, $2::text, $3::text IS NULL", &[Some("41"), Some(hard), None]).unwrap();
        assert_eq!(rows(&set), [[Some("42"), Some(hard), Some("t")]]);
        let sql = format!("SELECT {} AS {}", quote_literal(hard), quote_identifier(hard));
        let set = conn.simple(&sql).unwrap().remove(0);
        assert_eq!((set.value(), set.columns[0].name.as_str()), (Some(hard), hard));
        assert_eq!(conn.query("CREATE TABLE t ()", &[]).unwrap().command, "CREATE TABLE");
        assert_eq!(conn.query("", &[]).unwrap(), ResultSet::default());
        let wrong = conn.query("SELECT $1::int", &[]).unwrap_err();
        assert_eq!(wrong.code(), Some("08P01"));
        assert!(matches!(conn.query("SELECT '\0'", &[]), Err(Error::Refused(_))));
        assert!(matches!(conn.simple("SELECT '\0'"), Err(Error::Refused(_))));
        assert_eq!(conn.query("SELECT 1", &[]).unwrap().value(), Some("1"));
    });
}

#[test]
fn an_error_says_everything_and_ends_nothing() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        let Err(Error::Server(error)) = conn.simple("SELECT 1;\nSELECT wrong FROM pg_class") else { panic!() };
        assert_eq!((error.code.as_str(), error.position), ("42703", Some(18)));
        assert!(error.message.contains("wrong") && error.routine.is_some() && error.line.is_some());
        conn.simple("CREATE TABLE t (a int CONSTRAINT positive CHECK (a > 0))").unwrap();
        let error = conn.query("INSERT INTO t VALUES ($1)", &[Some("-1")]).unwrap_err();
        let error = error.db().unwrap();
        assert_eq!(error.constraint.as_deref(), Some("positive"));
        assert_eq!((error.schema.as_deref(), error.table.as_deref()), (Some("public"), Some("t")));
        assert!(error.detail.as_ref().unwrap().contains("(-1)"));
        let error = conn.simple("SELECT pg_catalog.lenght('a')").unwrap_err();
        assert!(error.db().unwrap().hint.is_some() && !error.is_transient());
        conn.simple("DO $$ BEGIN RAISE NOTICE 'a'; END $$").unwrap();
        let error = conn.simple("DO $$ BEGIN PERFORM 1/0; END $$").unwrap_err();
        assert!(error.db().unwrap().context.as_ref().unwrap().contains("PL/pgSQL"));
        assert_eq!(conn.simple("SELECT 1").unwrap()[0].value(), Some("1"));
    });
}

#[test]
fn the_state_of_the_transaction_is_known() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        assert_eq!(conn.transaction_status(), TransactionStatus::Idle);
        conn.simple("BEGIN").unwrap();
        assert_eq!(conn.transaction_status(), TransactionStatus::Open);
        conn.query("wrong", &[]).unwrap_err();
        assert_eq!(conn.transaction_status(), TransactionStatus::Failed);
        assert_eq!(conn.simple("SELECT 1").unwrap_err().code(), Some("25P02"));
        conn.simple("ROLLBACK").unwrap();
        assert_eq!(conn.transaction_status(), TransactionStatus::Idle);
    });
}

#[test]
fn a_statement_is_described_without_being_run() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        conn.simple("CREATE TABLE t (a int, b varchar(7), c numeric(5,2)[])").unwrap();
        let said = conn.describe("SELECT *, $2 || 'x' FROM t WHERE a = $1", &[]).unwrap();
        assert_eq!(said.parameters, [23, 25]);
        let types: Vec<_> = said.columns.iter().map(|c| (c.name.as_str(), c.type_oid, c.type_modifier)).collect();
        assert_eq!(types, [("a", 23, -1), ("b", 1043, 11), ("c", 1231, (5 << 16 | 2) + 4), ("?column?", 25, -1)]);
        assert_eq!(conn.describe("SELECT $1, $2", &[20, 0]).unwrap().parameters, [20, 25]);
        assert!(conn.describe("DROP TABLE t", &[]).unwrap().columns.is_empty());
        let error = conn.describe("SELECT FROM t WHERE a = 'x'", &[]).unwrap_err();
        assert_eq!((error.code(), error.db().unwrap().position), (Some("22P02"), Some(25)));
        assert_eq!(conn.describe("SELECT 1; SELECT 2", &[]).unwrap_err().code(), Some("42601"));
        assert_eq!(conn.simple("SELECT count(*) FROM t").unwrap()[0].value(), Some("0"));
    });
}

#[test]
fn copying_is_not_for_queries() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        conn.simple("CREATE TABLE t (a int)").unwrap();
        for sql in ["COPY t TO STDOUT", "COPY t FROM STDIN"] {
            assert!(matches!(conn.simple(sql), Err(Error::Refused(_))), "{sql}");
            assert!(matches!(conn.query(sql, &[]), Err(Error::Refused(_))), "{sql}");
            assert_eq!(conn.query("SELECT 1", &[]).unwrap().value(), Some("1"));
        }
    });
}

#[test]
fn a_query_is_cancelled_from_another_thread() {
    each_cluster(|cluster| {
        let (url, mut conn) = database(cluster);
        let token = conn.cancel_token().unwrap();
        let (process, start) = (conn.process_id().unwrap(), Instant::now());
        let canceller = std::thread::spawn(move || {
            let mut watch = connect(&url);
            let running = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {process} AND state = 'active'");
            while watch.simple(&running).unwrap()[0].is_empty() {}
            token.cancel().unwrap();
        });
        assert_eq!(conn.simple("SELECT pg_sleep(25)").unwrap_err().code(), Some("57014"));
        assert!(start.elapsed() < Duration::from_secs(20));
        canceller.join().unwrap();
        assert_eq!(conn.simple("SELECT 1").unwrap()[0].value(), Some("1"));
    });
}

#[test]
fn silence_is_an_error_that_poisons() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        conn.set_read_timeout(Some(Duration::from_millis(100)));
        assert!(matches!(conn.simple("SELECT pg_sleep(20)"), Err(Error::Timeout(_))));
        assert!(conn.is_poisoned());
        assert!(matches!(conn.simple("SELECT 1"), Err(Error::Poisoned)));
        assert!(matches!(conn.query("SELECT 1", &[]), Err(Error::Poisoned)));
        assert!(matches!(conn.describe("SELECT 1", &[]), Err(Error::Poisoned)));
        assert!(matches!(conn.copy_out("COPY pg_class TO STDOUT"), Err(Error::Poisoned)));
    });
}

#[test]
fn a_result_has_a_bound_and_a_large_one_comes_whole() {
    each_cluster(|cluster| {
        let mut config = config(&cluster.url("postgres"));
        config.result_bytes_max = 8 << 20;
        let mut conn = Conn::connect(&config).unwrap();
        let set = conn.simple("SELECT repeat('x', 5000000)").unwrap().remove(0);
        assert_eq!(set.value().unwrap().len(), 5_000_000);
        let many = conn.simple("SELECT i FROM generate_series(1, 100000) i").unwrap().remove(0);
        assert_eq!((many.len(), many.row(99_999).unwrap().get(0)), (100_000, Some("100000")));
        let error = conn.simple("SELECT repeat('x', 5000000) FROM generate_series(1, 2)").unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }) && conn.is_poisoned());
        config.message_bytes_max = 1 << 20;
        let mut conn = Conn::connect(&config).unwrap();
        assert!(matches!(conn.simple("SELECT repeat('x', 5000000)"), Err(Error::TooLarge { .. })));
    });
}

#[test]
fn a_value_that_is_no_text_is_refused_by_the_server() {
    each_cluster(|cluster| {
        connect(&cluster.url("postgres"))
            .simple("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
            .unwrap();
        let mut conn = connect(&cluster.url("ascii"));
        let sql = r"SELECT E'\xff'";
        assert_eq!(conn.simple(sql).unwrap_err().code(), Some("22021"));
        assert_eq!(conn.query(sql, &[]).unwrap_err().code(), Some("22021"));
        assert_eq!(conn.simple("SELECT 1").unwrap()[0].value(), Some("1"));
        connect(&cluster.url("postgres")).simple("DROP DATABASE ascii WITH (FORCE)").unwrap();
    });
}

#[test]
fn what_does_not_exist_is_said_by_name() {
    each_cluster(|cluster| {
        let port = cluster.port();
        let code = |url: &str| Conn::connect(&config(url)).unwrap_err();
        assert_eq!(code(&cluster.url("nowhere")).code(), Some("3D000"));
        assert_eq!(code(&format!("postgres://nobody@127.0.0.1:{port}/postgres")).code(), Some("28000"));
        assert!(matches!(code("postgres://u@127.0.0.1:1"), Error::Connect { .. }));
        assert!(matches!(code("postgres://u@nowhere.invalid"), Error::Resolve { .. }));
        assert!(matches!(code("postgres://u@127.0.0.1:1?host=/nowhere"), Error::Connect { .. }));
    });
}

#[test]
fn a_server_that_takes_no_writes_can_be_passed_over() {
    each_cluster(|cluster| {
        if cluster.major() < 14 {
            return;
        }
        let url = format!("{}?target_session_attrs=read-write", cluster.url("postgres"));
        connect(&url);
        let error =
            Conn::connect(&config(&format!("{url}&options=-c%20default_transaction_read_only=on"))).unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    });
}
