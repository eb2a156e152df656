use crate::support::{config, connect, everything};
use std::time::{Duration, Instant};
use thalweg_pg::pgoutput::{Decoder, Message};
use thalweg_pg::replication::{Conn as Replication, Event, SlotOptions, Stream};
use thalweg_pg::{Conn, Error, PgLsn};
use thalweg_pgtest::{Cluster, Options, Stop, installations};

fn end_of(stream: &mut Stream) -> Error {
    loop {
        match stream.next(Some(Instant::now() + Duration::from_secs(20))) {
            Ok(Event::Idle) => panic!("still there"),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

#[test]
fn a_server_that_goes_is_closed_and_a_slot_goes_on_when_it_is_back() {
    for installation in installations() {
        let cluster = Cluster::start(&installation, &Options::default().set("wal_sender_timeout", "5s"));
        let url = cluster.url("postgres");
        connect(&url).simple("CREATE TABLE t (id int); CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
        Replication::connect(&config(&url)).unwrap().create_slot("kept", &SlotOptions::default()).unwrap();
        // A server before 17 may forget the last acknowledgement: the reader states where to continue.
        let (mut next, mut from) = (0, PgLsn::ZERO);
        for how in [Stop::Fast, Stop::Immediate, Stop::Fast] {
            let (mut idle, mut busy) = (connect(&url), connect(&url));
            idle.simple(&format!("INSERT INTO t VALUES ({next})")).unwrap();
            let mut stream = Replication::connect(&config(&url)).unwrap().start("kept", from, &everything()).unwrap();
            let mut decoder = Decoder::new();
            let end = loop {
                let Event::XLogData { body, .. } = stream.next(Some(Instant::now() + Duration::from_secs(20))).unwrap()
                else {
                    continue;
                };
                match decoder.decode(body).unwrap() {
                    Message::Insert { new, .. } => assert_eq!(crate::support::row(&new), next.to_string()),
                    Message::Commit { end_lsn, .. } => break end_lsn,
                    _ => {}
                }
            };
            stream.ack(end, end, end, false).unwrap();
            let sleeping = std::thread::spawn(move || busy.simple("SELECT pg_sleep(25)").unwrap_err());
            let reading = std::thread::spawn(move || {
                let error = end_of(&mut stream);
                assert!(matches!(stream.next(None), Err(Error::Poisoned)) && stream.acker().is_closed());
                error
            });
            let active = "SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(25)' AND state = 'active'";
            while idle.simple(active).unwrap()[0].is_empty() {}
            cluster.stop(how);
            let (slept, read) = (sleeping.join().unwrap(), reading.join().unwrap());
            for error in [&slept, &read] {
                assert!(matches!(error, Error::Closed(_)) && error.is_transient(), "{how:?}: {error:?}");
            }
            if how == Stop::Fast {
                assert_eq!(slept.code(), Some("57P01"));
            }
            let error = idle.simple("SELECT 1").unwrap_err();
            assert!(matches!(error, Error::Closed(_)) && idle.is_poisoned(), "{error:?}");
            assert!(matches!(idle.simple("SELECT 1"), Err(Error::Poisoned)));
            let refused = Conn::connect(&config(&url)).unwrap_err();
            assert!(refused.is_transient(), "{refused}");
            cluster.start_again();
            (next, from) = (next + 1, end);
            if how == Stop::Immediate {
                let system = Replication::connect(&config(&url)).unwrap().identify_system().unwrap();
                let mut stream =
                    Replication::connect(&config(&url)).unwrap().start("kept", end, &everything()).unwrap();
                stream.ack(end, end, end, true).unwrap();
                assert!(
                    system.end >= end
                        && !matches!(stream.next(Some(Instant::now() + Duration::from_secs(20))).unwrap(), Event::Idle)
                );
                stream.stop(Instant::now() + Duration::from_secs(20)).unwrap();
            }
        }
        Replication::connect(&config(&url)).unwrap().drop_slot("kept", true).unwrap();
    }
}

#[test]
fn a_session_that_is_terminated_says_why() {
    crate::support::each_cluster(|cluster| {
        let (mut victim, mut killer) = (connect(&cluster.url("postgres")), connect(&cluster.url("postgres")));
        let kill = format!("SELECT pg_terminate_backend({}, 10000)", victim.process_id().unwrap());
        killer.simple(&kill).unwrap();
        let error = victim.query("SELECT 1", &[]).unwrap_err();
        assert!(matches!(error, Error::Closed(Some(_))), "{error:?}");
        assert_eq!(error.code(), Some("57P01"));
    });
}
