//! The state of the replication connection.

/// Whether changes come in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// The replication connection is not established: at a start, or after it was lost.
    #[default]
    Starting,
    /// Another server uses the replication slot.
    Waiting,
    /// Changes come in.
    Active,
    /// The database was idle, so its connections are closed; the next request for a shape opens them again.
    Asleep,
}
