//! The thread that follows Postgres: connects, finds out whether it may go on where it was, and applies what comes.

use crate::applier::{Applier, ApplyError};
use crate::engine::Engine;
use crate::idle::ASLEEP_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_source::anchor::Proof;
use thalweg_shapes_source::replicate::Follower;
use thalweg_shapes_source::session::Place;
use thalweg_shapes_source::setup::{self, Resume, Server, SetupError};
use thalweg_wire::pg::replication::StartOptions;
use thalweg_wire::pg::{self, Lsn};

const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// A connection that held for so long was a good one: the next pause is short again.
const GOOD: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Stream(#[from] pg::Error),
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
}

/// Follows until the engine stops.
pub(crate) fn run(engine: &Arc<Engine>) {
    let (mut pause, mut first) = (RETRY_MIN, true);
    while !engine.stopping() {
        let began = engine.clock.now();
        match follow(engine, &mut first) {
            Ok(()) if engine.stopping() => return,
            Ok(()) => {
                sleep(engine);
                continue;
            }
            Err(error) => {
                engine.set_health(Health::Starting);
                if engine.clock.since(began) > GOOD {
                    pause = RETRY_MIN;
                }
                tracing::warn!(%error, retry_in = ?pause, "no changes come from Postgres");
            }
        }
        engine.pause(pause);
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Waits without a connection until somebody needs the database, or changes have gathered for long.
fn sleep(engine: &Engine) {
    engine.set_health(Health::Asleep);
    tracing::info!(
        "nobody asks for shapes: the connections to Postgres are closed until somebody does (database_idle)"
    );
    engine.pause_while(ASLEEP_MAX, || engine.is_idle());
}

/// Until the engine stops or nobody needs the database. `first`: nothing was followed since the start.
fn follow(engine: &Arc<Engine>, first: &mut bool) -> Result<(), FollowError> {
    let options = setup::Options {
        slot: engine.config.slot(),
        publication: engine.config.publication(),
        manual: engine.config.manual_publishing,
        temporary: engine.config.temporary_slot,
        failover: engine.config.failover_slot,
        ephemeral: engine.config.ephemeral,
        known: engine.known_source(),
    };
    let waiting = || engine.set_health(Health::Waiting);
    let ready = setup::prepare(&engine.replication, &options, &waiting, &|| engine.stopping())?;
    engine.publication_passing.store(ready.publication_passing, Ordering::Relaxed);
    let (identity, confirmed) = (ready.identity, ready.confirmed.0);
    let place = Place { system: identity.system.clone(), timeline: identity.timeline };
    match &ready.resume {
        Resume::Continue => engine.bookmark.go_on(&engine.store, identity, confirmed)?,
        Resume::Restart { why } => {
            engine.leave_source(why)?;
            engine.bookmark.begin(&engine.store, identity, confirmed)?;
        }
    }
    if std::mem::take(first) {
        greet(engine, &ready.server, &ready.resume);
    }
    engine.followed.set(place);
    engine.router.lock().forget_relations();
    let start = StartOptions { publications: vec![engine.config.publication()], ..StartOptions::default() };
    let mut stream = ready.conn.start(&engine.config.slot(), Lsn::ZERO, &start)?;
    engine.idle.awake(engine.now_ms());
    engine.set_health(Health::Active);
    tracing::info!(slot = engine.config.slot(), "changes come from Postgres");
    let mut applier = Applier::new(Arc::clone(engine), confirmed).at_least(ready.end.0);
    let proof = Proof::new(engine.watermarks.anchor(), confirmed);
    let clock = Arc::clone(&engine.clock);
    let followed = Follower::new(engine.config.spill.clone(), proof, clock).run(&mut stream, &mut applier);
    if let Err(ApplyError::Diverged(diverged)) = &followed {
        engine.bookmark.break_off(diverged.to_string());
    }
    Ok(followed?)
}

/// What there is to say and to do about a server that is followed for the first time since the start.
fn greet(engine: &Engine, server: &Server, resume: &Resume) {
    if let Some(role) = &server.superuser {
        tracing::warn!(
            "the role {role} is a superuser: an owner of a table that shapes select from can have Postgres run code with its rights; a role \
             with REPLICATION and SELECT is enough (docs/ops/security.md)"
        );
    }
    // Tables were in order until the stop, and what has happened since comes now. But a transaction that waits for a standby was sent already and is
    // in no snapshot yet: then the next shape of each table waits for who writes to it.
    if *resume == Resume::Continue && !server.waits_for_standbys {
        let in_use = engine.router.lock().tables();
        engine.publisher.trust(in_use.iter().map(AsRef::as_ref), engine.replication.clock.now());
    }
}
