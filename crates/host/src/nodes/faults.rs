//! Planted faults: tests prove that the simulation would find each.

thalweg_base::planted_faults! {
    /// A lease runs from the end of an announcement's writing.
    lease_from_end,
    /// An announcement of which nobody knows whether it was written is written again with the same number.
    number_repeated,
    /// A unit that was served before a gap between leases is served after it, and nobody reads its root.
    gap_not_noticed,
    /// A unit is served when it is acquired, whatever leases of owners before still run.
    served_at_once,
}
