//! The server's own state: its health, and the metrics of all its parts.

use crate::http::{Health, Vitals};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use thalweg_host::Engines;
use thalweg_host::auth::Auth;
use thalweg_host::metrics::{self, Page};
use thalweg_host::scrub::Scrubs;
use thalweg_http::Server;
use thalweg_rounds::Rounds;

pub(crate) struct ServerVitals {
    engines: Arc<Engines>,
    auth: Option<Arc<Auth>>,
    scrubs: Arc<Scrubs>,
    rounds: Arc<Rounds>,
    server: OnceLock<Weak<Server>>,
    started: Instant,
}

impl ServerVitals {
    /// `scrubs`: of the engines' units.
    pub(crate) fn new(
        engines: Arc<Engines>,
        auth: Option<Arc<Auth>>,
        scrubs: Arc<Scrubs>,
        rounds: Arc<Rounds>,
    ) -> Self {
        Self { engines, auth, scrubs, rounds, server: OnceLock::new(), started: Instant::now() }
    }

    /// Sets the server, which exists later than the vitals that it shows.
    pub(crate) fn watch(&self, server: &Arc<Server>) {
        let _ = self.server.set(Arc::downgrade(server));
    }
}

impl Vitals for Arc<ServerVitals> {
    fn health(&self) -> Health {
        if let Err(why) = self.engines.health() {
            return Health::Down(why);
        }
        match self.scrubs.damage().total() {
            0 => Health::Whole,
            damage => Health::Degraded { damage },
        }
    }

    fn metrics(&self, door: &metrics::Door) -> String {
        let mut page = Page::default();
        self.engines.all().iter().for_each(|engine| engine.metrics(&mut page));
        self.engines.units().iter().zip(self.scrubs.stats()).for_each(|(unit, scrub)| page.add_unit(unit, &scrub));
        page.add_rounds(&self.rounds.stats());
        let server = self.server.get().and_then(Weak::upgrade).map(|server| server.stats()).unwrap_or_default();
        page.add_server(&server);
        let process = metrics::Process {
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            memory_bytes: resident_bytes().unwrap_or(0),
            log_lines_dropped: crate::logs::dropped(),
        };
        page.add_process(&process, self.auth.as_ref().map(|auth| auth.denied()).as_ref(), door);
        page.text()
    }
}

/// From `/proc`, which costs no device: proc(5), the second number of `statm`, in pages.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
