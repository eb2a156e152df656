//! Planted faults, and moments inside of background work. They exist only with the feature `faults`, so that tests can prove that they
//! would see such a fault, and can act where no lock is held and other threads might.

#[cfg(feature = "faults")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A round neither sees nor waits for the delete of a log that is deleted while the round takes the logs of its shard.
    pub round_misses_deletes: bool,
    /// A merge does not wait for the deaths that it acts on to be durable.
    pub merge_ignores_undurable_deaths: bool,
    /// A round takes all of what it settles for live, whatever was trimmed or deleted meanwhile.
    pub round_counts_all_as_live: bool,
    /// A pass takes logs for counted that have changed again since it looked at them.
    pub pass_forgets_later_deaths: bool,
    /// Objects that the root found does not name are removed before the unit is owned.
    pub orphans_go_first: bool,
    /// A read takes a missing object that its root names for damage, whatever the root in force says by then.
    pub reads_believe_their_root: bool,
}

#[cfg(not(feature = "faults"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults;

macro_rules! planted {
    ($($name:ident),*) => {
        /// Whether each fault is planted: never, without the feature.
        impl Faults {
            $(
                #[cfg(feature = "faults")]
                pub(crate) fn $name(self) -> bool { self.$name }
                #[cfg(not(feature = "faults"))]
                #[allow(clippy::unused_self)]
                pub(crate) fn $name(self) -> bool { false }
            )*
        }
    };
}

planted!(
    round_misses_deletes,
    merge_ignores_undurable_deaths,
    round_counts_all_as_live,
    pass_forgets_later_deaths,
    reads_believe_their_root
);

/// Where background work stands when it holds no lock of a shard.
#[cfg_attr(not(feature = "faults"), allow(unreachable_pub))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A round has taken a shard's lists, and none of its logs.
    ShardListed,
    /// A round has looked at some logs of a shard, and not at all of them.
    ShardHalfTaken,
    /// A round has seen all that it will settle.
    Taken,
    /// Its run is written; what it saw is not known to be durable.
    RunWritten,
    /// It is durable; the records are not written.
    Durable,
    /// Objects are written, and no root names them.
    Unnamed,
    /// The new root is in force; what it made superfluous is not dropped.
    Edited,
    /// A merge, or a look for dead data, has read which content is wanted.
    Looked,
}
