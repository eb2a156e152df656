//! Live subsets of a Postgres database: Electric's HTTP API on the kernel.
//!
//! `state` decides, [`mod@format`] writes bytes, `serve` speaks HTTP, `source` speaks to Postgres. `README.md` beside this crate has
//! the way of a change, the states of a shape, the invariants and the failure cases.

mod applier;
mod compact;
pub mod definition;
mod engine;
mod explain;
mod follow;
pub mod format;
mod hot;
mod kept;
mod lag;
mod make;
mod marks;
mod matching;
mod predicate;
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
pub mod table;
mod view;
mod watch;

pub use engine::{Health, ShapesConfig};
pub use explain::Explanation;
pub use format::note::LogState;
pub use serve::ShapesService;
pub use serve::settings::Settings;
pub use shapes::{OpenError, Shapes, ShapesStats};
pub use store::StoreError;
pub use view::ShapeView;
