//! Planted faults: tests prove that the simulation would find each.

thalweg_base::planted_faults! {
    /// A sync answers without syncing.
    sync_skipped,
    /// A batch is published as durable when it is written.
    acknowledged_before_sync,
    /// Batches of every opening look alike.
    seal_without_term,
    /// Anything behind the last valid frame is reported as corruption.
    torn_tail_is_corruption,
    /// Damage is cut off even where something proves that the place was durable.
    corruption_is_torn_tail,
    /// A trimmed segment is reused although a reader holds it.
    recycled_under_reader,
    /// Damage of settled frames is refused as if they were needed.
    settled_damage_refused,
    /// A batch of a remote sink is acknowledged before every batch before it is kept.
    acknowledged_before_earlier,
    /// A take-over leaves the earlier owner's unacknowledged frames in the sink.
    tail_kept_on_take_over,
    /// A sink keeps batches of owners that were deposed.
    stale_term_accepted,
}
