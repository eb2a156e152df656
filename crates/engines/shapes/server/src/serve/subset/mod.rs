//! Subsets: a part of a shape's rows as they are now, ordered, limited, outside of the shape's log.
//!
//! [`Subset`](thalweg_shapes_core::request::params::Subset) is valid by itself; this module checks it against the
//! table. Both predicates go through the parser and reach the database as the parser writes them: a construct that it
//! does not know cannot be sent.

mod answer;
mod order;
mod query;
mod run;

pub(crate) use run::{Done, Owned, Rights, run};

#[cfg(test)]
mod tests;
