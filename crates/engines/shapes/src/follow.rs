//! The thread that follows Postgres: connects, finds out whether it may go on where it was, and applies what comes.

use crate::applier::{Applier, ApplyError};
use crate::engine::{Engine, Health};
use crate::format::note::SourceIdentity;
use crate::source::replicate::Follower;
use crate::source::setup::{self, Resume, SetupError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
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

/// Follows until the engine stops. `known`: where changes came from so far.
pub(crate) fn run(engine: &Arc<Engine>, mut known: Option<SourceIdentity>) {
    let mut pause = RETRY_MIN;
    while !engine.stopping() {
        let began = Instant::now();
        match follow(engine, &mut known) {
            Ok(()) => return,
            Err(error) => {
                engine.set_health(Health::Starting);
                if began.elapsed() > GOOD {
                    pause = RETRY_MIN;
                }
                tracing::warn!(%error, retry_in = ?pause, "no changes come from Postgres");
            }
        }
        let until = Instant::now() + pause;
        while Instant::now() < until && !engine.stopping() {
            std::thread::sleep(Duration::from_millis(20));
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
}

fn follow(engine: &Arc<Engine>, known: &mut Option<SourceIdentity>) -> Result<(), FollowError> {
    let options = setup::Options {
        slot: engine.config.slot(),
        publication: engine.config.publication(),
        manual: engine.config.manual_publishing,
        temporary: engine.config.ephemeral,
        known: known.clone(),
    };
    let waiting = || engine.set_health(Health::Waiting);
    let ready = setup::prepare(&engine.config.database, &options, &waiting, &|| engine.stopping())?;
    if ready.publication_made {
        engine.publication_made.store(true, Ordering::Relaxed);
    }
    if let Resume::Restart { why } = &ready.resume {
        engine.drop_all(why);
        engine.publisher.forget_all();
    }
    if known.as_ref() != Some(&ready.identity) {
        let end = engine.store.put_source(&ready.identity)?;
        engine.store.wait(end)?;
        *known = Some(ready.identity.clone());
    }
    engine.router.lock().forget_relations();
    let start = StartOptions { publications: vec![engine.config.publication()], ..StartOptions::default() };
    let mut stream = ready.conn.start(&engine.config.slot(), Lsn::ZERO, &start)?;
    engine.set_health(Health::Active);
    tracing::info!(slot = engine.config.slot(), "changes come from Postgres");
    let mut applier = Applier::new(Arc::clone(engine), ready.confirmed.0);
    Follower::new(engine.config.spill.clone()).run(&mut stream, &mut applier)?;
    Ok(())
}
