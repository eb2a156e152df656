use crate::support::{config, database, each_cluster, everything, read_until, stream};
use std::time::{Duration, Instant};
use thalweg_pg::pgoutput::{Decoder, Message};
use thalweg_pg::replication::{Conn, Event, SlotOptions, Snapshot, StartOptions};
use thalweg_pg::{Error, PgLsn};

fn is_commit(message: &Message<'_>) -> bool {
    matches!(message, Message::Commit { .. })
}

#[test]
fn changes_come_as_they_were_made() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple(
            "CREATE TABLE t (id int PRIMARY KEY, name text, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        )
        .unwrap();
        sql.simple("CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
        let (mut stream, mut decoder) = (stream(&url, &everything()), Decoder::new());
        let mut known = std::collections::BTreeMap::new();
        let mut does = |statement: &str| {
            sql.simple(statement).unwrap();
            let mut seen = read_until(&mut stream, &mut decoder, is_commit);
            assert_eq!((seen.remove(0).as_str(), seen.pop().as_deref()), ("begin", Some("commit")));
            // The server describes a table again whenever it likes.
            seen.retain(|seen| {
                let mut words = seen.split(' ');
                let is_description = matches!(words.next(), Some("relation" | "type"));
                let name = words.next().unwrap_or_default().to_owned();
                !is_description || known.insert((name, seen.starts_with("type")), seen.clone()).as_ref() != Some(seen)
            });
            seen
        };
        assert_eq!(
            does("INSERT INTO t VALUES (1, 'é', NULL), (2, '', repeat('x', 9000))"),
            ["relation public.t Default *id:23 name:25 big:25", "insert 1,é,-", "insert 2,,9000 bytes"]
        );
        assert_eq!(does("UPDATE t SET name = 'b' WHERE id = 2"), ["update -> 2,b,toast"]);
        assert_eq!(does("UPDATE t SET id = 3 WHERE id = 1"), ["update key 1,-,- -> 3,é,-"]);
        assert_eq!(does("DELETE FROM t WHERE id = 3"), ["delete key 3,-,-"]);
        assert_eq!(
            does("ALTER TABLE t REPLICA IDENTITY FULL; UPDATE t SET name = 'c' WHERE id = 2"),
            ["relation public.t Full *id:23 *name:25 *big:25", "update full 2,b,9000 bytes -> 2,c,toast"]
        );
        assert_eq!(does("DELETE FROM t"), ["delete full 2,c,9000 bytes"]);
        assert_eq!(
            does("ALTER TABLE t DROP COLUMN big; CREATE TYPE mood AS ENUM ('ok'); ALTER TABLE t ADD m mood; INSERT INTO t VALUES (4, 'd', 'ok')")
                .iter()
                .map(|seen| seen.split(':').next().unwrap())
                .collect::<Vec<_>>(),
            ["type public.mood", "relation public.t Full *id", "insert 4,d,ok"]
        );
        assert_eq!(
            does(
                "CREATE TABLE u (id serial PRIMARY KEY, t int); INSERT INTO u (t) VALUES (4); TRUNCATE t, u RESTART IDENTITY CASCADE"
            )[2..],
            ["truncate 2 cascade=true restart=true"]
        );
    });
}

#[test]
fn messages_origins_and_an_older_protocol_are_understood() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
        let options =
            StartOptions { proto_version: 1, streaming: false, messages: cluster.major() >= 14, ..everything() };
        let (mut stream, mut decoder) = (stream(&url, &options), Decoder::new());
        let origin = config(&url).database;
        sql.simple(&format!(
            "SELECT pg_replication_origin_create('{origin}'), pg_replication_origin_session_setup('{origin}')"
        ))
        .unwrap();
        if options.messages {
            sql.simple("SELECT pg_logical_emit_message(false, 'now', 'é')").unwrap();
            let seen = read_until(&mut stream, &mut decoder, |m| matches!(m, Message::Message { .. }));
            assert_eq!(seen, ["message false now é"]);
            sql.simple("SELECT pg_logical_emit_message(true, 'then', 'x')").unwrap();
            let seen = read_until(&mut stream, &mut decoder, is_commit);
            assert!(seen.contains(&"message true then x".to_owned()), "{seen:?}");
        }
        sql.simple("INSERT INTO t VALUES (1)").unwrap();
        let seen = read_until(&mut stream, &mut decoder, is_commit);
        assert_eq!(
            seen,
            ["begin", &format!("origin {origin}"), "relation public.t Default *id:23", "insert 1", "commit"]
        );
        sql.simple(&format!("SELECT pg_replication_origin_session_reset(), pg_replication_origin_drop('{origin}')"))
            .unwrap();
    });
}

#[test]
fn values_come_in_binary_form_if_asked_for() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple("CREATE TABLE t (id int, b bool); CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
        let (mut stream, mut decoder) = (stream(&url, &StartOptions { binary: true, ..everything() }), Decoder::new());
        sql.simple("INSERT INTO t VALUES (258, true)").unwrap();
        let seen = read_until(&mut stream, &mut decoder, is_commit);
        assert_eq!(seen[2], "insert [0, 0, 1, 2],[1]");
    });
}

#[test]
fn a_slot_begins_where_its_snapshot_ends() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple("CREATE TABLE t (id int); INSERT INTO t VALUES (1); CREATE PUBLICATION everything FOR ALL TABLES")
            .unwrap();
        let mut conn = Conn::connect(&config(&url)).unwrap();
        let system = conn.identify_system().unwrap();
        assert_eq!(system.database.as_deref(), Some(config(&url).database.as_str()));
        assert!(system.timeline == 1 && system.end > PgLsn::ZERO && system.id.parse::<u64>().is_ok());
        assert_eq!(conn.server_version().major, cluster.major());
        let slot = format!("snap_{}", config(&url).database);
        let options =
            SlotOptions { snapshot: Snapshot::Export, failover: cluster.major() >= 17, ..SlotOptions::default() };
        let made = conn.create_slot(&slot, &options).unwrap();
        assert!(made.consistent_point >= system.end);
        sql.simple("INSERT INTO t VALUES (2)").unwrap();
        let mut reader = crate::support::connect(&url);
        let snapshot = made.snapshot.unwrap();
        reader
            .simple(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'"))
            .unwrap();
        assert_eq!(reader.simple("SELECT string_agg(id::text, ',') FROM t").unwrap()[0].value(), Some("1"));

        let (mut stream, mut decoder) = (conn.start(&slot, PgLsn::ZERO, &everything()).unwrap(), Decoder::new());
        let seen = read_until(&mut stream, &mut decoder, is_commit);
        assert_eq!(seen[2], "insert 2");

        // A slot has one reader; once it is free again it can go.
        let mut other = Conn::connect(&config(&url)).unwrap();
        assert_eq!(other.drop_slot(&slot, false).unwrap_err().code(), Some("55006"));
        assert_eq!(other.start(&slot, PgLsn::ZERO, &everything()).unwrap_err().code(), Some("55006"));
        let mut conn = stream.stop(Instant::now() + Duration::from_secs(20)).unwrap();
        conn.drop_slot(&slot, false).unwrap();
        assert_eq!(conn.simple("SELECT count(*) FROM t").unwrap()[0].value(), Some("2"));
    });
}

#[test]
fn what_is_wrong_with_a_slot_is_said() {
    each_cluster(|cluster| {
        let (url, _) = database(cluster);
        let conn = || Conn::connect(&config(&url)).unwrap();
        let error = conn().start("missing", PgLsn::ZERO, &everything()).unwrap_err();
        assert_eq!(error.code(), Some("42704"));
        assert_eq!(conn().drop_slot("missing", false).unwrap_err().code(), Some("42704"));
        for name in ["", "Big", "a-b", "a\"b", &"a".repeat(64)] {
            assert!(matches!(conn().create_slot(name, &SlotOptions::default()), Err(Error::Refused(_))), "{name}");
        }
        let none = StartOptions { publications: Vec::new(), ..everything() };
        assert!(matches!(conn().start("s", PgLsn::ZERO, &none), Err(Error::Refused(_))));
        let one = StartOptions { proto_version: 1, ..everything() };
        assert!(matches!(conn().start("s", PgLsn::ZERO, &one), Err(Error::Refused(_))));

        // A publication that is missing shows only when something is decoded.
        let temporary = SlotOptions { temporary: true, ..SlotOptions::default() };
        let mut conn = conn();
        conn.create_slot("hard", &temporary).unwrap();
        let options = StartOptions { publications: vec!["a'b\"c\\d".to_owned()], ..everything() };
        let started = conn.start("hard", PgLsn::ZERO, &options);
        crate::support::connect(&url).simple("CREATE TABLE t (id int); INSERT INTO t VALUES (1)").unwrap();
        let Ok(mut stream) = started else { panic!("{started:?}") };
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            match stream.next(Some(deadline)) {
                Ok(Event::Keepalive { .. } | Event::XLogData { .. }) => {}
                // From 18 on it is only a warning in the server's log.
                Ok(Event::Idle) if cluster.major() >= 18 => break,
                Ok(Event::Idle) => panic!("a publication that is missing is no error"),
                Err(error) => {
                    assert_eq!(
                        (error.code(), error.db().unwrap().message.contains("a'b\"c\\d")),
                        (Some("42704"), true)
                    );
                    assert!(matches!(stream.next(None), Err(Error::Poisoned)));
                    break;
                }
            }
        }
    });
}

#[test]
fn several_publications_with_names_that_need_quotes() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple(r#"CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c (id int)"#).unwrap();
        sql.simple(r#"CREATE PUBLICATION "it's, ""one""" FOR TABLE a; CREATE PUBLICATION "Two\" FOR TABLE b"#).unwrap();
        let publications = vec!["it's, \"one\"".to_owned(), "Two\\".to_owned()];
        let options = StartOptions { publications, ..StartOptions::default() };
        let (mut stream, mut decoder) = (stream(&url, &options), Decoder::new());
        sql.simple("INSERT INTO a VALUES (1); INSERT INTO b VALUES (2); INSERT INTO c VALUES (3)").unwrap();
        let seen = read_until(&mut stream, &mut decoder, is_commit);
        assert_eq!(seen.iter().filter(|seen| seen.starts_with("insert")).collect::<Vec<_>>(), ["insert 1", "insert 2"]);
    });
}

#[test]
fn acknowledgements_move_the_slot_and_get_answers() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple("CREATE TABLE t (id int); CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
        let (mut stream, mut decoder) = (stream(&url, &everything()), Decoder::new());
        sql.simple("INSERT INTO t VALUES (1)").unwrap();
        let mut end = PgLsn::ZERO;
        read_until(&mut stream, &mut decoder, is_commit);
        // Ask, from another thread, where the server is.
        let acker = stream.acker();
        std::thread::spawn(move || acker.ack(PgLsn(1), PgLsn(1), PgLsn(1), true).unwrap()).join().unwrap();
        while end == PgLsn::ZERO {
            match stream.next(Some(Instant::now() + Duration::from_secs(20))).unwrap() {
                Event::Keepalive { end: at, .. } => end = at,
                Event::XLogData { .. } => {}
                Event::Idle => panic!("no answer"),
            }
        }
        stream.ack(end, end, end, false).unwrap();
        let slot = format!(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'slot_{}'",
            config(&url).database
        );
        let deadline = Instant::now() + Duration::from_secs(20);
        while sql.simple(&slot).unwrap()[0].value().unwrap().parse::<PgLsn>().unwrap() < end {
            assert!(Instant::now() < deadline, "the slot stays behind {end}");
        }
        // No further events: a deadline in the past returns at once, one in the future when it has passed.
        while stream.next(Some(Instant::now() + Duration::from_millis(50))).unwrap() != Event::Idle {}
        assert_eq!(stream.next(Some(Instant::now())).unwrap(), Event::Idle);
    });
}

#[test]
fn a_hang_up_wakes_the_reader() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple("CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
        let mut stream = stream(&url, &everything());
        let acker = stream.acker();
        let hanging_up = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            acker.hang_up();
            assert!(acker.is_closed() && acker.ack(PgLsn(1), PgLsn(1), PgLsn(1), false).is_err());
        });
        let error = loop {
            match stream.next(Some(Instant::now() + Duration::from_secs(20))) {
                Ok(Event::Idle) => panic!("still there"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Closed(None) | Error::Poisoned), "{error}");
        hanging_up.join().unwrap();
    });
}

#[test]
fn the_server_asks_before_it_gives_up_on_us() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple("CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
        let url = format!("{url}?options=-c%20wal_sender_timeout%3D600ms");
        let mut stream = stream(&url, &everything());
        let (mut asked, start) = (0, Instant::now());
        while start.elapsed() < Duration::from_millis(1500) {
            if let Event::Keepalive { end, reply: true, .. } =
                stream.next(Some(Instant::now() + Duration::from_millis(50))).unwrap()
            {
                asked += 1;
                stream.ack(end, end, end, false).unwrap();
            }
        }
        assert!(asked >= 2, "asked {asked} times");
        // And if it hears nothing, it is gone.
        let error = loop {
            match stream.next(Some(Instant::now() + Duration::from_secs(20))) {
                Ok(Event::Idle) => panic!("still there"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Closed(_)), "{error:?}");
    });
}
