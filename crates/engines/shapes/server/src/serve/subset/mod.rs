//! Subsets: a part of a shape's rows as they are now, ordered, limited, outside of the shape's log.
//!
//! [`Subset`](thalweg_shapes_core::request::params::Subset) has what is right in itself; here it meets the table. Both
//! predicates go through the parser and reach the database as it writes them: what it does not know cannot be asked.

mod answer;
mod order;
mod query;
mod run;

pub(crate) use run::{Done, Owned, Rights, run};

#[cfg(test)]
mod tests;
