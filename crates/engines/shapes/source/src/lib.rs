//! Everything that asks Postgres, in blocking code for threads: it knows the values of the model and Postgres's
//! protocol, and neither the kernel nor the shapes that are made of its answers.
//!
//! | module | task |
//! |---|---|
//! | [`catalog`] | reads tables' definitions |
//! | [`setup`] | checks that the stream can continue at its last position |
//! | [`publish`] | makes a table's changes come |
//! | [`validate`] | lets Postgres check a definition |
//! | [`snapshot`] | reads a table's present rows |
//! | [`ownership`] | whether this process may still act for its shapes |
//! | [`reconcile`] | compares tables with their earlier definitions |
//! | [`pool`] | threads and connections for all of these, with a bound |
//! | `replicate`, `spill` | the stream of changes |
//! | [`anchor`] | checks that a change belongs to the history that was read |
//!
//! All of them ask through [`session`], which opens sessions; [`postgres`] has the questions. Time comes from
//! [`clock`].

pub mod anchor;
pub mod cancel;
pub mod catalog;
pub mod clock;
pub mod error;
pub mod ownership;
pub mod pool;
pub mod postgres;
pub mod publish;
pub mod reconcile;
pub mod replicate;
pub mod session;
pub mod setup;
pub mod snapshot;
mod spill;
#[cfg(test)]
mod tests;
pub mod validate;
