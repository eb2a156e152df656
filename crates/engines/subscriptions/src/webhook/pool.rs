//! The threads that deliver: started when needed, up to a bound. The queue is bounded too: a subscription has one
//! delivery at most.

use super::{Client, Delivery, Outcome, Target, Teller};
use crate::keys::Keys;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use thalweg_base::Millis;

/// Receives every delivery with its outcome.
pub(crate) type Report = Arc<dyn Fn(Delivery, Outcome) + Send + Sync>;

pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads_max: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    client: Client,
    teller: Option<Teller>,
    keys: Arc<Keys>,
    clock: fn() -> Millis,
    report: Report,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Delivery>,
    threads: usize,
    idle: usize,
    stopping: bool,
}

impl Pool {
    pub(crate) fn new(
        threads_max: usize,
        (client, teller): (Client, Option<Teller>),
        keys: Arc<Keys>,
        clock: fn() -> Millis,
        report: Report,
    ) -> Self {
        let shared = Shared { queue: Mutex::default(), filled: Condvar::new(), client, teller, keys, clock, report };
        Self { shared: Arc::new(shared), threads_max: threads_max.max(1) }
    }

    pub(crate) fn send(&self, delivery: Delivery) {
        let mut queue = self.shared.queue.lock();
        queue.waiting.push_back(delivery);
        if queue.idle < queue.waiting.len() && queue.threads < self.threads_max {
            let shared = Arc::clone(&self.shared);
            let name = format!("webhook-{}", queue.threads);
            match std::thread::Builder::new().name(name).spawn(move || shared.work()) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => {
                    tracing::warn!(%error, "a thread for webhooks could not be started and is retried")
                }
                Err(_) => {}
            }
        }
        drop(queue);
        self.shared.filled.notify_one();
    }
}

impl Drop for Pool {
    /// Does not wait for receivers: unfinished deliveries are repeated after the next start.
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.stopping = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.filled.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopping {
                return;
            }
            let Some(delivery) = queue.waiting.pop_front() else {
                queue.idle += 1;
                self.filled.wait(&mut queue);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            let outcome = catch_unwind(AssertUnwindSafe(|| match &delivery.target {
                Target::Url(url) => {
                    let signature = self.keys.sign((self.clock)().0 / 1_000, &delivery.body);
                    self.client.send(url, &delivery, &signature)
                }
                Target::Stream(stream) => {
                    let told = self.teller.as_ref().map(|tell| tell(stream, &delivery.body));
                    match told.unwrap_or_else(|| Err("there is no way to the streams of other units".into())) {
                        Ok(()) => Outcome::Taken,
                        Err(why) => Outcome::Failed(why),
                    }
                }
            }));
            let outcome = outcome.unwrap_or_else(|_| Outcome::Failed("the delivery panicked".into()));
            (self.report)(delivery, outcome);
            queue = self.queue.lock();
        }
    }
}
