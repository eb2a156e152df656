//! Planted faults, and moments inside of background work, where a test can act as if it were another thread: no lock is
//! held there.

thalweg_base::planted_faults! {
    /// A round neither sees nor waits for the delete of a log that is deleted while the round takes the logs of its
    /// shard.
    round_misses_deletes,
    /// A merge does not wait for the deaths that it acts on to be durable.
    merge_ignores_undurable_deaths,
    /// A round counts all content that it settles as live, although some was trimmed or deleted before its edit.
    round_counts_all_as_live,
    /// A pass takes logs for counted that have changed again since it counted them.
    pass_forgets_later_deaths,
    /// Objects that the root found does not name are removed before the unit is owned.
    orphans_go_first,
    /// A read takes a missing object for damage if the root that it began with names it, even if the root in force does
    /// not.
    reads_believe_their_root,
}

/// Points of background work at which it holds no lock of a shard.
#[cfg_attr(not(feature = "faults"), allow(unreachable_pub))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A round has taken a shard's lists, and none of its logs.
    ShardListed,
    /// A round has taken the changes of some logs of a shard, and not of all.
    ShardHalfTaken,
    /// A round has seen all that it will settle.
    Taken,
    /// A round's run is written; the state that it took is not known to be durable.
    RunWritten,
    /// The state that a round took is durable; the records are not written.
    Durable,
    /// Objects are written, and no root names them.
    Unnamed,
    /// The new root is in force; the objects that it no longer names are not removed.
    Edited,
    /// A merge or a pass of reclaiming has read which content is live.
    Looked,
}
