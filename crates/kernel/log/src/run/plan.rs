//! The choice of runs to merge and of objects to rewrite: pure functions.
//!
//! **Merging** is size-tiered. A run of *b* bytes is in tier ⌊log_T(b / 64 KiB)⌋ + 1, or 0 below 64 KiB. Only
//! neighbours merge, because runs are ordered by time. A run's *rank* is the highest tier among itself and all newer
//! runs, so ranks only fall from the oldest run to the newest. Where T neighbours have the same rank, the T of them
//! that are cheapest to merge are merged. Hence, when nothing is left to do, every rank has fewer than T runs: there
//! are at most (T − 1) × tiers runs, for all sizes and all orders of arrival. The cheapest window first keeps a large
//! run from being copied again for every few small ones before it.
//!
//! **Rewriting** bounds the space that dead bytes take and the time that they exist.

use super::meta::ObjectMeta;
use std::ops::Range;
use thalweg_base::{Millis, ObjectId};

/// Runs below this size are all in the lowest tier: to copy so little costs no more than to write a file at all.
const UNIT_BYTES: u64 = 64 << 10;

/// A run, as far as planning needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunShape {
    pub bytes: u64,
}

/// The tier of a run.
#[must_use]
pub(crate) fn tier(bytes: u64, fan_in: usize) -> u32 {
    (bytes / UNIT_BYTES).checked_ilog(fan_in.max(2) as u64).map_or(0, |n| n + 1)
}

/// The neighbours to merge next, of runs oldest first; `None` when there is nothing to do. `fan_in` is at least 2.
#[must_use]
pub(crate) fn plan_merge(runs: &[RunShape], fan_in: usize) -> Option<Range<usize>> {
    let fan_in = fan_in.max(2);
    let ranks = ranks(runs, fan_in);
    let mut best: Option<(u64, Range<usize>)> = None;
    for start in 0..runs.len().saturating_sub(fan_in - 1) {
        let window = start..start + fan_in;
        // Ranks only fall, so all are equal if the ends are.
        if ranks[window.start] != ranks[window.end - 1] {
            continue;
        }
        let bytes = runs[window.clone()].iter().fold(0u64, |sum, run| sum.saturating_add(run.bytes));
        if best.as_ref().is_none_or(|(least, _)| bytes < *least) {
            best = Some((bytes, window));
        }
    }
    best.map(|(_, window)| window)
}

fn ranks(runs: &[RunShape], fan_in: usize) -> Vec<u32> {
    let mut ranks: Vec<_> = runs.iter().map(|run| tier(run.bytes, fan_in)).collect();
    for i in (1..ranks.len()).rev() {
        ranks[i - 1] = ranks[i - 1].max(ranks[i]);
    }
    ranks
}

/// An object, as far as planning needs it: its live bytes ([`super::live_bytes`]), and the time of its first death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Liveness {
    pub meta: ObjectMeta,
    pub live_bytes: u64,
    pub dead_since: Option<Millis>,
}

/// The action on the dead bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewrite {
    /// Remove the object: none of it is live.
    Drop(ObjectId),
    /// Write its live content into a new object, by [`super::merge()`].
    Rewrite(ObjectId),
}

impl Rewrite {
    /// The object that goes.
    #[must_use]
    pub(crate) fn object(&self) -> ObjectId {
        match self {
            Self::Drop(id) | Self::Rewrite(id) => *id,
        }
    }
}

/// The action now. An object without live bytes is removed; one is rewritten when less than half of it is live, and in
/// any case when some of it has been dead for `purge_after` milliseconds.
#[must_use]
pub(crate) fn plan_rewrite(objects: &[Liveness], now: Millis, purge_after: u64) -> Vec<Rewrite> {
    objects.iter().filter_map(|object| plan_object(object, now, purge_after)).collect()
}

fn plan_object(object: &Liveness, now: Millis, purge_after: u64) -> Option<Rewrite> {
    let covered = object.meta.covered_bytes();
    let overdue = object.dead_since.is_some_and(|since| now.since(since) >= purge_after);
    if object.live_bytes == 0 {
        Some(Rewrite::Drop(object.meta.id))
    } else if object.live_bytes < covered.div_ceil(2) || (object.live_bytes < covered && overdue) {
        Some(Rewrite::Rewrite(object.meta.id))
    } else {
        None
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_base::{LogId, Offset};

    /// Lets runs arrive, merges whenever planned, and gives the most runs there ever were, bytes arrived (at least a
    /// unit for each run), and bytes merged.
    fn simulate(arrivals: impl IntoIterator<Item = u64>, fan_in: usize) -> (usize, u64, u64) {
        let mut runs: Vec<RunShape> = Vec::new();
        let (mut arrived, mut merged) = (0, 0);
        let mut most = 0;
        for bytes in arrivals {
            runs.push(RunShape { bytes });
            arrived += bytes.max(UNIT_BYTES);
            while let Some(window) = plan_merge(&runs, fan_in) {
                assert!(window.len() >= 2);
                let sum = runs[window.clone()].iter().map(|run| run.bytes).sum();
                merged += sum;
                runs.splice(window, [RunShape { bytes: sum }]);
            }
            let tiers = tier(runs.iter().map(|run| run.bytes).max().unwrap_or(0), fan_in) as usize + 1;
            assert!(runs.len() <= (fan_in - 1) * tiers, "{} runs in {tiers} tiers", runs.len());
            most = most.max(runs.len());
        }
        (most, arrived, merged)
    }

    fn tiers(bytes: u64, fan_in: usize) -> u64 {
        u64::from(tier(bytes, fan_in)) + 1
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn runs_and_write_amplification_stay_bounded_for_any_arrivals(
            seed: u64, fan_in in 2..12usize, spread in 1..34u32, count in 1..3000usize,
        ) {
            let mut random = oorandom::Rand64::new(u128::from(seed));
            let arrivals: Vec<_> = (0..count)
                .map(|_| { let bits = random.rand_range(0..u64::from(spread)); random.rand_range(1..(2u64 << bits)) })
                .collect();
            let (_, arrived, merged) = simulate(arrivals, fan_in);
            // Measured: at most 0.6 per tier. A byte is copied about twice per tier at the very worst.
            prop_assert!(merged <= 2 * arrived * tiers(arrived, fan_in), "{} of {}", merged, arrived);
        }
    }

    #[test]
    fn equal_runs_are_copied_once_per_tier() {
        let (most, arrived, merged) = simulate(std::iter::repeat_n(UNIT_BYTES, 8 * 8 * 8 * 8), 8);
        assert_eq!(merged, 4 * arrived);
        assert!(most <= 28, "{most}");
    }

    #[test]
    fn small_runs_before_each_large_one_do_not_copy_the_large_ones_again_and_again() {
        let arrivals = (0..2000u64).map(|n| if n % 8 == 7 { 64 << 20 } else { 1 << 10 });
        let (_, arrived, merged) = simulate(arrivals, 8);
        assert!(merged <= 4 * arrived, "{merged} of {arrived}");
    }

    fn object(covered: u64, live_bytes: u64, dead_since: Option<u64>) -> Liveness {
        let meta = ObjectMeta {
            id: ObjectId(1),
            first: (LogId(1), Offset(0)),
            last: LogId(1),
            end: Offset(covered),
            data_bytes: covered / 2,
            reference_bytes: covered - covered / 2,
            index_bytes: 10,
            entries: 1,
            logs: 1,
            messages: 1,
        };
        Liveness { meta, live_bytes, dead_since: dead_since.map(Millis) }
    }

    #[test]
    fn dead_bytes_go_by_half_or_by_age() {
        let plan = |covered, live, since| plan_rewrite(&[object(covered, live, since)], Millis(1000), 100).pop();
        assert_eq!(plan(100, 0, Some(999)), Some(Rewrite::Drop(ObjectId(1))));
        assert_eq!(plan(100, 49, Some(999)), Some(Rewrite::Rewrite(ObjectId(1))));
        assert_eq!(plan(101, 50, Some(999)), Some(Rewrite::Rewrite(ObjectId(1))));
        assert_eq!(plan(100, 50, Some(999)), None);
        assert_eq!(plan(100, 99, Some(900)), Some(Rewrite::Rewrite(ObjectId(1))));
        assert_eq!(plan(100, 99, None), None);
        assert_eq!(plan(100, 100, Some(0)), None);
    }
}
