//! The interface between the host and its engines.

use crate::auth::Auth;
use crate::background::Background;
use crate::config::Config;
use crate::folder::Folder;
use crate::metrics::Page;
use crate::route::Route;
use crate::unit::Unit;
use anyhow::Context as _;
use std::sync::Arc;
use thalweg_http::{Context, Gate, Reply, Request, Response, SharedPages};
use thalweg_log::{Attachment, FileUnit};
use thalweg_rounds::Rounds;

/// Parameters with which engines are opened.
#[derive(Clone, Copy)]
pub struct Boot<'a> {
    /// The settings in force.
    pub config: &'a Config,
    /// The data folder, taken for this process.
    pub folder: &'a Folder,
    /// Tokens, if there are any.
    pub auth: Option<&'a Arc<Auth>>,
    /// The gate at which the event loop holds replies. It counts positions of the streams' journal: `Reply::Held` of
    /// every engine means those.
    pub gate: &'a Arc<Gate>,
    /// Shared pages of answers, which go to many clients without a copy for each.
    pub pages: &'a SharedPages,
}

impl Boot<'_> {
    /// Has the chunks of a unit that are kept for many readers sent without a copy for each.
    pub fn share_chunks_of<A: Attachment>(&self, unit: &FileUnit<A>) {
        let pages = self.pages.clone();
        unit.logs.prepare_shared(move |bytes| pages.hold(bytes));
    }
}

/// One engine that was opened, whether or not the settings have it serve anything.
///
/// The event loop calls [`Engine::handle`] and [`Engine::on_head`]: they must not wait for a device, for a peer, or for
/// a lock whose holder does.
pub trait Engine: Send + Sync {
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

    /// Starts its background work on threads of the host. `rounds` has the jobs of kernel units.
    fn work(&self, background: &mut Background, rounds: &Arc<Rounds>) -> std::io::Result<()> {
        let _ = (background, rounds);
        Ok(())
    }

    /// Hands over what others can take, while requests are still served: the process is about to stop. May wait for
    /// seconds.
    fn retire(&self) {}

    /// Stops the engine's own threads and connections. The server has stopped taking requests; the engine's unit is
    /// still open.
    fn stop(&self) {}

    /// Closes units that [`Engine::unit`] does not name, after all background work has stopped.
    fn close(&self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The engines of a server and their units, in the order in which they were opened.
#[derive(Default)]
pub struct Engines {
    all: Vec<Arc<dyn Engine>>,
    units: Vec<Unit>,
}

impl Engines {
    /// Adds an engine, and its unit if it has one.
    pub fn add<E: Engine + 'static>(&mut self, engine: E) -> Arc<E> {
        let engine = Arc::new(engine);
        self.units.extend(engine.unit());
        self.all.push(Arc::clone(&engine) as Arc<dyn Engine>);
        engine
    }

    /// In the order in which they were opened.
    pub fn all(&self) -> &[Arc<dyn Engine>] {
        &self.all
    }

    /// The units of all engines, in the order of these.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// `Ok` if requests of every kind can be served; otherwise the reason. A stopped journal is reported before its
    /// consequences.
    pub fn health(&self) -> Result<(), String> {
        self.units.iter().try_for_each(Unit::health)?;
        self.all.iter().try_for_each(|engine| engine.health())
    }

    /// Hands over what others can take.
    pub fn retire(&self) {
        self.all.iter().for_each(|engine| engine.retire());
    }

    /// Stops all engines in reverse order of opening: an engine may use those opened before it.
    pub fn stop(&self) {
        self.all.iter().rev().for_each(|engine| engine.stop());
    }

    /// Closes all units with everything on the disk, after the engines and the background work have stopped.
    pub fn close(&self) -> anyhow::Result<()> {
        let of_engines = self.all.iter().rev().map(|engine| engine.close()).collect::<Vec<_>>();
        let closed = self.units.iter().rev().map(|unit| match unit.label() {
            None => unit.close(),
            Some(name) => unit.close().context(name.to_owned()),
        });
        // Collected first, so that all are closed even if one fails.
        of_engines.into_iter().chain(closed.collect::<Vec<_>>()).collect()
    }
}
