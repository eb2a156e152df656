//! Settings of the shapes of one database.

use crate::serve::settings::Settings;
use std::path::PathBuf;
use std::time::Duration;
use thalweg_pg as pg;
use thalweg_shapes_source::ownership::Ownership;

/// The largest range of encoded changes, in bytes.
const SPLIT_BYTES: u64 = 64 << 10;

/// Settings; docs/ops/configuration.md has their meaning.
#[derive(Clone, Debug)]
pub struct ShapesConfig {
    pub database: pg::Config,
    /// For queries, if it is another way to the same database.
    pub query_database: pg::Config,
    pub secret: Option<String>,
    pub http: Settings,
    pub shapes_max: usize,
    /// Changes that are kept; shapes that need older ones are dropped.
    pub log_bytes_max: u64,
    /// How long a shape's rows and the changes since are kept after there are newer rows.
    pub log_keep_ms: u64,
    /// A shape's changes are merged into its rows if they are more than these, and more than this.
    pub compact_bytes: u64,
    pub connections: usize,
    pub stream_id: String,
    /// What the slot, and a publication that is not maintained by hand, are named after beside the stream: nodes of
    /// different prefixes have different ones.
    pub stack: Option<String>,
    /// Whether these shapes are still this process's.
    pub ownership: Ownership,
    pub manual_publishing: bool,
    /// The replication slot goes when the connection does, and with it every shape.
    pub temporary_slot: bool,
    /// Standbys keep a copy of the replication slot.
    pub failover_slot: bool,
    /// Connections are closed after so long without a request for a shape and without a change; zero: they stay.
    pub database_idle: Duration,
    /// Nothing stays in the database: a publication that was made goes with the server.
    pub ephemeral: bool,
    /// For large transactions that are in progress.
    pub spill: PathBuf,
    /// Changes that are held in memory for live readers.
    pub hot_bytes: usize,
    /// Threads that wait for the disk on behalf of reads.
    pub io_threads: usize,
    /// Memory for answers that clients do not take.
    pub unsent_bytes_max: u64,
}

impl ShapesConfig {
    /// The same, for shapes that nodes take over from each other. `stack` tells their prefix from others.
    #[must_use]
    pub fn on_nodes(self, stack: String, ownership: Ownership) -> Self {
        Self { stack: Some(stack), ownership, ..self }
    }

    #[must_use]
    pub fn publication(&self) -> String {
        match &self.stack {
            Some(stack) if !self.manual_publishing => format!("thalweg_publication_{}_{stack}", self.stream_id),
            _ => format!("thalweg_publication_{}", self.stream_id),
        }
    }

    /// A range of encoded changes is closed at this size, or at that of a chunk if it is smaller.
    pub(crate) fn split_bytes(&self) -> usize {
        self.http.chunk_bytes.clamp(1, SPLIT_BYTES) as usize
    }

    #[must_use]
    pub fn slot(&self) -> String {
        match &self.stack {
            Some(stack) => format!("thalweg_slot_{}_{stack}", self.stream_id),
            None => format!("thalweg_slot_{}", self.stream_id),
        }
    }
}
