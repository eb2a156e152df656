//! The announcements of nodes in the bucket: one's own, which is written again and again, and those of others.
//!
//! A node that was silent for long is retired by those who have seen it: see [`thalweg_object::Beacon`]. If it lives after
//! all, it goes on with its next object. Of a node that has several objects only the last one counts.

use super::core::{Core, Moment};
use super::proofs::Proofs;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_object::{Beacon, Bucket, BucketError, Shown};

/// How long an attempt to read an announcement may take, and a request with its repetitions. A request that hangs must
/// not hide for longer which nodes are dead.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const GIVE_UP_AFTER: Duration = Duration::from_secs(6);
/// How long an attempt to write an announcement may take, in periods: one that hangs is repeated before the lease of
/// the announcement before ends. A bucket that always needs longer gets more time, see [`Board::say`].
const WRITTEN_WITHIN: f64 = 0.7;
/// The two attempts after which a slow bucket gets more time, in periods.
const QUICK_WITHIN: f64 = 1.5;

/// The keys of announcements.
pub(crate) const KEYS: &str = "n/";

pub(super) struct Board {
    bucket: Bucket,
    /// The same, for this node's own announcement while the bucket is as fast as it should be.
    quick: Bucket,
    /// The last announcement took long, or failed: the next one gets as much time as a reading.
    is_slow: AtomicBool,
    every: Duration,
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

/// What the key of an announcement has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Announcement,
    /// No object, or a retired one.
    Nothing,
    /// No node of this prefix has signed it.
    Stranger,
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
    let numbered = name.rsplit_once('.').and_then(|(instance, text)| {
        let number = text.parse::<u64>().ok()?;
        (number > 0 && number.to_string() == text).then_some((instance, number))
    });
    numbered.unwrap_or((name, 0))
}

impl Board {
    /// `every`: the period of announcements. `now` reads the clocks.
    pub(super) fn new(
        bucket: &Bucket,
        proofs: Arc<Proofs>,
        every: Duration,
        now: impl Fn() -> Moment + Send + Sync + 'static,
    ) -> Self {
        let written_within = every.mul_f64(WRITTEN_WITHIN).min(ANSWER_WITHIN);
        let quick = bucket.hurried(written_within, every.mul_f64(QUICK_WITHIN).min(GIVE_UP_AFTER));
        let bucket = bucket.hurried(ANSWER_WITHIN, GIVE_UP_AFTER);
        let beacon = Beacon::new(bucket.clone(), &key_of(proofs.instance(), 0));
        let is_slow = AtomicBool::new(false);
        Self { bucket, quick, is_slow, every, proofs, own: Mutex::new(Own { number: 0, beacon }), now: Box::new(now) }
    }

    fn beacon(&self, instance: &str, object: u64) -> Beacon {
        Beacon::new(self.bucket.clone(), &key_of(instance, object))
    }

    /// Writes what the node says now.
    pub(super) fn say(&self, core: &Mutex<Core>) -> Result<(), BucketError> {
        let mut own = self.own.lock();
        loop {
            let began = (self.now)();
            let saying = core.lock().say(own.number, began);
            let by = if self.is_slow.swap(true, Ordering::Relaxed) { &self.bucket } else { &self.quick };
            match own.beacon.show_by(by, &self.proofs.signed(&saying.announcement))? {
                Shown::Written => {
                    let took = (self.now)().since(began);
                    self.is_slow.store(took >= self.every.mul_f64(WRITTEN_WITHIN), Ordering::Relaxed);
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
    pub(super) fn read(&self, core: &Mutex<Core>, instance: &str, object: u64) -> Result<Found, BucketError> {
        let (beacon, asked) = (self.beacon(instance, object), (self.now)());
        Ok(match beacon.look()? {
            None => {
                core.lock().gone(instance, object, asked);
                Found::Nothing
            }
            Some(seen) if seen.is_retired() => {
                core.lock().gone(instance, object, asked);
                // The node that retired the announcement may have died before it removed it.
                beacon.retire(&seen)?;
                Found::Nothing
            }
            Some(seen) => match self.proofs.open(&seen.text, instance).filter(|found| found.object == object) {
                Some(found) => {
                    core.lock().heard(found, asked, (self.now)());
                    Found::Announcement
                }
                None => {
                    // Its node would have replaced it within a period, and be heard of again.
                    core.lock().silent(instance, object, asked);
                    Found::Stranger
                }
            },
        })
    }

    /// Reads all announcements: of each node the last one that it has signed. Fails if one of a node that is known cannot be
    /// read: it may have a unit since. Other objects that cannot be read are strange.
    pub(super) fn list(&self, core: &Mutex<Core>) -> Result<(), BucketError> {
        let asked = (self.now)();
        let mut objects: BTreeMap<String, Vec<(u64, i64)>> = BTreeMap::new();
        for listed in self.bucket.objects(KEYS)? {
            let (instance, object) = parse(&listed.key);
            objects.entry(instance.to_owned()).or_default().push((object, listed.modified_ms));
        }
        let instances = core.lock().listed(objects.keys().cloned().collect(), asked);
        let (mut strange, mut failed) = (BTreeMap::new(), None);
        for instance in instances {
            let mut numbers = objects.remove(&instance).unwrap_or_default();
            numbers.sort_unstable();
            while let Some((object, modified_ms)) = numbers.pop() {
                let key = key_of(&instance, object);
                let (is_known, is_strange) = {
                    let core = core.lock();
                    (core.knows(&instance), core.is_strange(&key, modified_ms))
                };
                let found = match is_strange && !is_known {
                    true => Ok(Found::Stranger),
                    false => self.read(core, &instance, object),
                };
                match found {
                    Ok(Found::Announcement) => break,
                    Ok(Found::Nothing) => {}
                    Ok(Found::Stranger) => drop(strange.insert(key, modified_ms)),
                    Err(error) if is_known => {
                        failed = Some(error);
                        numbers.clear();
                    }
                    Err(error) => {
                        tracing::debug!(key, %error, "an object that should be an announcement cannot be read");
                        strange.insert(key, modified_ms);
                    }
                }
            }
            // Its node writes them no more: they were retired, or a request that was sent before has written them since.
            for (object, _) in numbers {
                drop(self.bucket.remove(&key_of(&instance, object)));
            }
        }
        core.lock().strange(&strange, asked, (self.now)());
        failed.map_or(Ok(()), Err)
    }

    /// Retires nodes that have been silent for long.
    pub(super) fn forget(&self, core: &Mutex<Core>) -> Result<(), BucketError> {
        let gone = core.lock().forgotten();
        for said in gone {
            let (beacon, asked) = (self.beacon(&said.instance, said.object), (self.now)());
            let Some(seen) = beacon.look()? else { continue };
            match self.proofs.open(&seen.text, &said.instance) {
                Some(found) if found.seq != said.seq => core.lock().heard(found, asked, (self.now)()),
                _ if beacon.retire(&seen)? => core.lock().gone(&said.instance, said.object, asked),
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
