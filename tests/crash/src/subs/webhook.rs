//! The receiver of webhooks, and the calls that it must not get.

use super::consumer::{Consumer, Offer, fetch};
use super::{Ledger, SUBSCRIPTIONS, wait_for};
use crate::http::Request;
use crate::session::Session;
use crate::world::{Sabotage, World};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reaction {
    Done,
    /// Takes it, and acknowledges it later.
    CallBack,
    /// Takes it, and never comes back: the lease has to end.
    Forget,
    Fail,
    /// No answer at all.
    Hang,
}

#[derive(serde::Deserialize)]
pub(super) struct Wake {
    wake_id: String,
    generation: u64,
    streams: Vec<Offer>,
    callback_token: String,
}

struct Known {
    consumer: Consumer,
    /// Of the newest wake.
    generation: u64,
    wake: String,
    rng: oorandom::Rand64,
}

pub(super) struct Hooks {
    known: Mutex<Known>,
    through: AtomicBool,
}

impl Hooks {
    pub(super) fn new(seed: u64) -> Self {
        let rng = oorandom::Rand64::new(u128::from(seed) + 808_080);
        let known = Known { consumer: Consumer::default(), generation: 0, wake: String::new(), rng };
        Self { known: Mutex::new(known), through: AtomicBool::new(false) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_through(&self) -> bool {
        self.through.load(Ordering::Acquire)
    }

    /// After the last append: everything must come.
    pub(super) fn see_to_the_end(&self, world: &World, ledger: &Ledger) {
        let missing = || ledger.missing("crash/hook/", |name| self.known().consumer.processed(name));
        if wait_for(world, ledger, "the webhook", missing) {
            world.report.count("webhooks told of everything");
        }
        self.through.store(true, Ordering::Release);
    }

    /// Checks a delivery; its content, if it may come now.
    pub(super) fn admit(&self, world: &World, body: &[u8]) -> Option<Wake> {
        let wake: Wake = match serde_json::from_slice(body) {
            Ok(wake) => wake,
            Err(error) => {
                world.violation(format!(
                    "a delivery is not as it should be: {error}: {}",
                    String::from_utf8_lossy(body)
                ));
                return None;
            }
        };
        world.report.count("webhook deliveries");
        if let Err(what) = self.known().admit(&wake) {
            world.violation(format!("webhook: {what}"));
            return None;
        }
        Some(wake)
    }

    /// Reads what a delivery is about, or not, and decides what to answer.
    pub(super) fn react(&self, world: &World, wake: &Wake) -> Reaction {
        let mood = if world.over() { 100 } else { self.known().rng.rand_range(0..100) };
        match mood {
            0..4 => return Reaction::Fail,
            4..7 => return Reaction::Hang,
            7..10 => return Reaction::Forget,
            _ => {}
        }
        let mut session = Session::new(world, "hook");
        for offer in &wake.streams {
            let Ok((first, next)) = fetch(&mut session, offer) else { return Reaction::Fail };
            if let Err(what) = self.known().consumer.process(&offer.path, first, next) {
                world.violation(format!("webhook: {what}"));
            }
        }
        let mut known = self.known();
        wake.streams.iter().for_each(|offer| known.consumer.tells(&offer.path, &offer.tail_offset));
        if mood < 55 { Reaction::CallBack } else { Reaction::Done }
    }

    /// Acknowledges a wake that was taken.
    pub(super) fn call_back(&self, world: &World, wake: &Wake) {
        let acks: Vec<_> =
            wake.streams.iter().map(|ack| json!({ "stream": ack.path, "offset": ack.tail_offset })).collect();
        let said = json!({ "wake_id": wake.wake_id, "generation": wake.generation, "acks": acks, "done": true });
        let token = format!("Bearer {}", wake.callback_token);
        let request = Request::new(
            "POST",
            &format!("{SUBSCRIPTIONS}/hook/callback"),
            &[("authorization", token.as_str())],
            said.to_string().as_bytes(),
        );
        // Without an answer it may have been taken or not; the lease goes on.
        let Ok(answer) = Session::new(world, "").ask(&request) else { return };
        match answer.status {
            200 => {
                let mut known = self.known();
                for offer in &wake.streams {
                    known.consumer.confirm(&offer.path, &offer.tail_offset, wake.generation);
                }
                if let Some(first) = wake.streams.first()
                    && world.sabotage(Sabotage::Rewound)
                {
                    known.consumer.confirm(&first.path, &format!("{}~", first.tail_offset), wake.generation);
                }
                world.report.count("webhook callbacks taken");
            }
            409 => world.report.count("webhook callbacks fenced"),
            503 => {}
            status => world.violation(format!("{}: {status} {:?}", request.line, answer.text())),
        }
    }
}

impl Known {
    /// Whether a wake may come now.
    fn admit(&mut self, wake: &Wake) -> Result<(), String> {
        if wake.generation < self.generation || (wake.generation == self.generation && wake.wake_id != self.wake) {
            return Err(format!(
                "generation {} of {} after {} of {}",
                wake.generation, wake.wake_id, self.generation, self.wake
            ));
        }
        (self.generation, self.wake) = (wake.generation, wake.wake_id.clone());
        wake.streams.iter().try_for_each(|offer| self.consumer.offered(offer, wake.generation))
    }
}
