//! Which nodes live, as a reader of the bucket finds out: an announcement that changes was written by a live node.

use crate::nodes::{self, Announcement};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use thalweg_object::{Bucket, Listed};

/// An announcement that has not changed for so many of its periods is that of a node which is gone.
const DARK_AFTER: f64 = 2.5;
/// The longest wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A node, as its announcement and the time say.
#[derive(Clone, Debug)]
pub struct NodeSeen {
    /// Its own words.
    pub said: Announcement,
    /// Whether the announcement changed while it was looked at.
    pub is_live: bool,
    /// How long ago it was written, by the clocks of the bucket and of this machine.
    pub age_ms: u64,
}

/// The owner of a unit.
#[derive(Clone, Debug)]
pub struct OwnerSeen {
    /// Its node.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Whether it showed that it lives.
    pub is_live: bool,
}

/// Announcements that are looked at twice.
pub(super) struct Watch {
    began: Instant,
    first: BTreeMap<String, Announcement>,
}

impl Watch {
    /// Reads the announcements for the first time.
    pub(super) fn begin(bucket: &Bucket, listed: &[Listed]) -> anyhow::Result<Self> {
        let mut first = BTreeMap::new();
        for key in listed.iter().map(|listed| &listed.key).filter(|key| key.starts_with(nodes::KEYS)) {
            if let Some(said) = read(bucket, key)? {
                first.insert(key.clone(), said);
            }
        }
        Ok(Self { began: Instant::now(), first })
    }

    /// Waits until each of them has changed, or had the time to.
    pub(super) fn end(self, bucket: &Bucket, listed: &[Listed]) -> anyhow::Result<Vec<NodeSeen>> {
        let mut seen = Vec::new();
        for (key, first) in self.first {
            let period = Duration::from_millis(first.every_ms);
            let until = self.began + period.mul_f64(DARK_AFTER).min(WAIT_MAX);
            let last = loop {
                match read(bucket, &key)? {
                    // It was withdrawn: the node has stopped.
                    None => break None,
                    now if now.as_ref() != Some(&first) || Instant::now() >= until => break now,
                    _ => std::thread::sleep(LOOK_EVERY),
                }
            };
            let Some(said) = last else { continue };
            let written = listed.iter().find(|listed| listed.key == key).map_or(0, |listed| listed.modified_ms);
            let now = i64::try_from(crate::background::now().0).unwrap_or(i64::MAX);
            let is_live = said != first;
            let age_ms = if is_live { 0 } else { (now - written).max(0).cast_unsigned() };
            seen.push(NodeSeen { is_live, age_ms, said });
        }
        seen.sort_by(|a, b| (&a.said.name, a.age_ms).cmp(&(&b.said.name, b.age_ms)));
        Ok(seen)
    }
}

fn read(bucket: &Bucket, key: &str) -> anyhow::Result<Option<Announcement>> {
    Ok(bucket.read(key)?.and_then(|text| nodes::announced(&text)))
}

/// The node that owns a unit: the one which says that it has the epoch of the root. Units beside the numbered ones have
/// numbers above these.
pub(super) fn owner_of(nodes: &[NodeSeen], unit: &str, units: u64, epoch: u64) -> Option<OwnerSeen> {
    let number: Option<u64> = unit.strip_prefix('u').and_then(|name| name.split('-').next()?.parse().ok());
    let is_it = |other: u64| number.map_or(other >= units, |number| other == number);
    let claims = |node: &&NodeSeen| node.said.units.iter().any(|(other, by)| is_it(*other) && *by == epoch);
    let owner = nodes.iter().find(claims)?;
    let (name, address) = (owner.said.name.clone(), owner.said.address.clone());
    Some(OwnerSeen { name, address, is_live: owner.is_live })
}
