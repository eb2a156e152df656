//! Planted faults. They exist only with the feature `faults`, so that tests can prove that the simulation would find such a bug.

#[cfg(feature = "faults")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A sync answers without syncing.
    pub sync_skipped: bool,
    /// A batch is published as durable when it is written.
    pub acknowledged_before_sync: bool,
    /// Batches of every opening look alike.
    pub seal_without_term: bool,
    /// Anything behind the last valid frame is reported as corruption.
    pub torn_tail_is_corruption: bool,
    /// Damage is cut off even where something proves that the place was durable.
    pub corruption_is_torn_tail: bool,
    /// A trimmed segment is reused although a reader holds it.
    pub recycled_under_reader: bool,
    /// Damage to what is settled is refused as if it were needed.
    pub settled_damage_refused: bool,
    /// A batch of a remote sink is acknowledged before every batch before it is kept.
    pub acknowledged_before_earlier: bool,
    /// What the last owner did not acknowledge stays in the sink when the journal is taken over.
    pub tail_kept_on_take_over: bool,
    /// A sink keeps batches of owners that were deposed.
    pub stale_term_accepted: bool,
}

/// Without the feature there are none.
#[cfg(not(feature = "faults"))]
#[allow(unreachable_pub, reason = "public with the feature `testing`, whose sink takes them")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults;

macro_rules! planted {
    ($($name:ident),*) => {
        /// Whether each fault is planted: never, without the feature.
        impl Faults {
            $(
                #[cfg(feature = "faults")]
                #[allow(dead_code, reason = "one is for the sink of the feature `testing`")]
                pub(crate) fn $name(self) -> bool { self.$name }
                #[cfg(not(feature = "faults"))]
                #[allow(clippy::unused_self, dead_code, reason = "one is for the sink of the feature `testing`")]
                pub(crate) fn $name(self) -> bool { false }
            )*
        }
    };
}

planted!(
    sync_skipped,
    acknowledged_before_sync,
    seal_without_term,
    torn_tail_is_corruption,
    corruption_is_torn_tail,
    recycled_under_reader,
    settled_damage_refused,
    acknowledged_before_earlier,
    tail_kept_on_take_over,
    stale_term_accepted
);
