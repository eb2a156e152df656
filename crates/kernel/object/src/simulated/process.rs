//! The futures of one simulated process: they go on when a thread of it waits for one, or when its time passes.

use super::settle;
use parking_lot::Mutex;
use std::future::Future;
use std::time::Duration;
use thalweg_base::Ticket;
use tokio::runtime::{Handle, Runtime};

/// Longer than any request waits.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Process {
    /// `None` after the end.
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    /// Lets others run; how much time of the process has passed then.
    give_way: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl Process {
    pub(crate) fn new(give_way: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap_or_else(|error| panic!("a runtime for a simulated process: {error}"));
        let handle = runtime.handle().clone();
        Self { runtime: Mutex::new(Some(runtime)), handle, give_way: Box::new(give_way) }
    }

    pub(crate) fn start(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(future));
    }

    /// Lets so much time pass, and everything go on that can.
    pub(crate) fn pass(&self, time: Duration) {
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.block_on(async {
                if time > Duration::ZERO {
                    tokio::time::advance(time).await;
                }
                settle().await;
            });
        }
    }

    /// Waits for a future, while others run.
    pub(crate) fn wait_for<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (mut ticket, answer) = Ticket::pending();
        self.start(async move { answer.complete(future.await) });
        let mut passed = Duration::ZERO;
        loop {
            assert!(self.runtime.lock().is_some(), "a simulated process that has ended waits for its bucket");
            self.pass(passed);
            match ticket.take() {
                Ok(value) => return value,
                Err(still) => ticket = still,
            }
            // A thread that unwinds gets no more answers, and what it cleans up waits for none.
            passed = if std::thread::panicking() { FOREVER } else { (self.give_way)() };
        }
    }

    /// Drops all futures, and what they hold.
    pub(crate) fn end(&self) {
        let runtime = self.runtime.lock().take();
        drop(runtime);
    }
}
