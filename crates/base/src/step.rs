//! A step of work that never waits.

use crate::Ticket;

/// The outcome of one step.
pub enum Step<T> {
    /// The work is done.
    Done(T),
    /// The next step is worth taking when the ticket is resolved. A step that is taken earlier does no harm.
    Wants(Ticket<()>),
}

impl<T> Step<T> {
    /// Applies `f` to a finished step's value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Step::Done(value) => Step::Done(f(value)),
            Step::Wants(ticket) => Step::Wants(ticket),
        }
    }
}
