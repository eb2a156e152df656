//! Routes: the engine that answers a request, and the checks before it.

use crate::Engine;
use crate::auth::{self, Need};
use std::sync::Arc;
use thalweg_http::Request;

/// Requests of one engine.
pub struct Route {
    pub paths: Paths,
    pub guard: Guard,
    /// `false`: the settings exclude this route, and the host answers 404. The guard holds all the same.
    pub is_served: bool,
    /// The path as the page at `/` shows it, and its description; empty: the page omits it.
    pub shown: (&'static str, &'static str),
}

/// Paths, as they were sent: percent-encoded and without the query.
#[derive(Clone, Copy)]
pub enum Paths {
    /// This path only.
    Exactly(&'static str),
    /// This path, and every path below it.
    Below(&'static str),
    /// Paths that the engine itself recognises, because it accepts several spellings of one path. Tried only if no
    /// other route fits.
    Spelled(fn(&str) -> bool),
}

/// The right that a request needs of its token.
pub type Needs = for<'a> fn(&Request<'a>) -> Need<'a>;

/// Checks of a request before its engine sees it, beside its host and origin.
#[derive(Clone, Copy)]
pub enum Guard {
    /// A token of the host's, if the host asks for tokens.
    Token(Needs),
    /// The engine's own guard. `asks`: it requires a secret or a token, so that any page may ask it.
    Own { asks: bool },
}

impl Paths {
    /// Whether a path, percent-encoded as it was sent, is one of these.
    pub fn fit(self, path: &str) -> bool {
        match self {
            Self::Exactly(one) => path == one,
            Self::Below(root) => path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Self::Spelled(fits) => fits(path),
        }
    }

    /// How much a path must have in common with it to fit: the longest that fits counts.
    fn len(self) -> usize {
        match self {
            Self::Exactly(path) | Self::Below(path) => path.len(),
            Self::Spelled(_) => 0,
        }
    }
}

/// A route and its engine.
struct Entry {
    paths: Paths,
    guard: Guard,
    /// `None`: it is left out.
    engine: Option<Arc<dyn Engine>>,
}

/// The routes of all engines.
pub struct Routes {
    /// The longest first.
    entries: Vec<Entry>,
    shown: Vec<(&'static str, &'static str)>,
}

impl Routes {
    /// The routes of these engines: the longest path that fits counts.
    pub fn of(engines: &[Arc<dyn Engine>]) -> Self {
        let (mut entries, mut shown) = (Vec::new(), Vec::new());
        for engine in engines {
            for Route { paths, guard, is_served, shown: line } in engine.routes() {
                entries.push(Entry { paths, guard, engine: is_served.then(|| Arc::clone(engine)) });
                shown.extend((!line.0.is_empty()).then_some((paths, line)));
            }
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.paths.len()));
        // A path below another one is shown behind it.
        let roots: Vec<Paths> = shown.iter().map(|(paths, _)| *paths).collect();
        shown.sort_by_key(|(_, (path, _))| roots.iter().position(|root| root.fit(path)));
        Self { entries, shown: shown.into_iter().map(|(_, line)| line).collect() }
    }

    /// The guard of a path, and the engine that answers there, if any. A path of no engine is the host's own.
    pub fn find(&self, path: &str) -> (Guard, Option<&dyn Engine>) {
        match self.entries.iter().find(|entry| entry.paths.fit(path)) {
            Some(entry) => (entry.guard, entry.engine.as_deref()),
            None => (Guard::Token(auth::need_of_host), None),
        }
    }

    /// Paths with their descriptions.
    pub fn shown(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.shown.iter().copied()
    }
}
