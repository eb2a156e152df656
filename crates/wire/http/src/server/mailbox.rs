//! Wakes of an event loop by other threads: a list of connections to handle, and a bell that rings only if the loop
//! sleeps.

use crate::service::{Wake, Waker};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::time::Duration;

/// A connection of an event loop. The serial distinguishes it from an earlier one in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Token {
    pub(super) index: u32,
    pub(super) serial: u32,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
/// Asleep, and holding replies that the gate can release.
const ASLEEP_AT_GATE: u8 = 2;

/// Ends an event loop's sleep, with at most one system call per sleep.
///
/// No wake-up is lost: the sleeper stores its state and then checks again for work; the waker adds work and then checks
/// the state; both with a full fence in between, so at least one of them sees the other.
pub(super) struct Bell {
    state: AtomicU8,
    event: OwnedFd,
}

impl Bell {
    fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: AtomicU8::new(AWAKE), event })
    }

    /// To be watched edge-triggered: it is never read.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Work came in.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) != AWAKE && self.state.swap(AWAKE, Ordering::AcqRel) != AWAKE {
            self.sound();
        }
    }

    /// The gate moved.
    pub(super) fn ring_at_gate(&self) {
        fence(Ordering::SeqCst);
        let state = &self.state;
        if state.load(Ordering::Relaxed) == ASLEEP_AT_GATE
            && state.compare_exchange(ASLEEP_AT_GATE, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.sound();
        }
    }

    fn sound(&self) {
        // Fails only if the counter is full, and then the event is pending already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// The caller must check for work once more before it sleeps.
    pub(super) fn fall_asleep(&self, at_gate: bool) {
        self.state.store(if at_gate { ASLEEP_AT_GATE } else { ASLEEP }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(super) fn awake(&self) {
        self.state.store(AWAKE, Ordering::Release);
    }
}

/// Wakes for the connections of one event loop.
pub(super) struct Mailbox {
    pub(super) bell: Bell,
    wakes: Mutex<Vec<Arc<Target>>>,
    stopping: AtomicBool,
    grace_ms: AtomicU64,
    closed: AtomicBool,
}

/// The target of a [`Waker`]: queued at most once at a time.
pub(super) struct Target {
    pub(super) token: Token,
    queued: AtomicBool,
    mailbox: Arc<Mailbox>,
}

impl Wake for Target {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) || self.mailbox.closed.load(Ordering::Acquire) {
            return;
        }
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.wakes.lock().push(self);
        mailbox.bell.ring();
    }
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        let (stopping, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { bell: Bell::new()?, wakes: Mutex::new(Vec::new()), stopping, grace_ms: AtomicU64::new(0), closed })
    }

    pub(super) fn waker(self: &Arc<Self>, token: Token) -> Waker {
        Waker(Arc::new(Target { token, queued: AtomicBool::new(false), mailbox: Arc::clone(self) }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakes.lock().is_empty()
    }

    /// Takes all wakes. Each may be queued again from here on, even before it is handled.
    pub(super) fn drain(&self, into: &mut Vec<Token>) {
        let wakes = std::mem::take(&mut *self.wakes.lock());
        into.extend(wakes.iter().map(|target| {
            target.queued.store(false, Ordering::Release);
            target.token
        }));
    }

    pub(super) fn stop(&self, grace: Duration) {
        self.grace_ms.store(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.stopping.store(true, Ordering::Release);
        self.bell.ring();
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The time limit of pending work once `stopping`.
    pub(super) fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms.load(Ordering::Relaxed))
    }

    /// The event loop has ended.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wakes.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(mailbox: &Mailbox) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(mailbox.bell.event(), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    const TOKEN: Token = Token { index: 1, serial: 2 };

    #[test]
    fn a_loop_that_is_awake_is_not_rung() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        mailbox.waker(TOKEN).wake();
        mailbox.bell.ring_at_gate();
        assert_eq!(rung(&mailbox), 0);
        assert!(!mailbox.is_empty());
    }

    #[test]
    fn a_sleeping_loop_is_rung_once() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        mailbox.bell.fall_asleep(true);
        (0..10).for_each(|_| mailbox.bell.ring_at_gate());
        (0..10).for_each(|_| mailbox.waker(TOKEN).wake());
        assert_eq!(rung(&mailbox), 1);
    }

    #[test]
    fn a_loop_that_holds_nothing_is_not_rung_by_the_gate() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        mailbox.bell.fall_asleep(false);
        mailbox.bell.ring_at_gate();
        assert_eq!(rung(&mailbox), 0);
        mailbox.waker(TOKEN).wake();
        assert_eq!(rung(&mailbox), 1);
    }

    #[test]
    fn a_waker_is_queued_once_until_it_is_taken() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let (waker, mut taken) = (mailbox.waker(TOKEN), Vec::new());
        (0..5).for_each(|_| waker.clone().wake());
        mailbox.drain(&mut taken);
        assert_eq!(taken, [TOKEN]);
        waker.wake();
        mailbox.drain(&mut taken);
        assert_eq!(taken, [TOKEN, TOKEN]);
        mailbox.close();
        waker.wake();
        assert!(mailbox.is_empty());
    }
}
