//! Pages of Postgres relations, and their sizes, at any position of the log.
//!
//! A [`Timeline`] begins with the pages of a cluster that was stopped ([`Base`]), and takes the records of its log one
//! after the other. For each page it keeps what has changed it, by position; a page is made when it is asked for, from the
//! newest value that needs no older one, and the changes since (`fold`).
//!
//! This form keeps everything in memory. Beside pages and sizes of relations it has status pages of transactions and
//! multixacts, the files of mapped catalogs, and transactions that are prepared.

mod error;
mod fold;
mod history;
mod status;
mod timeline;
mod value;

pub use error::{IngestError, PageError};
pub use status::{Status, StatusKey};
pub use timeline::{Base, Key, Timeline};
