//! Servers that all tests of one process share, with a separate database for each test.

use crate::{Cluster, Options, installations};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// One running server of each installed version, started by the first call.
pub fn shared_clusters() -> &'static [Cluster] {
    static CLUSTERS: OnceLock<Vec<Cluster>> = OnceLock::new();
    CLUSTERS.get_or_init(|| installations().iter().map(|one| Cluster::start(one, &Options::default())).collect())
}

/// A database name that no other test of this process gets.
pub fn unique_database() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
