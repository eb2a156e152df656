//! The service in front of the engines, and the binary's own pages.

use crate::backup::{Backups, SERVED};
use crate::live;
use crate::nodes::Served;
use std::sync::Arc;
use thalweg_host::door::Door;
use thalweg_host::nodes::SIGNATURE;
use thalweg_host::scrub::{self, Scrubs};
use thalweg_host::{Paths, Routes, metrics, plain};
use thalweg_http::{Context, Method, Reply, Request, Response, Service};

const BACKUPS: Paths = Paths::Below(SERVED);

/// Whether requests can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Whole,
    /// Everything works but reads of damaged data. Which streams are damaged is for administrators only.
    Degraded {
        damage: u64,
    },
    /// Some requests cannot be served, for this reason.
    Down(String),
}

/// The process's own state, available at any moment without waiting.
pub(crate) trait Vitals: Send + Sync + 'static {
    fn health(&self) -> Health;
    /// The page of metrics.
    fn metrics(&self, door: &metrics::Door) -> String;
}

/// The service in front: lets requests in, passes those of engines on, and answers for the binary itself.
pub(crate) struct Front<S, V> {
    pub(crate) routes: Routes,
    /// The engine whose journal opens the event loop's gate: it starts the work of a round, and completes held replies.
    pub(crate) gated: Arc<S>,
    pub(crate) vitals: V,
    /// The node, if the server is one: its data folder has none of the streams, and it signs its answers to others.
    pub(crate) node: Option<Arc<Served>>,
    pub(crate) backups: Arc<Backups>,
    pub(crate) scrubs: Arc<Scrubs>,
    /// Judges every request before its route.
    pub(crate) door: Arc<Door>,
}

impl<S: Service, V: Vitals> Front<S, V> {
    /// Answers requests that belong to no engine.
    fn own(&self, request: &Request<'_>) -> Reply {
        if request.path == "/" && live::is_wanted(request.headers.get("accept")) && is_read(request.method) {
            let response = plain(200, "text/html; charset=utf-8").header("vary", "accept");
            return Reply::Now(live::page(response));
        }
        if self.node.is_some() && (BACKUPS.fit(request.path) || request.path == scrub::SERVED) {
            return Reply::Now(is_a_node());
        }
        if BACKUPS.fit(request.path) {
            return self.backups.handle(request);
        }
        if request.path == scrub::SERVED {
            return Reply::Now(self.scrubs.handle(request));
        }
        Reply::Now(answer(request.method, request.path, &self.vitals, &self.door, &self.routes))
    }
}

impl<S: Service, V: Vitals> Service for Front<S, V> {
    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let (guard, engine) = self.routes.find(request.path);
        let reply = match (self.door.judge(request, guard, cx.now_ms, true), engine) {
            (Some(refused), _) => Reply::Now(refused),
            (None, Some(engine)) => engine.handle(request, cx),
            (None, None) => self.own(request),
        };
        match &self.node {
            Some(node) => node.signed(request, reply),
            None => reply,
        }
    }

    /// A request that is refused by its head need not send its body.
    fn on_head(&self, head: &Request<'_>, now_ms: u64) -> Option<Response> {
        let (guard, engine) = self.routes.find(head.path);
        let refused = self.door.judge(head, guard, now_ms, false).or_else(|| engine?.on_head(head, now_ms))?;
        Some(match self.node.as_ref().and_then(|node| node.signature(head)) {
            Some(signature) => refused.header(SIGNATURE, signature),
            None => refused,
        })
    }

    fn round_done(&self) {
        self.gated.round_done();
    }

    fn gate_failed(&self) -> Response {
        self.gated.gate_failed()
    }

    fn refused(&self, status: u16, reason: &str) -> Response {
        self.gated.refused(status, reason)
    }
}

/// What would be copied or checked is not in the folder of a node.
fn is_a_node() -> Response {
    let message = "the streams of a node are in the bucket, not in its data folder: check them with `thalweg store check \
                   --store s3://BUCKET/PREFIX`; docs/ops/durability.md says how to copy them";
    crate::nodes::refused(409, "is_a_node", message)
}

fn is_read(method: Method<'_>) -> bool {
    matches!(method, Method::Get | Method::Head)
}

/// The binary's own pages, as the page at `/` shows them: those for operators, and those for everybody.
const FOR_OPERATORS: [(&str, &str); 2] =
    [(SERVED, "used by `thalweg backup`"), (scrub::SERVED, "used by `thalweg check --server`: lists damage")];
const FOR_EVERYBODY: [(&str, &str); 3] = [
    ("/health", "200 while requests can be served"),
    ("/metrics", "counters, in the Prometheus text format"),
    ("/", "the same live, for a browser"),
];

/// Every path with its description: those of engines first, then those for operators.
fn listed(routes: &Routes) -> String {
    let (operators, engines): (Vec<_>, Vec<_>) = routes.shown().partition(|(path, _)| path.starts_with("/v1/admin/"));
    let all = engines.into_iter().chain(FOR_OPERATORS).chain(operators).chain(FOR_EVERYBODY);
    all.map(|(path, what)| match path.len() {
        ..18 => format!("  {path:<17} {what}\n"),
        _ => format!("  {path}\n{:20}{what}\n", ""),
    })
    .collect()
}

fn answer(method: Method<'_>, path: &str, vitals: &dyn Vitals, door: &Door, routes: &Routes) -> Response {
    let respond: fn(&dyn Vitals, &Door, &Routes) -> Response = match path {
        "/" => |_, _, routes| {
            let version = env!("CARGO_PKG_VERSION");
            text(200, &format!("This is thalweg {version}: durable streams over HTTP.\n\n{}", listed(routes)))
        },
        "/health" => |vitals, _, _| match vitals.health() {
            Health::Whole => text(200, "ok\n"),
            Health::Degraded { damage } => {
                text(200, &format!("degraded: stored data is damaged at {damage} places; all other data is served\n"))
            }
            Health::Down(why) => text(503, &format!("{why}\n")),
        },
        "/metrics" => {
            |vitals, door, _| plain(200, "text/plain; version=0.0.4; charset=utf-8").body(vitals.metrics(&door.stats()))
        }
        _ => {
            return text(404, &format!("This path does not exist. Known paths:\n\n{}", listed(routes)));
        }
    };
    match method {
        method if is_read(method) => respond(vitals, door, routes),
        Method::Options => plain(204, "text/plain").header("allow", "GET, HEAD, OPTIONS"),
        _ => text(405, "Only GET and HEAD work here.\n").header("allow", "GET, HEAD, OPTIONS"),
    }
}

fn text(status: u16, body: &str) -> Response {
    plain(status, "text/plain; charset=utf-8").body(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_http::Body;

    struct Patient(Health);

    impl Vitals for Patient {
        fn health(&self) -> Health {
            self.0.clone()
        }

        fn metrics(&self, _: &metrics::Door) -> String {
            String::new()
        }
    }

    fn door() -> Door {
        Door::new(&thalweg_host::config::load(thalweg_host::config::Settings::default(), None).unwrap(), None, 4437)
    }

    fn get(path: &str, health: Health) -> (u16, String) {
        let response = answer(Method::Get, path, &Patient(health), &door(), &Routes::of(&[]));
        match response.body {
            Body::Bytes(bytes) => (response.status, String::from_utf8(bytes.to_vec()).unwrap()),
            _ => (response.status, String::new()),
        }
    }

    #[test]
    fn health_follows_the_process() {
        assert_eq!(get("/health", Health::Whole), (200, "ok\n".to_owned()));
        let (status, why) = get("/health", Health::Degraded { damage: 2 });
        assert!(status == 200 && why.starts_with("degraded: ") && why.contains("2 places"), "{status} {why}");
        let (status, why) = get("/health", Health::Down("the journal stopped".to_owned()));
        assert_eq!(status, 503);
        assert!(why.contains("the journal stopped"));
    }

    #[test]
    fn the_root_says_what_this_is_and_an_unknown_path_what_there_is() {
        assert!(get("/", Health::Whole).1.contains("durable streams over HTTP"));
        let (status, text) = get("/nonsense", Health::Whole);
        assert_eq!(status, 404);
        assert!(text.contains("/metrics"));
    }

    #[test]
    fn only_reading_works_on_the_binarys_own_pages() {
        assert_eq!(answer(Method::Post, "/health", &Patient(Health::Whole), &door(), &Routes::of(&[])).status, 405);
        assert_eq!(answer(Method::Head, "/metrics", &Patient(Health::Whole), &door(), &Routes::of(&[])).status, 200);
    }
}
