//! The announcements of nodes in the bucket: one's own, which is written again and again, and those of others.
//!
//! A node that was silent for long is retired by those who have seen it: see [`thalweg_object::Beacon`]. If it lives after
//! all, it goes on with its next object. Of a node that has several objects only the last one counts.

use super::core::{Core, Moment};
use super::proofs::Proofs;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thalweg_object::{Beacon, Bucket, BucketError, Shown};

/// How long an attempt to write or read an announcement may take, and a request with its repetitions. A request that
/// hangs must not cost the lease for longer than that, nor hide for longer which nodes are dead.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const GIVE_UP_AFTER: Duration = Duration::from_secs(6);

/// The keys of announcements.
pub(crate) const KEYS: &str = "n/";

pub(super) struct Board {
    bucket: Bucket,
    proofs: Arc<Proofs>,
    own: Mutex<Own>,
    /// Reads the clocks.
    now: Box<dyn Fn() -> Moment + Send + Sync>,
}

/// The object that this node writes.
struct Own {
    number: u64,
    beacon: Beacon,
}

/// The key of an announcement.
fn key_of(instance: &str, object: u64) -> String {
    match object {
        0 => format!("{KEYS}{instance}"),
        number => format!("{KEYS}{instance}.{number}"),
    }
}

/// The instance and the object's number of a key without its prefix. Instances end with a dash and hexadecimal digits.
fn parse(name: &str) -> (&str, u64) {
    let numbered = name.rsplit_once('.').and_then(|(instance, number)| Some((instance, number.parse().ok()?)));
    numbered.unwrap_or((name, 0))
}

impl Board {
    pub(super) fn new(bucket: &Bucket, proofs: Arc<Proofs>, now: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        let bucket = bucket.hurried(ANSWER_WITHIN, GIVE_UP_AFTER);
        let beacon = Beacon::new(bucket.clone(), &key_of(proofs.instance(), 0));
        Self { bucket, proofs, own: Mutex::new(Own { number: 0, beacon }), now: Box::new(now) }
    }

    fn beacon(&self, instance: &str, object: u64) -> Beacon {
        Beacon::new(self.bucket.clone(), &key_of(instance, object))
    }

    /// Writes what the node says now.
    pub(super) fn say(&self, core: &Mutex<Core>) -> Result<(), BucketError> {
        let mut own = self.own.lock();
        loop {
            let saying = core.lock().say(own.number, (self.now)());
            match own.beacon.show(&self.proofs.signed(&saying.announcement))? {
                Shown::Written => {
                    core.lock().said(&saying, (self.now)());
                    return Ok(());
                }
                Shown::Retired => {
                    tracing::warn!("others have taken this node for dead for long: it announces itself anew");
                    own.number += 1;
                    own.beacon = self.beacon(self.proofs.instance(), own.number);
                }
            }
        }
    }

    /// Removes this node's announcement. The node must own no unit any more.
    pub(super) fn withdraw(&self) -> Result<(), BucketError> {
        let number = self.own.lock().number;
        self.bucket.remove(&key_of(self.proofs.instance(), number))
    }

    /// Reads an announcement.
    pub(super) fn read(&self, core: &Mutex<Core>, instance: &str, object: u64) -> Result<(), BucketError> {
        let (beacon, asked) = (self.beacon(instance, object), (self.now)());
        match beacon.look()? {
            None => core.lock().gone(instance, object),
            Some(seen) if seen.is_retired() => {
                core.lock().gone(instance, object);
                // The node that retired the announcement may have died before it removed it.
                beacon.retire(&seen)?;
            }
            Some(seen) => match self.proofs.open(&seen.text, instance) {
                Some(found) => core.lock().heard(found, asked, (self.now)()),
                None => tracing::error!(instance, "an object of the bucket is no announcement that a node has signed"),
            },
        }
        Ok(())
    }

    /// Reads all announcements.
    pub(super) fn list(&self, core: &Mutex<Core>) -> Result<(), BucketError> {
        let asked = (self.now)();
        let names = self.bucket.keys(KEYS)?;
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for (instance, object) in names.iter().map(|name| parse(name)) {
            let last = last.entry(instance.to_owned()).or_default();
            *last = object.max(*last);
        }
        for (instance, object) in names.iter().map(|name| parse(name)) {
            // Its node writes it no more: it was retired, or a request that was sent before has written it since.
            if object < last[instance] {
                drop(self.bucket.remove(&key_of(instance, object)));
            }
        }
        let instances = core.lock().listed(last.keys().cloned().collect(), asked);
        instances.into_iter().try_for_each(|instance| self.read(core, &instance, last[&instance]))
    }

    /// Retires nodes that have been silent for long.
    pub(super) fn forget(&self, core: &Mutex<Core>) -> Result<(), BucketError> {
        let gone = core.lock().forgotten();
        for said in gone {
            let (beacon, asked) = (self.beacon(&said.instance, said.object), (self.now)());
            let Some(seen) = beacon.look()? else { continue };
            match self.proofs.open(&seen.text, &said.instance) {
                Some(found) if found.seq != said.seq => core.lock().heard(found, asked, (self.now)()),
                _ if beacon.retire(&seen)? => core.lock().gone(&said.instance, said.object),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_a_process_and_the_number_of_its_object() {
        for (instance, object) in [("n1-00ff", 0), ("n1-00ff", 12), ("n.1-00ff", 0), ("n.1-00ff", 3)] {
            let key = key_of(instance, object);
            assert_eq!(parse(key.strip_prefix(KEYS).unwrap()), (instance, object), "{key}");
        }
    }
}
