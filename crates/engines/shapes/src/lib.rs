//! Live subsets of a Postgres database: Electric's HTTP API on the kernel.
//!
//! `state` decides, [`mod@format`] writes bytes, `serve` speaks HTTP, `source` speaks to Postgres. `README.md` beside this crate has
//! the way of a change, the states of a shape, the invariants and the failure cases.

mod acknowledge;
mod applier;
mod bookmark;
mod compact;
mod costly;
pub mod definition;
mod engine;
mod explain;
mod family;
mod follow;
#[cfg(test)]
mod footprint;
pub mod format;
mod hot;
mod joint;
mod kept;
mod lag;
mod leave;
mod make;
mod marks;
mod matching;
mod name;
mod numbers;
mod partitions;
mod positions;
mod predicate;
mod rare;
mod read;
mod recover;
mod registry;
mod router;
mod serve;
mod shape;
mod shapes;
mod source;
pub mod state;
#[cfg(test)]
mod storage_cost;
mod store;
mod stuck;
mod subquery;
pub mod table;
#[cfg(test)]
mod unit;
mod view;
mod watch;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

pub use engine::{Health, ShapesConfig};
pub use explain::Explanation;
pub use format::note::LogState;
#[doc(hidden)]
pub use format::note::fuzz_log_state;
pub use serve::settings::Settings;
pub use serve::{Beyond, Denied, Grant, Granted, Grants, ShapesService};
pub use shapes::{OpenError, Shapes, ShapesStats};
pub use store::StoreError;
pub use view::ShapeView;
