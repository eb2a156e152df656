//! Pages of Postgres relations, and their sizes, at any position of the log.
//!
//! A [`Timeline`] begins with the pages of a cluster that was stopped ([`Base`]), and takes the records of its log one
//! after the other. For each page it keeps what has changed it, by position; a page is made when it is asked for, from the
//! newest value that needs no older one, and the changes since (`fold`).
//!
//! This form keeps everything in memory. Beside pages and sizes of relations it has status pages of transactions and
//! multixacts, the files of mapped catalogs, transactions that are prepared, and the cluster's counters. That is all that a
//! stock Postgres needs to start at a position, see [`Timeline::write_folder`].
//!
//! Not here yet: tablespaces of one's own, times of commits (`pg_commit_ts`), replication slots and origins.

mod backup;
mod error;
mod fold;
mod history;
mod state;
mod status;
mod timeline;
mod value;

pub use backup::Start;
pub use error::{BackupError, IngestError, PageError};
pub use state::State;
pub use status::{Status, StatusKey};
pub use timeline::{Base, Key, Timeline};
