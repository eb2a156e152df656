//! The thread that follows Postgres: connects, checks whether it may go on where it was, and applies the changes.

use crate::applier::{Applier, ApplyError};
use crate::faults::Fault;
use crate::idle::ASLEEP_MAX;
use crate::server::ShapesServer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_pg as pg;
use thalweg_pg::replication::StartOptions;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_source::anchor::Proof;
use thalweg_shapes_source::replicate::Follower;
use thalweg_shapes_source::session::Place;
use thalweg_shapes_source::setup::{self, Known, Resume, Server, SetupError};

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

/// Follows until the server stops.
pub(crate) fn run(server: &Arc<ShapesServer>) {
    let (mut pause, mut first) = (RETRY_MIN, true);
    while !server.lifetime.stopping() {
        let began = server.lifetime.clock.now();
        match follow(server, &mut first) {
            Ok(()) if server.lifetime.stopping() => return,
            Ok(()) => {
                sleep(server);
                continue;
            }
            Err(error) => {
                server.source.set_health(Health::Starting);
                if server.lifetime.clock.since(began) > GOOD {
                    pause = RETRY_MIN;
                }
                tracing::warn!(%error, retry_in = ?pause, "no changes come from Postgres");
            }
        }
        server.lifetime.pause(pause);
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Waits without a connection until a shape or request needs the database, or changes have gathered for long.
fn sleep(server: &ShapesServer) {
    server.source.set_health(Health::Asleep);
    tracing::info!(
        "nobody asks for shapes: the connections to Postgres are closed until somebody does (database_idle)"
    );
    server.lifetime.pause_while(ASLEEP_MAX, || server.source.is_idle(&server.lifetime));
}

/// Runs until the server stops or no shape or request needs the database. `first`: no stream was followed since the
/// start.
fn follow(server: &Arc<ShapesServer>, first: &mut bool) -> Result<(), FollowError> {
    let options = setup::Options {
        slot: server.config.slot(),
        publication: server.config.publication(),
        manual: server.config.manual_publishing,
        temporary: server.config.temporary_slot,
        failover: server.config.failover_slot,
        ephemeral: server.config.ephemeral,
        ownership: server.config.ownership.clone(),
        known: known_source(server),
    };
    let waiting = || server.source.set_health(Health::Waiting);
    let ready = setup::prepare(&server.source.replication, &options, &waiting, &|| server.lifetime.stopping())?;
    server.source.publication_passing.store(ready.publication_passing, Ordering::Relaxed);
    let (identity, confirmed) = (ready.identity, ready.confirmed);
    let place = Place { system: identity.system.clone(), timeline: identity.timeline };
    match &ready.resume {
        Resume::Continue => server.source.bookmark.go_on(&server.changes.store, identity, confirmed, ready.end)?,
        Resume::Restart { why } => {
            server.leave_source(why)?;
            server.source.bookmark.begin(&server.changes.store, identity, confirmed)?;
        }
    }
    if std::mem::take(first) {
        greet(server, &ready.server, &ready.resume);
    }
    server.source.followed.set(place);
    server.feed.lock().router.forget_relations();
    let start = StartOptions { publications: vec![server.config.publication()], ..StartOptions::default() };
    let mut stream = ready.conn.start(&server.config.slot(), &start)?;
    server.source.idle.awake(server.lifetime.now_ms());
    server.source.set_health(Health::Active);
    tracing::info!(slot = server.config.slot(), "changes come from Postgres");
    let mut applier = Applier::new(Arc::clone(server), confirmed).at_least(ready.end);
    let last = server.watermarks.anchor().filter(|_| !server.lifetime.faults.has(Fault::SetBackUnnoticed));
    let proof = Proof::new(last, confirmed.0);
    let clock = Arc::clone(&server.lifetime.clock);
    let followed = Follower::new(server.config.spill.clone(), proof, clock).run(&mut *stream, &mut applier);
    if let Err(ApplyError::Diverged(diverged)) = &followed {
        server.source.bookmark.break_off(diverged.to_string());
    }
    Ok(followed?)
}

/// Knowledge of the source from earlier connections.
fn known_source(server: &ShapesServer) -> Option<Known> {
    let known = server.known_source()?;
    if server.lifetime.faults.has(Fault::SetBackUnnoticed) {
        return Some(Known { seen: 0, unclean: false, ..known });
    }
    Some(known)
}

/// Warns of a superuser, and trusts the tables in use, when a Postgres is followed for the first time since the start.
fn greet(server: &ShapesServer, postgres: &Server, resume: &Resume) {
    if let Some(role) = &postgres.superuser {
        tracing::warn!(
            "the role {role} is a superuser: an owner of a table that shapes select from can have Postgres run code with its rights; a role \
             with REPLICATION and SELECT is enough (docs/ops/security.md)"
        );
    }
    // Tables were in order until the stop, and the changes since then come now. But a transaction that waits for a
    // standby was sent already and is in no snapshot yet: then the next shape of each table waits for the table's
    // writers.
    if *resume == Resume::Continue && !postgres.waits_for_standbys {
        let in_use = server.feed.lock().router.tables();
        server.source.publisher.trust(in_use.iter().map(AsRef::as_ref), server.source.replication.clock.now());
    }
}
