//! Which engine answers a request, and what the host asks of the request before.

use super::Engine;
use crate::auth::{self, Need};
use std::sync::Arc;
use thalweg_wire::http::Request;

/// Requests of one engine.
pub(crate) struct Route {
    pub(crate) paths: Paths,
    pub(crate) guard: Guard,
    /// `false`: the settings leave this out, and the host answers that nothing is there. The guard holds all the same.
    pub(crate) is_served: bool,
    /// The path as the page at `/` shows it, and what that says of it; empty: the page is silent about it.
    pub(crate) shown: (&'static str, &'static str),
}

/// Paths, as they were sent: percent-encoded and without the query.
#[derive(Clone, Copy)]
pub(crate) enum Paths {
    /// This one.
    Exactly(&'static str),
    /// This one, and every path whose first segments it is.
    Below(&'static str),
    /// Those that the engine itself takes for its own, because it takes several spellings for one path. Asked only if no other route fits.
    Spelled(fn(&str) -> bool),
}

/// What a token must allow for a request.
pub(crate) type Needs = for<'a> fn(&Request<'a>) -> Need<'a>;

/// What a request must pass before its engine sees it, beside the host and the origin that it names.
#[derive(Clone, Copy)]
pub(crate) enum Guard {
    /// A token of the host's, if the host asks for tokens.
    Token(Needs),
    /// The engine's own. `asks`: it lets nobody in without a secret or a token, so that any page may ask it.
    Own { asks: bool },
}

impl Paths {
    pub(crate) fn fit(self, path: &str) -> bool {
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
pub(crate) struct Routes {
    /// The longest first.
    entries: Vec<Entry>,
    shown: Vec<(&'static str, &'static str)>,
}

impl Routes {
    pub(crate) fn of(engines: &[Arc<dyn Engine>]) -> Self {
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

    /// What guards a path, and the engine that answers there, if one does. A path that no engine has is the host's own.
    pub(crate) fn find(&self, path: &str) -> (Guard, Option<&dyn Engine>) {
        match self.entries.iter().find(|entry| entry.paths.fit(path)) {
            Some(entry) => (entry.guard, entry.engine.as_deref()),
            None => (Guard::Token(auth::need_of_host), None),
        }
    }

    /// Paths with what they are for.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.shown.iter().copied()
    }
}
