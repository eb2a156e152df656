//! Reads that wait until the journal has written frames that it has accepted.
//!
//! A fork may be read before the frame that created it, or frames of its source, are written. Such a read holds a
//! ticket here, and no thread.

use std::sync::Arc;
use thalweg_base::{Completer, Lsn, Ticket};
use thalweg_journal::{Journal, Poisoned};
use thalweg_unit::sync::Mutex;

pub(crate) type Arrival = Result<(), Poisoned>;

#[derive(Default)]
pub(crate) struct Arrivals {
    waiting: Mutex<Vec<(Lsn, Completer<Arrival>)>>,
}

impl Arrivals {
    /// Follows a journal until the caller drops the returned value.
    pub(crate) fn of(journal: &Arc<dyn Journal>) -> Arc<Self> {
        let arrivals = Arc::new(Self::default());
        let (follower, told) = (Arc::downgrade(&arrivals), Arc::downgrade(journal));
        journal.subscribe(Arc::new(move || {
            if let (Some(arrivals), Some(journal)) = (follower.upgrade(), told.upgrade()) {
                arrivals.advance(journal.as_ref());
            }
        }));
        arrivals
    }

    /// A ticket for when everything below `upto` is written, or never will be.
    pub(crate) fn written(&self, journal: &dyn Journal, upto: Lsn) -> Ticket<Arrival> {
        let (ticket, completer) = Ticket::pending();
        // The order excludes a lost wake-up: the journal reads the list after it has advanced, and this call reads the
        // journal's position after it has listed the ticket.
        self.waiting.lock().push((upto, completer));
        journal.kick();
        self.advance(journal);
        ticket
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    fn advance(&self, journal: &dyn Journal) {
        let mut arrived = Vec::new();
        {
            let mut waiting = self.waiting.lock();
            if waiting.is_empty() {
                return;
            }
            let (written, poisoned) = (journal.written(), journal.poisoned());
            let all = std::mem::take(&mut *waiting);
            for (upto, completer) in all {
                if upto <= written {
                    arrived.push((completer, Ok(())));
                } else if let Some(poisoned) = &poisoned {
                    arrived.push((completer, Err(poisoned.clone())));
                } else {
                    waiting.push((upto, completer));
                }
            }
        }
        for (completer, arrival) in arrived {
            completer.complete(arrival);
        }
    }
}
