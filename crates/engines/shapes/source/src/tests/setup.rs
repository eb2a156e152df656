use super::{Database, endpoint, on_each};
use crate::ownership::Ownership;
use crate::setup::{Known, Options, Ready, Resume, SetupError, prepare};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use thalweg_pg::replication::StartOptions;
use thalweg_pg::{Config, Conn, PgLsn};
use thalweg_pgtest::{Cluster, installations};
use thalweg_shapes_model::history::SourceIdentity;

fn options(db: &Database) -> Options {
    let (slot, publication) = (format!("slot_{}", db.name), format!("Publication {}", db.name));
    Options { slot, publication, ..Options::default() }
}

fn ready(db: &Database, options: &Options) -> Ready {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match prepare(&endpoint(&db.config), options, &|| {}, &|| false) {
            // The server may not have noticed that the connection before has ended.
            Err(SetupError::SlotInUse { .. }) if Instant::now() < end => std::thread::yield_now(),
            result => return result.unwrap(),
        }
    }
}

fn known(identity: &SourceIdentity) -> Option<Known> {
    Some(Known { identity: identity.clone(), seen: 0, unclean: false, acknowledged: None, broken: None })
}

fn why(ready: &Ready) -> &str {
    match &ready.resume {
        Resume::Restart { why } => why,
        Resume::Continue => panic!("nothing is wrong"),
    }
}

#[test]
fn what_is_as_it_was_goes_on() {
    on_each(|db| {
        let mut options = options(db);
        let first = ready(db, &options);
        assert!(why(&first).contains("nothing is known"));
        assert!(first.confirmed > PgLsn::ZERO);
        assert_eq!(
            db.value("SELECT wal_status || plugin FROM pg_replication_slots WHERE database = current_database()"),
            "reservedpgoutput"
        );
        if db.major >= 18 {
            assert_eq!(db.value("SELECT pubgencols FROM pg_publication"), "s");
        }
        options.known = known(&first.identity);
        drop(first);
        let second = ready(db, &options);
        assert_eq!((&second.resume, known(&second.identity)), (&Resume::Continue, options.known));
    });
}

#[test]
fn what_was_lost_means_to_start_again() {
    on_each(|db| {
        let mut options = options(db);
        let slot = options.slot.clone();
        options.known = known(&ready(db, &options).identity);

        db.run(&format!("SELECT pg_drop_replication_slot('{slot}')"));
        assert!(why(&ready(db, &options)).contains("slot was dropped"));
        assert_eq!(ready(db, &options).resume, Resume::Continue);

        db.run(&format!("DROP PUBLICATION \"{}\"", options.publication));
        let made = ready(db, &options);
        assert!(why(&made).contains("publication is a new one"));
        options.known = known(&made.identity);
        drop(made);
        db.run(&format!("DROP PUBLICATION \"{0}\"; CREATE PUBLICATION \"{0}\"", options.publication));
        let again = ready(db, &options);
        assert!(why(&again).contains("publication is a new one"), "somebody else made it");
        let known = again.identity.clone();
        drop(again);

        let changes: [fn(&mut SourceIdentity); 4] = [
            |known| known.system.push('1'),
            |known| known.timeline += 1,
            |known| known.slot.push('x'),
            |known| known.database.push('x'),
        ];
        for change in changes {
            let mut other = known.clone();
            change(&mut other);
            options.known = self::known(&other);
            let confirmed: PgLsn = db
                .value(&format!("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"))
                .parse()
                .unwrap();
            let restarted = ready(db, &options);
            assert!(why(&restarted).contains(" another "), "{}", why(&restarted));
            assert!(restarted.confirmed > confirmed, "a new slot, without the unneeded WAL");
        }
        options.known = self::known(&known);
        assert_eq!(ready(db, &options).resume, Resume::Continue);
    });
}

#[test]
fn a_new_owner_ends_the_session_of_the_one_before() {
    on_each(|db| {
        let owner = |is_held: bool| Options { ownership: Ownership::shared(move || is_held), ..options(db) };
        let Ready { conn, identity, .. } = ready(db, &owner(true));
        let Options { slot, publication, .. } = options(db);
        // It sleeps: its stream is open, and it does not read it.
        let start = StartOptions { publications: vec![publication], ..StartOptions::default() };
        let mut asleep = conn.start(&slot, &start).unwrap();
        let mut other = db.plain();
        let is_active = || db.value("SELECT active FROM pg_replication_slots WHERE database = current_database()");

        let deposed = || prepare(&endpoint(&db.config), &owner(false), &|| {}, &|| false).map(drop);
        assert!(matches!(deposed(), Err(SetupError::Deposed)), "{:?}", deposed());
        assert_eq!(is_active(), "t", "an owner that was deposed ends nobody's session");

        let next = ready(db, &Options { known: known(&identity), ..owner(true) });
        assert_eq!(next.resume, Resume::Continue);
        let until = Instant::now() + Duration::from_secs(20);
        let failed = std::iter::from_fn(|| Some(asleep.next(until).map(drop))).take(1_000).find(Result::is_err);
        assert!(failed.is_some() && Instant::now() < until, "it cannot go on when it wakes up");
        assert!(asleep.ack(next.end, false).is_err() || is_active() == "f", "and confirms nothing");
        other.simple("SELECT 1").expect("sessions of others go on");
        drop(next);
        assert!(matches!(deposed(), Err(SetupError::Deposed)), "also if nobody has the lock");
        assert_ne!(is_active(), "NULL", "the slot is still there");
    });
}

#[test]
fn a_temporary_slot_is_never_the_same() {
    on_each(|db| {
        let mut options = Options { temporary: true, ..options(db) };
        options.known = known(&ready(db, &options).identity);
        assert!(why(&ready(db, &options)).contains("slot was dropped"));
    });
}

#[test]
fn an_invalidated_slot_is_made_anew() {
    for installation in installations() {
        let settings = [("max_slot_wal_keep_size", "1MB"), ("max_wal_size", "32MB"), ("min_wal_size", "32MB")];
        let cluster = Cluster::start(
            &installation,
            &settings
                .iter()
                .fold(Default::default(), |options: thalweg_pgtest::Options, (name, value)| options.set(name, value)),
        );
        let config = cluster.url("postgres").parse().unwrap();
        let db = Database { major: cluster.major(), name: "lost".into(), config };
        let mut options = options(&db);
        options.known = known(&ready(&db, &options).identity);
        let end = Instant::now() + Duration::from_secs(60);
        while db.value("SELECT wal_status FROM pg_replication_slots") != "lost" {
            assert!(Instant::now() < end, "the slot is kept");
            db.run("SELECT pg_switch_wal(); CREATE TABLE IF NOT EXISTS t (i int); INSERT INTO t SELECT generate_series(1, 10000)");
            db.run("CHECKPOINT");
        }
        assert!(why(&ready(&db, &options)).contains("no longer keeps"));
        assert_eq!(ready(&db, &options).resume, Resume::Continue);
    }
}

#[test]
fn one_server_has_a_slot_and_the_next_one_waits() {
    on_each(|db| {
        let mut options = options(db);
        let first = ready(db, &options);
        options.known = known(&first.identity);
        let waited = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                prepare(
                    &endpoint(&db.config),
                    &options,
                    &|| {
                        waited.fetch_add(1, Ordering::Relaxed);
                    },
                    &|| false,
                )
            });
            while waited.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            assert!(!second.is_finished());
            drop(first);
            assert_eq!(second.join().unwrap().unwrap().resume, Resume::Continue);
        });
        let held = ready(db, &options);
        let stopped = prepare(&endpoint(&db.config), &options, &|| {}, &|| true);
        assert!(matches!(stopped, Err(SetupError::Stopped)));
        drop(held);
    });
}

#[test]
fn waiting_for_transactions_can_be_ended() {
    on_each(|db| {
        let mut writer = db.plain();
        writer.simple("CREATE TABLE t (i int); BEGIN; INSERT INTO t VALUES (1)").unwrap();
        let began = Instant::now();
        let stopping = || began.elapsed() > Duration::from_millis(200);
        let ended = prepare(&endpoint(&db.config), &options(db), &|| {}, &stopping);
        assert!(matches!(ended, Err(SetupError::Stopped)), "{ended:?}");
        assert!(began.elapsed() < Duration::from_secs(30));
    });
}

#[test]
fn what_is_not_in_order_is_said() {
    on_each(|db| {
        let options = options(db);
        let manual = Options { manual: true, ..options.clone() };
        let ask = |config: &Config, options: &Options| {
            prepare(&endpoint(config), options, &|| {}, &|| false).map(|ready| ready.resume)
        };
        assert!(matches!(ask(&db.config, &manual), Err(SetupError::PublicationMissing(_))));
        db.run(&format!("CREATE PUBLICATION \"{}\" WITH (publish = 'insert')", options.publication));
        assert!(matches!(ask(&db.config, &manual), Err(SetupError::PublicationOperations(_))));
        db.run(&format!("DROP PUBLICATION \"{}\"", options.publication));
        let (stranger, poor) = (db.role(""), db.role("REPLICATION"));
        assert!(matches!(ask(&stranger, &options), Err(SetupError::Privilege { .. })));
        let refused = ask(&poor, &options);
        assert!(matches!(refused, Err(SetupError::PublicationPrivilege { .. })), "{refused:?}");
        db.run(&format!("SELECT pg_create_physical_replication_slot('{}')", options.slot));
        let refused = ask(&db.config, &options);
        assert!(
            matches!(&refused, Err(SetupError::ForeignSlot { what, .. }) if what == "it is physical"),
            "{refused:?}"
        );
        db.run(&format!("SELECT pg_drop_replication_slot('{}')", options.slot));
        let ascii = Config { database: format!("{}_ascii", db.name), ..db.config.clone() };
        db.run(&format!("CREATE DATABASE {} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0", ascii.database));
        let refused = ask(&ascii, &options);
        assert!(matches!(refused, Err(SetupError::NoEncoding)), "{refused:?}");
    });
    for installation in installations() {
        let few = thalweg_pgtest::Options::default().set("max_replication_slots", "1");
        let cluster = Cluster::start(&installation, &few);
        let config = cluster.url("postgres").parse().unwrap();
        let db = Database { major: cluster.major(), name: "few".into(), config };
        db.run("SELECT pg_create_physical_replication_slot('other')");
        let full = prepare(&endpoint(&db.config), &options(&db), &|| {}, &|| false);
        assert!(matches!(&full, Err(SetupError::NoSlotFree { max }) if max == "1"), "{full:?}");

        let cluster = Cluster::start(&installation, &thalweg_pgtest::Options::default().set("wal_level", "replica"));
        let config = cluster.url("postgres").parse().unwrap();
        let db = Database { major: cluster.major(), name: "level".into(), config };
        let level = prepare(&endpoint(&db.config), &options(&db), &|| {}, &|| false);
        assert!(matches!(&level, Err(SetupError::WalLevel(level)) if level == "replica"), "{level:?}");
        assert!(Conn::connect(&db.config).is_ok());
    }
}
