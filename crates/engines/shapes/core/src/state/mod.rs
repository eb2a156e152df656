//! The state of one shape and of the change path: entries, bases, pending entries, recent transactions.

pub mod bases;
pub mod entries;
pub mod pending_entries;
pub mod recent;
