//! Everything that asks Postgres something, in blocking code that is run by threads.
//!
//! | module | question |
//! |---|---|
//! | [`catalog`] | what is this table? |
//! | [`setup`] | may we go on where we were? |
//! | [`publish`] | do we get this table's changes? |
//! | [`validate`] | does Postgres take this definition? |
//! | [`snapshot`] | which rows are there now? |
//! | [`reconcile`] | are the tables still what they were? |
//! | [`pool`] | who asks, and how many at once |
//! | `replicate`, `spill` | what has changed since? |
//! | [`anchor`] | is that a change of the history that was read? |
//!
//! All of them ask through [`session`], where sessions are opened.

pub(crate) mod anchor;
pub(crate) mod cancel;
pub(crate) mod catalog;
pub(crate) mod error;
pub(crate) mod pool;
pub(crate) mod publish;
pub(crate) mod reconcile;
pub(crate) mod replicate;
pub(crate) mod session;
pub(crate) mod setup;
pub(crate) mod snapshot;
pub(crate) mod spill;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod validate;
