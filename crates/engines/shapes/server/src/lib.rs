//! Live subsets of a Postgres database: Electric's HTTP API on the kernel.
//!
//! `thalweg-shapes-core` decides, [`mod@format`] writes bytes, `serve` speaks HTTP; `thalweg-shapes-source` speaks to
//! Postgres, and
//! `thalweg-shapes-model` has the values that all know. `../README.md` has the way of a change, the states of a shape,
//! the invariants and the failure cases.

// Tests and measurements run on the real clock; clippy.toml forbids it everywhere else.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod acknowledge;
mod applier;
mod bookmark;
mod catalog;
mod change_cache;
mod change_log;
mod change_store;
mod clause_templates;
mod compact;
mod config;
mod costly;
#[cfg(test)]
mod database;
mod explain;
mod failures;
mod faults;
mod feed;
mod feed_lock;
mod follow;
#[cfg(test)]
mod footprint;
pub mod format;
mod idle;
mod lag;
mod leave;
mod lifetime;
mod maintenance;
mod make;
mod move_in_fetcher;
mod no_wait;
mod partitions;
mod read;
mod recent_window;
mod recover;
mod registry;
mod retirement;
mod routed_shapes;
mod router;
mod serve;
mod server;
mod shape;
mod shapes;
mod shared_rows;
#[cfg(test)]
mod simulation;
mod source;
pub mod state;
#[cfg(test)]
mod storage_cost;
mod store;
mod subquery;
mod trim_index;
#[cfg(test)]
mod unit;
mod view;

mod watermarks;
mod write_stall;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

pub use config::ShapesConfig;
pub use explain::Explanation;
pub use format::note::LogState;
#[doc(hidden)]
pub use format::note::fuzz_log_state;
pub use serve::settings::Settings;
pub use serve::{Beyond, Denied, Grant, Granted, Grants, ShapesService};
pub use shapes::{OpenError, Shapes, ShapesStats};
pub use store::StoreError;
pub use thalweg_shapes_model::health::Health;
pub use thalweg_shapes_source::ownership::Ownership;
pub use view::ShapeView;
