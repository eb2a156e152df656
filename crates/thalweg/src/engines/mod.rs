//! The engines of this binary. Each is wired in one file: settings, routes, health, metrics, background work and stop.

pub(crate) mod replicated;
pub(crate) mod shapes;
pub(crate) mod streams;
pub(crate) mod subscriptions;

use std::sync::Arc;
use thalweg_host::config::Config;
use thalweg_host::{Boot, Engines};

/// Opens every engine, each with one line. An engine may use those above it.
pub(crate) fn open(boot: Boot<'_>) -> anyhow::Result<(Engines, Arc<streams::ServedStreams>)> {
    let mut engines = Engines::default();
    let streams = engines.add(streams::open(boot)?);
    engines.add(replicated::open(boot, &streams)?);
    let node = engines.add(crate::nodes::open(boot, &streams)?);
    engines.add(shapes::open(boot, &node)?);
    engines.add(subscriptions::open(boot, &streams, &node)?);
    Ok((engines, streams))
}

/// Whether engines could be opened with these settings. Opens and creates nothing.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    shapes::check(config)
}
