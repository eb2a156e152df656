use super::{endpoint, on_each};
use crate::error::SourceError;
use crate::pool::{Health, Options, Pool};
use crate::session::Session;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use thalweg_http::{Fetch, Waker};
use thalweg_pg::Config;
use thalweg_pgtest::{Cluster, Stop, installations};

fn pool(config: &Config, connections: usize) -> Pool {
    Pool::with(Options { endpoint: endpoint(config), connections, jobs_max: 8, idle: Duration::from_secs(2), kept: 0 })
}

/// Runs a query on the pool and waits for its value.
fn ask(pool: &Pool, sql: &'static str) -> Result<String, SourceError> {
    let (answer, answers) = mpsc::channel();
    let queued = pool.submit(move |session| {
        let value = session
            .and_then(|session| Ok(session.conn().simple(sql)?.pop().unwrap().value().unwrap_or_default().to_owned()));
        answer.send(value).unwrap();
    });
    queued?;
    answers.recv().unwrap()
}

/// A job that holds its connection until it is released.
fn hold(pool: &Pool) -> (mpsc::Receiver<Result<(), SourceError>>, mpsc::Sender<()>) {
    let ((begun, begins), (go, gate)) = (mpsc::channel(), mpsc::channel::<()>());
    let job = move |session: Result<&mut Session, SourceError>| {
        let _ = begun.send(session.map(drop));
        let _ = gate.recv();
    };
    pool.submit(job).unwrap();
    (begins, go)
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn so_many_stay_however_long_they_are_idle() {
    on_each(|db| {
        let idle = Duration::from_millis(100);
        let pool = Pool::with(Options { endpoint: endpoint(&db.config), connections: 3, jobs_max: 8, idle, kept: 1 });
        let held = [hold(&pool), hold(&pool), hold(&pool)];
        held.iter().for_each(|(begun, _)| begun.recv().unwrap().unwrap());
        drop(held);
        eventually("two of three go", || pool.stats().connections == 1);
        let stays = ask(&pool, "SELECT pg_backend_pid()").unwrap();
        std::thread::sleep(5 * idle);
        assert_eq!(ask(&pool, "SELECT pg_backend_pid()").unwrap(), stays);
    });
}

#[test]
fn connections_are_made_when_needed_and_go_when_idle() {
    on_each(|db| {
        let one = pool(&db.config, 1);
        assert_eq!((one.health(), one.stats().connections), (Health::Untried, 0));
        let first = ask(&one, "SELECT pg_backend_pid()").unwrap();
        assert_eq!(ask(&one, "SELECT pg_backend_pid()").unwrap(), first);
        assert_eq!((one.health(), one.stats().connections), (Health::Up, 1));
        let pool = pool(&db.config, 3);
        let held = [hold(&pool), hold(&pool), hold(&pool)];
        held.iter().for_each(|(begun, _)| begun.recv().unwrap().unwrap());
        let fourth = hold(&pool);
        assert_eq!((pool.stats().connections, pool.stats().waiting), (3, 1));
        drop(held);
        fourth.0.recv().unwrap().unwrap();
        drop(fourth);
        eventually("idle connections go", || pool.stats().connections + one.stats().connections == 0);
        let there = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'thalweg'",
            db.name
        );
        eventually("also for the server", || db.value(&there) == "0");
        assert_ne!(ask(&one, "SELECT pg_backend_pid()").unwrap(), first);
    });
}

#[test]
fn a_full_queue_refuses() {
    on_each(|db| {
        let pool = pool(&db.config, 1);
        let (begun, go) = hold(&pool);
        begun.recv().unwrap().unwrap();
        let held: Vec<_> = (0..8).map(|_| hold(&pool)).collect();
        assert!(matches!(ask(&pool, "SELECT 1"), Err(SourceError::Full { waiting: 8 })));
        drop(go);
        drop(held);
        eventually("there is room again", || ask(&pool, "SELECT 1").is_ok());
        let (begun, go) = hold(&pool);
        begun.recv().unwrap().unwrap();
        let (waiting, _gate) = hold(&pool);
        let dropper = std::thread::spawn(move || drop(pool));
        assert!(matches!(waiting.recv().unwrap(), Err(SourceError::Stopped)));
        drop((go, _gate));
        dropper.join().unwrap();
    });
}

#[test]
fn jobs_whose_cost_clients_decide_leave_half_of_the_connections_to_all_else() {
    on_each(|db| {
        let pool = pool(&db.config, 4);
        let ((begun, begins), (go, gate)) = (mpsc::channel(), mpsc::channel::<()>());
        let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
        let fetches: Vec<_> = (0..6)
            .map(|n| {
                let (begun, gate) = (begun.clone(), std::sync::Arc::clone(&gate));
                let job = move |session: Result<&mut Session, SourceError>| {
                    session.map(drop)?;
                    begun.send(n).unwrap();
                    let _ = gate.lock().unwrap().recv();
                    Ok::<_, SourceError>(n)
                };
                pool.run_beside(job).unwrap()
            })
            .collect();
        let mut running = vec![begins.recv().unwrap(), begins.recv().unwrap()];
        assert_eq!(pool.stats().waiting, 4);
        // Two connections are left, for as much as comes.
        (0..5).for_each(|_| assert_eq!(ask(&pool, "SELECT 1").unwrap(), "1"));
        assert!(begins.try_recv().is_err(), "two at a time");
        for _ in 0..4 {
            go.send(()).unwrap();
            running.push(begins.recv().unwrap());
        }
        running.sort_unstable();
        assert_eq!(running, [0, 1, 2, 3, 4, 5]);
        drop(go);
        let done = |fetch: &Fetch<_>| matches!(fetch.take(|| Waker::from_fn(|| {})), Some(Ok(_)));
        let mut open: Vec<_> = fetches.iter().collect();
        eventually("all have an answer", || {
            open.retain(|fetch| !done(fetch));
            open.is_empty()
        });
        eventually("a place is given back", || pool.stats().waiting == 0);
        assert!(pool.run_beside(|session| session.is_ok()).is_ok());
    });
}

#[test]
fn jobs_are_cancelled_while_they_wait_and_while_they_run() {
    on_each(|db| {
        let pool = pool(&db.config, 1);
        let (answer, answers) = mpsc::channel();
        let sleep = || {
            let answer = answer.clone();
            pool.submit(move |session| {
                let slept = session.and_then(|session| {
                    session
                        .conn()
                        .simple("SELECT pg_sleep(60)")
                        .map(drop)
                        .map_err(|error| session.cancel.explain(error))
                });
                answer.send(slept).unwrap();
            })
            .unwrap()
        };
        let (first, second) = (sleep(), sleep());
        second.cancel();
        eventually("it runs", || {
            db.value("SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'") != "0"
        });
        first.cancel();
        for _ in 0..2 {
            assert!(matches!(answers.recv().unwrap(), Err(SourceError::Cancelled)));
        }
        assert_eq!(ask(&pool, "SELECT 5").unwrap(), "5");
    });
}

#[test]
fn a_pool_that_goes_takes_its_queries_with_it() {
    on_each(|db| {
        let pool = pool(&db.config, 2);
        let (answer, answers) = mpsc::channel();
        pool.submit(move |session| {
            answer.send(session.unwrap().conn().simple("SELECT pg_sleep(61)").is_err()).unwrap()
        })
        .unwrap();
        let running = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(61)'";
        eventually("it runs", || db.value(running) != "0");
        drop(pool);
        assert!(answers.recv().unwrap());
    });
}

#[test]
fn a_connection_that_was_left_in_a_bad_state_is_not_used_again() {
    on_each(|db| {
        let pool = pool(&db.config, 1);
        let first = ask(&pool, "SELECT pg_backend_pid()").unwrap();
        assert!(ask(&pool, "SELECT 1 / 0").is_err());
        assert_eq!(ask(&pool, "SELECT pg_backend_pid()").unwrap(), first, "an error does no harm");
        ask(&pool, "BEGIN; SELECT 1").unwrap();
        let second = ask(&pool, "SELECT pg_backend_pid()").unwrap();
        assert_ne!(second, first, "a transaction does");
    });
}

#[test]
fn a_connection_that_the_server_has_closed_is_not_given_to_a_job() {
    on_each(|db| {
        let pool = pool(&db.config, 1);
        for _ in 0..3 {
            let ended = ask(&pool, "SELECT pg_backend_pid()").unwrap();
            // True once the process has ended, which closes its connection.
            assert_eq!(db.value(&format!("SELECT pg_terminate_backend({ended}, 20000)")), "t");
            assert_ne!(ask(&pool, "SELECT pg_backend_pid()").unwrap(), ended, "just after it was used");
        }
    });
}

#[test]
fn a_server_that_gives_no_more_connections_is_used_with_those_it_gave() {
    on_each(|db| {
        let pool = pool(&db.role("CONNECTION LIMIT 2"), 5);
        let held = [hold(&pool), hold(&pool)];
        held.iter().for_each(|(begun, _)| begun.recv().unwrap().unwrap());
        let third = hold(&pool);
        let log = || {
            db.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'thalweg' AND datname = current_database()")
        };
        eventually("it waits", || (pool.stats().connections, pool.stats().waiting) == (2, 1));
        assert_eq!((pool.health(), log().as_str()), (Health::Up, "2"));
        drop(held);
        third.0.recv().unwrap().unwrap();
    });
}

#[test]
fn a_server_that_went_away_is_found_again() {
    for installation in installations() {
        let cluster = Cluster::start(&installation, &Default::default());
        let endpoint = endpoint(&cluster.url("postgres").parse().unwrap());
        let pool =
            Pool::with(Options { endpoint, connections: 2, jobs_max: 8, idle: Duration::from_secs(60), kept: 0 });
        assert_eq!(ask(&pool, "SELECT 1").unwrap(), "1");
        cluster.stop(Stop::Immediate);
        std::thread::sleep(Duration::from_millis(600));
        let began = Instant::now();
        for _ in 0..50 {
            assert!(matches!(ask(&pool, "SELECT 1"), Err(SourceError::Unreachable(_))));
        }
        assert!(began.elapsed() < Duration::from_secs(5), "nobody waits");
        assert!(matches!(pool.health(), Health::Down { .. }));
        cluster.start_again();
        eventually("it is found", || ask(&pool, "SELECT 1").is_ok());
        assert_eq!(pool.health(), Health::Up);
    }
}
