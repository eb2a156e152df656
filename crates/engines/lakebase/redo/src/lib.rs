//! Pages of Postgres relations, made from an older page and the records of the write-ahead log that changed it since.
//!
//! Postgres's own redo routines make them: a stock `postgres --single` loads `module/thalweg_redo.c` and answers requests
//! on pipes, see [`Redo`]. What it is given comes from a tenant and may be hostile, so the process can do nothing but
//! read requests, write answers, and end.
//!
//! What needs no routine is done here, in `native`: images of pages, and bits of visibility maps that go out.
//!
//! A request that fails says so, and never fails a second one: the process is replaced, and the requests behind it are
//! sent again. The caller of a request that failed keeps the page's
//! records, and does not send that request again.

mod error;
mod native;
mod process;
mod redo;
mod wire;

pub use error::{RedoError, StartError};
pub use native::{apply_image, clear_visibility, heap_blocks_per_map, position_of};
pub use process::{DATA_FOLDERS, Program};
pub use redo::Redo;
pub use wire::{Change, Page, PageRedo};
