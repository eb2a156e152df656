//! Faults that the simulation plants, to prove that it would see them. Outside of tests there are none.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) enum Fault {
    /// Positions and recent transactions of one history are kept in the next one.
    PositionsOutliveHistory,
    /// A server whose storage was set back is taken for the same history.
    SetBackUnnoticed,
    /// The thread that applies changes waits for rows of subqueries.
    ApplierWaits,
    /// A start does not remember which transactions were applied last.
    RecentForgotten,
    /// Clients get a transaction that their rows do not contain before one that they contain, although it commits
    /// later.
    OrderUnnoticed,
    /// A shape is registered after its snapshot was taken.
    ListensLate,
}

/// The faults of one engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(test)]
    pub(crate) planted: Option<Fault>,
}

impl Faults {
    #[cfg(test)]
    pub(crate) fn has(self, fault: Fault) -> bool {
        self.planted == Some(fault)
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    pub(crate) fn has(self, _: Fault) -> bool {
        false
    }
}
