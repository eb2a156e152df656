//! A ticket: the promise of one value that may come later.
//!
//! Local backends hand out tickets that are already resolved; remote ones resolve them from another thread. No runtime
//! is involved, so that synchronous cores, reactors and simulations can all hold them.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// The promise of a `T`.
pub struct Ticket<T>(State<T>);

enum State<T> {
    Ready(T),
    Pending(Arc<Cell<T>>),
}

struct Cell<T> {
    slot: Mutex<Slot<T>>,
    filled: Condvar,
}

enum Slot<T> {
    Empty,
    Full(T),
    Callback(Box<dyn FnOnce(T) + Send>),
    Dropped,
}

/// The other end of a pending [`Ticket`]. It must be used: if it is dropped, its ticket is never resolved.
pub struct Completer<T>(Arc<Cell<T>>);

impl<T> Ticket<T> {
    /// A ticket that is already resolved.
    pub fn ready(value: T) -> Self {
        Self(State::Ready(value))
    }

    /// A ticket that [`Completer::complete`] will resolve.
    #[must_use]
    pub fn pending() -> (Self, Completer<T>) {
        let cell = Arc::new(Cell { slot: Mutex::new(Slot::Empty), filled: Condvar::new() });
        (Self(State::Pending(Arc::clone(&cell))), Completer(cell))
    }

    /// Blocks until the ticket is resolved. Never call it on a reactor.
    pub fn wait(self) -> T {
        match self.0 {
            State::Ready(value) => value,
            State::Pending(cell) => {
                let mut slot = cell.slot.lock();
                loop {
                    match std::mem::replace(&mut *slot, Slot::Empty) {
                        Slot::Full(value) => return value,
                        other => *slot = other,
                    }
                    cell.filled.wait(&mut slot);
                }
            }
        }
    }

    /// The value if the ticket is resolved, else the ticket again.
    pub fn take(self) -> Result<T, Self> {
        match self.0 {
            State::Ready(value) => Ok(value),
            State::Pending(cell) => {
                let taken = {
                    let mut slot = cell.slot.lock();
                    match std::mem::replace(&mut *slot, Slot::Empty) {
                        Slot::Full(value) => Some(value),
                        other => {
                            *slot = other;
                            None
                        }
                    }
                };
                taken.ok_or(Self(State::Pending(cell)))
            }
        }
    }
}

impl<T: Send + 'static> Ticket<T> {
    /// Runs `f` with the value: at once if the ticket is resolved, else on the completing thread.
    pub fn then(self, f: impl FnOnce(T) + Send + 'static) {
        match self.0 {
            State::Ready(value) => f(value),
            State::Pending(cell) => {
                let mut slot = cell.slot.lock();
                match std::mem::replace(&mut *slot, Slot::Dropped) {
                    Slot::Full(value) => {
                        drop(slot);
                        f(value);
                    }
                    _ => *slot = Slot::Callback(Box::new(f)),
                }
            }
        }
    }
}

impl<T> Completer<T> {
    /// Resolves the ticket.
    pub fn complete(self, value: T) {
        let mut slot = self.0.slot.lock();
        match std::mem::replace(&mut *slot, Slot::Dropped) {
            Slot::Callback(f) => {
                drop(slot);
                f(value);
            }
            _ => {
                *slot = Slot::Full(value);
                self.0.filled.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_waiting_thread_gets_the_value() {
        let (ticket, completer) = Ticket::pending();
        let waiter = std::thread::spawn(move || ticket.wait());
        completer.complete(7);
        assert_eq!(waiter.join().unwrap(), 7);
    }

    #[test]
    fn a_callback_runs_once_whichever_comes_first() {
        let seen = Arc::new(AtomicU32::new(0));
        for first in [true, false] {
            let (ticket, completer) = Ticket::pending();
            let count = Arc::clone(&seen);
            let callback = move |n: u32| {
                count.fetch_add(n, Ordering::Relaxed);
            };
            if first {
                completer.complete(1);
                ticket.then(callback);
            } else {
                ticket.then(callback);
                completer.complete(1);
            }
        }
        assert_eq!(seen.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn taking_early_gives_the_ticket_back() {
        let (ticket, completer) = Ticket::pending();
        let ticket = ticket.take().err().unwrap();
        completer.complete(3);
        assert_eq!(ticket.take().ok(), Some(3));
    }
}
