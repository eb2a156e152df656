//! Everything that asks Postgres, in blocking code for threads: it knows the values of the model and Postgres's protocol, and neither the kernel
//! nor the shapes that are made of its answers.
//!
//! | module | question |
//! |---|---|
//! | [`catalog`] | what is this table? |
//! | [`setup`] | may we go on where we were? |
//! | [`publish`] | do we get this table's changes? |
//! | [`validate`] | does Postgres take this definition? |
//! | [`snapshot`] | which rows are there now? |
//! | [`reconcile`] | are the tables still what they were? |
//! | [`pool`] | which thread asks, and how many at once? |
//! | `replicate`, `spill` | what has changed since? |
//! | [`anchor`] | is that a change of the history that was read? |
//!
//! All of them ask through [`session`], which opens sessions; [`postgres`] has the questions. Time comes from [`clock`].

pub mod anchor;
pub mod cancel;
pub mod catalog;
pub mod clock;
pub mod error;
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
