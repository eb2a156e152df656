//! Requests to the remote storage: so many at once, and no more. Further ones are sent in order, as answers come.
//!
//! The reads that wait for requests bound their number: each read has a bound of its own.

use parking_lot::Mutex;
use std::collections::VecDeque;

type Request = Box<dyn FnOnce() + Send>;

pub(crate) struct Requests {
    state: Mutex<State>,
    max: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    /// Sent and not answered.
    flying: usize,
    /// A thread sends waiting requests. If an answer comes on that thread at once, the same thread continues.
    sending: bool,
}

impl Requests {
    pub(crate) fn new(max: usize) -> Self {
        Self { state: Mutex::default(), max: max.max(1) }
    }

    /// Sends a request when its turn comes. Its answer must lead to [`Requests::answered`].
    pub(crate) fn send(&self, request: impl FnOnce() + Send + 'static) {
        self.state.lock().waiting.push_back(Box::new(request));
        self.send_waiting();
    }

    pub(crate) fn answered(&self) {
        self.state.lock().flying -= 1;
        self.send_waiting();
    }

    fn send_waiting(&self) {
        let mut state = self.state.lock();
        if state.sending {
            return;
        }
        while state.flying < self.max
            && let Some(request) = state.waiting.pop_front()
        {
            (state.sending, state.flying) = (true, state.flying + 1);
            drop(state);
            request();
            state = self.state.lock();
        }
        state.sending = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_request_that_is_answered_at_once_makes_way_for_the_next_one_without_a_deeper_stack() {
        let requests = Arc::new(Requests::new(1));
        let sent = Arc::new(AtomicUsize::new(0));
        let (first, all) = (Arc::clone(&requests), Arc::clone(&sent));
        requests.send(move || {
            for _ in 0..100_000 {
                let (requests, sent) = (Arc::clone(&first), Arc::clone(&all));
                first.send(move || {
                    sent.fetch_add(1, Ordering::Relaxed);
                    requests.answered();
                });
            }
            assert_eq!(all.load(Ordering::Relaxed), 0, "there is room for one");
            first.answered();
        });
        assert_eq!(sent.load(Ordering::Relaxed), 100_000);
    }
}
