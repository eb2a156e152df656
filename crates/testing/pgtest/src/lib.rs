//! Private Postgres clusters for tests: in a temporary folder, on a free port of 127.0.0.1, with `wal_level=logical`
//! and no fsync.
//!
//! A cluster goes with its [`Cluster`]; if the test's process dies before that, however it dies, a shell that waits for
//! the end of a pipe stops the server and removes the folder. So a cluster may also live in a `static`.
//!
//! Postgres is found in the folders of `THALWEG_PG_BINS` (joined by colons), then at Debian's paths; the first of each
//! major version counts. Postgres refuses to run as root: then it runs as `PG_USER`, or `postgres`, or `nobody`.

mod cluster;
mod installation;
mod log;
mod owner;
mod shared;

pub use cluster::{Cluster, Options, Stop};
pub use installation::{Installation, installations};
pub use log::{SEGMENT_BYTES, log_of};
pub use shared::{shared_clusters, unique_database};
