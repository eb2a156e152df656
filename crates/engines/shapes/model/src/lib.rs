//! The values of shapes: tables, definitions, offsets, handles, snapshots and refusals.
//!
//! Nothing here does IO, reads a clock or starts a thread, and nothing here knows Postgres's protocol or the kernel:
//! `source` reads these values from Postgres, the rest of the engine decides by them. `../README.md` describes how the
//! engine's crates fit together.

pub mod columns;
pub mod copy;
pub mod definition;
pub mod failure;
pub mod family;
pub mod handle;
pub mod health;
pub mod history;
pub mod id_allocator;
pub mod identifier;
pub mod invalid;
pub mod json;
pub mod lazy_box;
pub mod name;
pub mod offset;
pub mod predicate;
pub mod row;
pub mod snapshot;
pub mod table;
