//! What lies below a prefix of a bucket, for people: its units, who owns them, and what no root names.
//!
//! Everything here reads, and owns nothing: it is safe beside owners that live. Units are found by their keys, whatever
//! engine they are of.

mod look;
mod owners;
mod verify;

pub use look::{Holdings, Journaled, Orphans, UnitHeld, look};
pub use owners::{NodeSeen, OwnerSeen};
pub use verify::{Problem, UnitVerified, verify};

use crate::mirror;
use std::collections::BTreeSet;
use thalweg_object::Listed;

/// How often a unit is looked at whose root changes meanwhile.
const TRIES: u32 = 20;
/// Units that are read at the same time.
const AT_ONCE: usize = 4;

/// The names of all units that have a root, an object or a journal; without the mirror of a data folder.
fn units_of(listed: &[Listed]) -> Vec<String> {
    let names = listed.iter().filter_map(|listed| {
        let mut parts = listed.key.split('/');
        let (kind, name) = (parts.next()?, parts.next()?);
        let is_whole = parts.next().is_some() == (kind != "m");
        (matches!(kind, "m" | "d" | "j") && is_whole && name != mirror::UNIT).then(|| name.to_owned())
    });
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Does something for each unit, several at a time; the results are in the order of the units.
fn for_each<T: Send>(units: &[String], work: impl Fn(&str) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = parking_lot::Mutex::new(Vec::with_capacity(units.len()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(units.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(unit) = units.get(at) else { return };
                    let result = work(unit);
                    done.lock().push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_what_they_have() {
        let keys =
            ["d/u01/0000000100000001", "h/main", "j/shapes/00000000000000000001", "m/main", "m/u00", "n/a", "units"];
        let listed: Vec<_> =
            keys.iter().map(|key| Listed { key: (*key).to_owned(), modified_ms: 0, bytes: 1 }).collect();
        assert_eq!(units_of(&listed), ["shapes", "u00", "u01"]);
        assert_eq!(for_each(&units_of(&listed), |unit| unit.len()), [6, 3, 3]);
    }
}
