//! The beacon of a server with a mirror: by it a start on another folder sees that the server lives.
//!
//! A beacon decides nothing but how long a start waits. Whoever has acquired the mirror owns it.

use crate::config::Config;
use anyhow::bail;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use thalweg_object::Beacon;

/// The key of the beacon of the data folder's unit.
pub(super) const KEY: &str = "h/main";

/// A server whose beacon was not renewed for so many of its periods is taken for dead.
const DARK_AFTER: u32 = 3;

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    host: String,
    pid: u32,
    listen: String,
    lineage: String,
    /// How often it is renewed.
    every_ms: u64,
    /// Random for each process: two never write the same text.
    process: u64,
    beat: u64,
}

impl Owner {
    pub(super) fn of_this_process(lineage: &str, config: &Config, every: Duration) -> Self {
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            listen: config.listen.to_string(),
            lineage: lineage.to_owned(),
            every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX),
            process: crate::folder::random().unwrap_or_default(),
            beat: 0,
        }
    }

    /// For people.
    pub(super) fn described(&self) -> String {
        format!("{} on {} (pid {})", self.listen, self.host, self.pid)
    }

    /// The text of the next renewal.
    pub(super) fn next(&mut self) -> Bytes {
        self.beat += 1;
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// Waits until a server that may live would have renewed its beacon. Refuses if it does.
pub(super) fn wait_until_dark(beacon: &Beacon, store: &str) -> anyhow::Result<()> {
    let Some(first) = beacon.look()? else { return Ok(()) };
    let Ok(owner) = serde_json::from_slice::<Owner>(&first.text) else {
        bail!("the beacon in {store} is not one of a server: {:?}", String::from_utf8_lossy(&first.text));
    };
    let every = Duration::from_millis(owner.every_ms.clamp(1, 3_600_000));
    let wait = every * DARK_AFTER;
    tracing::info!(
        store,
        server = owner.described(),
        "the server that has used this store did not say that it stopped: waiting {wait:?} to see whether it lives"
    );
    let until = Instant::now() + wait;
    while Instant::now() < until {
        std::thread::sleep((every / 4).min(until.saturating_duration_since(Instant::now())));
        if beacon.look()?.is_some_and(|seen| seen != first) {
            bail!("{store} is in use by the server {}: stop that one first, or take another prefix", owner.described());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_renewal_has_another_text() {
        let owner = || Owner {
            host: "h".into(),
            pid: 7,
            listen: "127.0.0.1:1".into(),
            lineage: "l".into(),
            every_ms: 10,
            process: crate::folder::random().unwrap(),
            beat: 0,
        };
        let (mut one, mut other) = (owner(), owner());
        let texts = [one.next(), one.next(), other.next(), other.next()];
        assert!((1..texts.len()).all(|at| !texts[..at].contains(&texts[at])));
        assert_eq!(serde_json::from_slice::<Owner>(&texts[1]).unwrap(), one);
    }
}
