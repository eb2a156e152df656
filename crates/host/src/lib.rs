//! The host: its interface to engines, and the services that every engine gets from it.
//!
//! An engine is one door of the product. The binary lists those that it has; the host knows engines by the trait
//! [`Engine`] alone. It matches routes, judges every request before its route ([`door`], [`auth`]), has the settings
//! ([`config`]) and the data folder ([`folder`]), opens, keeps and scrubs kernel units, and gathers the metrics of all
//! engines on one page.
//!
//! It must not know which engines there are, and nothing of the command line. Of engines it knows two kinds of values,
//! because tokens speak of them: names of streams, and grants of shapes ([`auth`]).

pub mod auth;
pub mod background;
pub mod bucket_unit;
pub mod config;
pub mod door;
mod engine;
pub mod folder;
pub mod holdings;
mod keep;
pub mod kernel;
pub mod listed;
pub mod metrics;
pub mod mirror;
pub mod nodes;
pub mod reload;
pub mod reserve;
mod response;
mod route;
pub mod scrub;
pub mod tls;
mod unit;

pub use engine::{Boot, Engine, Engines};
pub use keep::{Jobs, Keeping, keep};
pub use mirror::Mirroring;
pub use response::plain;
pub use route::{Guard, Needs, Paths, Route, Routes};
pub use unit::{Unit, UnitJournal, UnitLogs};

#[cfg(test)]
mod full;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod thousand;
