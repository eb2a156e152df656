//! The client of the command line: commands that ask a running server, `thalweg stream …` (in `stream`), `shape …` (in
//! `shape`), `status` and `context …`, and what every command of thalweg writes for people ([`say`], `human`,
//! [`Progress`]).
//!
//! The crate knows servers by their public protocols alone: no engine, no kernel, no settings of a server. The commands
//! share these: `target` chooses the server, `server` sends requests and retries, `failure` explains errors and
//! gives the exit code of each.

#[macro_use]
pub mod say;

mod context;
mod failure;
pub mod human;
mod node;
mod progress;
mod server;
mod shape;
mod status;
mod stream;
mod table;
mod target;

pub use context::{ContextArgs, run as run_context};
pub use failure::{Failure, Refusal};
pub use node::{NodeArgs, run as run_node};
pub use progress::Progress;
pub use server::{Answer, Call, PATIENCE, Server};
pub use shape::{ShapeArgs, run as run_shape};
pub use status::{Sample, StatusArgs, run as run_status};
pub use stream::{StreamArgs, run as run_stream};
pub use table::Table;
pub use target::Target;
