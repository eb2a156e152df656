//! The routes of the binary: its own few, and the streams' for everything under `/v1/stream/`.

use crate::backup::{Backups, SERVED};
use crate::door::Door;
use crate::live;
use crate::metrics::{self, Snapshot};
use crate::scrub::{self, Scrubs};
use std::sync::Arc;
use thalweg_shapes::ShapesService;
use thalweg_subscriptions::Subscriptions;
use thalweg_wire::http::{Context, Method, Reply, Request, Response, Service};

/// Whether requests can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Whole,
    /// All but reads of what is damaged. Which streams that are is for administrators.
    Degraded {
        damage: u64,
    },
    /// Some requests cannot be served, for this reason.
    Down(String),
}

/// What the process can say about itself at any moment, without waiting.
pub(crate) trait Vitals: Send + Sync + 'static {
    fn health(&self) -> Health;
    fn metrics(&self) -> Snapshot;
}

/// The service in front: answers for the binary itself and passes the rest on to the engine.
pub(crate) struct Front<S, V> {
    streams: Arc<S>,
    subscriptions: Arc<Subscriptions>,
    vitals: V,
    backups: Arc<Backups>,
    scrubs: Arc<Scrubs>,
    /// Judges every request before its route.
    door: Arc<Door>,
    /// They have a secret of their own.
    shapes: Option<ShapesService>,
}

impl<S, V> Front<S, V> {
    pub(crate) fn new(
        streams: Arc<S>,
        subscriptions: Arc<Subscriptions>,
        backups: Arc<Backups>,
        scrubs: Arc<Scrubs>,
        vitals: V,
        door: Arc<Door>,
        shapes: Option<ShapesService>,
    ) -> Self {
        Self { streams, subscriptions, vitals, backups, scrubs, door, shapes }
    }
}

impl<S: Service, V: Vitals> Service for Front<S, V> {
    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        if let Some(response) = self.door.judge(request, cx.now_ms, true) {
            return Reply::Now(response);
        }
        if let Some(shapes) = &self.shapes
            && ShapesService::serves(request.path)
        {
            return shapes.handle_as(request, self.door.shapes(request, cx.now_ms), cx);
        }
        if is_stream(request.path) {
            if self.subscriptions.serves(request.path) {
                return self.subscriptions.handle(request, cx);
            }
            return self.streams.handle(request, cx);
        }
        if request.path == "/" && live::is_wanted(request.headers.get("accept")) && is_read(request.method) {
            let response = plain(200, "text/html; charset=utf-8").header("vary", "accept");
            return Reply::Now(live::page(response));
        }
        if is_backup(request.path) {
            return self.backups.handle(request);
        }
        if request.path == scrub::SERVED {
            return Reply::Now(self.scrubs.handle(request));
        }
        if ShapesService::administers(request.path) {
            return match &self.shapes {
                Some(shapes) => shapes.admin(request, cx),
                None => Reply::Now(plain(404, "application/json").body(NO_SHAPES)),
            };
        }
        Reply::Now(answer(request.method, request.path, &self.vitals, &self.door))
    }

    /// A request that is refused by its head need not send its body.
    fn on_head(&self, head: &Request<'_>, now_ms: u64) -> Option<Response> {
        let refused = self.door.judge(head, now_ms, false);
        refused.or_else(|| {
            let shapes = self.shapes.as_ref().filter(|_| ShapesService::serves(head.path))?;
            shapes.on_head(head, self.door.shapes(head, now_ms), now_ms)
        })
    }

    fn round_done(&self) {
        self.streams.round_done();
    }

    fn gate_failed(&self) -> Response {
        self.streams.gate_failed()
    }

    fn refused(&self, status: u16, reason: &str) -> Response {
        self.streams.refused(status, reason)
    }
}

fn is_read(method: Method<'_>) -> bool {
    matches!(method, Method::Get | Method::Head)
}

fn is_stream(path: &str) -> bool {
    path.strip_prefix("/v1/stream").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_backup(path: &str) -> bool {
    path.strip_prefix(SERVED).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

const ROUTES: &str = "\
  /v1/stream/NAME   streams: PUT creates, POST appends, GET reads, HEAD asks, DELETE removes
  /v1/stream/__ds/subscriptions/ID
                    subscriptions: PUT creates, GET asks, DELETE removes; workers are woken when streams change
  /v1/shape         shapes of a Postgres database, if one is configured: GET reads and waits for changes
  /v1/admin/backup  what `thalweg backup` speaks to
  /v1/admin/check   what `thalweg check --server` speaks to: what is damaged
  /v1/admin/shapes  what `thalweg shape ls`, `drop` and `explain` speak to
  /health           200 while requests can be served
  /metrics          counters, in the Prometheus text format
  /                 the same live, for a browser
";

const NO_SHAPES: &str =
    r#"{"error":{"code":"no_shapes","message":"this server has no database: --database-url names one"}}"#;

fn answer(method: Method<'_>, path: &str, vitals: &dyn Vitals, door: &Door) -> Response {
    let respond: fn(&dyn Vitals, &Door) -> Response = match path {
        "/" => |_, _| {
            text(200, &format!("This is thalweg {}: durable streams over HTTP.\n\n{ROUTES}", env!("CARGO_PKG_VERSION")))
        },
        "/health" => |vitals, _| match vitals.health() {
            Health::Whole => text(200, "ok\n"),
            Health::Degraded { damage } => {
                text(200, &format!("degraded: stored data is damaged at {damage} places; all other data is served\n"))
            }
            Health::Down(why) => text(503, &format!("{why}\n")),
        },
        "/metrics" => |vitals, door| {
            let page = metrics::render(&vitals.metrics(), &door.stats());
            plain(200, "text/plain; version=0.0.4; charset=utf-8").body(page)
        },
        _ => {
            return text(404, &format!("There is nothing here. What there is:\n\n{ROUTES}"));
        }
    };
    match method {
        method if is_read(method) => respond(vitals, door),
        Method::Options => plain(204, "text/plain").header("allow", "GET, HEAD, OPTIONS"),
        _ => text(405, "Only GET and HEAD work here.\n").header("allow", "GET, HEAD, OPTIONS"),
    }
}

fn text(status: u16, body: &str) -> Response {
    plain(status, "text/plain; charset=utf-8").body(body.to_owned())
}

/// The headers that every answer carries.
pub(crate) fn plain(status: u16, content_type: &str) -> Response {
    Response::new(status)
        .header("content-type", content_type)
        .header("cache-control", "no-store")
        .header("cross-origin-resource-policy", "cross-origin")
        .header("access-control-allow-origin", "*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::http::Body;

    struct Patient(Health);

    impl Vitals for Patient {
        fn health(&self) -> Health {
            self.0.clone()
        }

        fn metrics(&self) -> Snapshot {
            Snapshot::default()
        }
    }

    fn door() -> Door {
        Door::new(&crate::config::load(crate::config::Settings::default(), None).unwrap(), None, 4437)
    }

    fn get(path: &str, health: Health) -> (u16, String) {
        let response = answer(Method::Get, path, &Patient(health), &door());
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
        assert!(text.contains("/v1/stream/NAME"));
    }

    #[test]
    fn only_reading_works_on_the_binarys_own_pages() {
        assert_eq!(answer(Method::Post, "/health", &Patient(Health::Whole), &door()).status, 405);
        assert_eq!(answer(Method::Head, "/metrics", &Patient(Health::Whole), &door()).status, 200);
    }

    #[test]
    fn streams_are_what_is_below_their_root() {
        assert!(is_stream("/v1/stream/a"));
        assert!(is_stream("/v1/stream"));
        assert!(!is_stream("/v1/streams"));
        assert!(!is_stream("/health"));
    }
}
