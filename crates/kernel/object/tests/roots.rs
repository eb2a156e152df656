//! Owners that acquire and commit one root in a bucket whose requests are late, lost and repeated.
//!
//! `SEED=n` replays one history, `SEEDS=n` sets how many are run.
#![allow(clippy::unwrap_used)]

use std::time::Duration;
use thalweg_manifest::{Manifest, ManifestError};
use thalweg_object::{Bucket, BucketOptions, ObjectManifest, SimulatedBucket};
use thalweg_sim::Rand64;

struct Owner {
    manifest: ObjectManifest,
    epoch: u64,
    version: u64,
    /// The outcome of its last commit is unknown.
    in_doubt: bool,
}

/// Each body names the epoch that wrote it, and counts the commits that the writer knows of.
fn body(epoch: u64, count: u64) -> Vec<u8> {
    [epoch, count].map(u64::to_le_bytes).concat()
}

fn count(body: &[u8]) -> u64 {
    body.get(8..16).map_or(0, |count| u64::from_le_bytes(count.try_into().unwrap()))
}

/// `has_nonces`: each owner has nonces of its own.
fn run(seed: u64, has_nonces: bool) -> Result<(), String> {
    let mut rng = Rand64::new(u128::from(seed) << 1 | 1);
    let mut pick = |n: u64| rng.rand_range(0..n);
    let unkind = pick(3);
    let bucket = SimulatedBucket::new(seed, 12 * unkind, 12 * unkind, 20 * pick(3));
    let options = BucketOptions {
        deadline: Duration::from_secs(2),
        pause_max: Duration::from_secs(1),
        ..BucketOptions::default()
    };
    let mut owners: Vec<Owner> = Vec::new();
    // Commits that were acknowledged, and epochs that were given out.
    let (mut acknowledged, mut epochs) = (0, Vec::new());
    for step in 0..40 {
        if owners.is_empty() || pick(5) == 0 {
            let nonce = pick(u64::MAX);
            let bucket = Bucket::simulated(&bucket, options, seed + step);
            let manifest = match has_nonces {
                true => ObjectManifest::new(bucket, "unit", nonce),
                false => ObjectManifest::without_nonces(bucket, "unit"),
            };
            let Ok(root) = manifest.acquire(0) else { continue };
            if epochs.contains(&root.epoch) {
                return Err(format!("two owners have epoch {}", root.epoch));
            }
            if count(&root.body) < acknowledged {
                return Err(format!(
                    "{acknowledged} commits were acknowledged, and the root has {}",
                    count(&root.body)
                ));
            }
            epochs.push(root.epoch);
            owners.push(Owner { manifest, epoch: root.epoch, version: root.version, in_doubt: false });
            continue;
        }
        let (at, newest) = (pick(owners.len() as u64) as usize, owners.iter().map(|owner| owner.epoch).max());
        let owner = &mut owners[at];
        if owner.in_doubt {
            let Ok(Some(root)) = owner.manifest.load() else { continue };
            (owner.version, owner.in_doubt) = (root.version, false);
            if Some(owner.epoch) == newest && root.epoch == owner.epoch {
                acknowledged = acknowledged.max(count(&root.body));
            }
        }
        let Ok(before) = owner.manifest.read() else { continue };
        let done = count(&before.unwrap_or_default().body) + 1;
        match owner.manifest.commit(owner.epoch, owner.version, &body(owner.epoch, done)) {
            Ok(version) if Some(owner.epoch) == newest => {
                (owner.version, acknowledged) = (version, done);
            }
            Ok(_) => return Err(format!("the owner of epoch {} committed after {newest:?} had acquired", owner.epoch)),
            Err(ManifestError::Io { .. }) => owner.in_doubt = true,
            Err(ManifestError::Fenced { found, .. }) if found > owner.epoch => drop(owners.remove(at)),
            Err(error) => return Err(format!("the owner of epoch {}: {error}", owner.epoch)),
        }
    }
    Ok(())
}

#[test]
fn simulation_of_owners_of_a_root_in_a_bucket_loses_no_commit() {
    thalweg_sim::histories(500, "thalweg-object", |seed| {
        run(seed, true).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    });
}

#[test]
fn bodies_without_a_nonce_are_noticed() {
    let seed = (0..3000).find(|seed| run(*seed, false).is_err());
    println!("no nonce: seed {:?}: {:?}", seed, seed.map(|seed| run(seed, false)));
    assert!(seed.is_some(), "equal bodies of two owners were not noticed");
}
