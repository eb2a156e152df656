//! The host: its interface to engines, and the services that every engine gets from it.
//!
//! An engine is one door of the product. [`crate::engines`] lists those of this binary; the rest of the host knows
//! engines by the trait [`Engine`] alone. The host matches routes, judges every request before its route, keeps and
//! scrubs the kernel units, runs the event loops, and answers `/health` and `/metrics` for all engines together.

mod keep;
pub(crate) mod kernel;
pub(crate) mod reserve;
mod route;
pub(crate) mod scrub;
mod unit;

pub(crate) use keep::{Keeping, keep};
pub(crate) use route::{Guard, Needs, Paths, Route, Routes};
pub(crate) use unit::{Unit, UnitLogs};

use crate::auth::Auth;
use crate::background::Background;
use crate::config::Config;
use crate::folder::Folder;
use crate::metrics::Page;
use anyhow::Context as _;
use std::sync::Arc;
use thalweg_log::{Attachment, FileUnit};
use thalweg_wire::http::{Context, Gate, Reply, Request, Response, SharedPages};

/// Parameters with which engines are opened.
#[derive(Clone, Copy)]
pub(crate) struct Boot<'a> {
    pub(crate) config: &'a Config,
    pub(crate) folder: &'a Folder,
    pub(crate) auth: Option<&'a Arc<Auth>>,
    /// The gate at which the event loop holds replies. It counts positions of the streams' journal: `Reply::Held` of every engine
    /// means those.
    pub(crate) gate: &'a Arc<Gate>,
    /// Shared pages of answers, which go to many clients without a copy for each.
    pub(crate) pages: &'a SharedPages,
}

impl Boot<'_> {
    /// Has the chunks of a unit that are kept for many readers sent without a copy for each.
    pub(crate) fn share_chunks_of<A: Attachment>(&self, unit: &FileUnit<A>) {
        let pages = self.pages.clone();
        unit.logs.prepare_shared(move |bytes| pages.hold(bytes));
    }
}

/// One engine that was opened, whether or not the settings have it serve anything.
///
/// The event loop calls [`Engine::handle`] and [`Engine::on_head`]: they must not wait for a device, for a peer, or for
/// a lock whose holder does.
pub(crate) trait Engine: Send + Sync {
    /// The requests that are its own. Asked once, before the server serves.
    fn routes(&self) -> Vec<Route>;

    /// Answers a request of one of its routes, which the host has let in. `Reply::Held` waits for the streams' journal
    /// only (see [`Boot::gate`]): an engine with a unit of its own answers `Reply::Later`.
    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply;

    /// The refusal of a request before its body arrives. `None` passes the request on to [`Engine::handle`].
    fn on_head(&self, head: &Request<'_>, now_ms: u64) -> Option<Response> {
        let _ = (head, now_ms);
        None
    }

    /// The kernel unit that it has to itself. The host keeps it in order, scrubs it, counts it, says in `/health` if
    /// its journal has stopped, and closes it.
    fn unit(&self) -> Option<Unit> {
        None
    }

    /// Why `/health` must report that some requests cannot be served. Never waits.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    /// Adds its figures to the page, all of them at every call. Never waits.
    fn metrics(&self, page: &mut Page);

    /// Starts its background work on threads of the host.
    fn work(&self, background: &mut Background) -> std::io::Result<()> {
        let _ = background;
        Ok(())
    }

    /// Stops the engine's own threads and connections. The server has stopped taking requests; the engine's unit is
    /// still open.
    fn stop(&self) {}
}

/// The engines of a server and their units, in the order in which they were opened.
#[derive(Default)]
pub(crate) struct Engines {
    all: Vec<Arc<dyn Engine>>,
    units: Vec<Unit>,
}

impl Engines {
    pub(crate) fn add<E: Engine + 'static>(&mut self, engine: E) -> Arc<E> {
        let engine = Arc::new(engine);
        self.units.extend(engine.unit());
        self.all.push(Arc::clone(&engine) as Arc<dyn Engine>);
        engine
    }

    pub(crate) fn all(&self) -> &[Arc<dyn Engine>] {
        &self.all
    }

    pub(crate) fn units(&self) -> &[Unit] {
        &self.units
    }

    /// `Ok` if requests of every kind can be served; otherwise the reason. A stopped journal is reported before its
    /// consequences.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.units.iter().try_for_each(Unit::health)?;
        self.all.iter().try_for_each(|engine| engine.health())
    }

    /// Stops all engines in reverse order of opening: an engine may use those opened before it.
    pub(crate) fn stop(&self) {
        self.all.iter().rev().for_each(|engine| engine.stop());
    }

    /// Closes all units with everything on the disk, after the engines and the background work have stopped.
    pub(crate) fn close(&self) -> anyhow::Result<()> {
        let closed = self.units.iter().rev().map(|unit| match unit.label() {
            None => unit.close(),
            Some(name) => unit.close().context(name),
        });
        // Collected first, so that all are closed even if one fails.
        closed.collect::<Vec<_>>().into_iter().collect()
    }
}

#[cfg(test)]
mod full;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod thousand;
