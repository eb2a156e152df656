//! The service: its requests, their permissions, and the answers that it gives at once.

use super::access::{Denied, Granted};
use super::refusal::Refusal;
use super::respond::{self, RequestClock, RequestContext};
use super::route::Route;
use super::secret::Secret;
use super::state::{ServeState, too_many_reads};
use crate::server::ShapesServer;
use std::hash::BuildHasher;
use std::sync::Arc;
use thalweg_http::{Context, Fetch, Method, Pending, Poll, Reply, Request, Response, Service};
use thalweg_shapes_core::request::params::DeleteRequest;
use thalweg_shapes_model::failure::Beyond;
use thalweg_shapes_model::handle::Handle;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_source::pool::Pool as Database;

/// Serves shapes over HTTP.
#[derive(Clone)]
pub struct ShapesService(pub(crate) Arc<ServeState>);

impl ShapesService {
    pub(crate) fn new(server: Arc<ShapesServer>, database: Database) -> Self {
        Self(Arc::new(ServeState::new(server, database)))
    }

    /// Whether a path is one of those that are served here.
    #[must_use]
    pub fn serves(path: &str) -> bool {
        matches!(Route::of(path), Route::Shape | Route::Health)
    }

    /// How many requests, jobs and owners have a part of the service. Its last part waits for threads when it is dropped.
    #[must_use]
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Whether a path asks for the state of the source.
    #[must_use]
    pub fn is_health(path: &str) -> bool {
        Route::of(path) == Route::Health
    }
}

impl ShapesService {
    /// Whether a request gives the secret, right or wrong: then that counts, and no token.
    #[must_use]
    pub fn gives_secret(request: &Request<'_>) -> bool {
        Secret::is_in(request.query)
    }

    /// Answers under a token, if one was sent in place of the secret.
    pub fn handle_as(
        &self,
        request: &Request<'_>,
        access: Result<Option<Granted>, Denied>,
        cx: &mut Context<'_>,
    ) -> Reply {
        self.0.handle(request, access, cx)
    }

    /// The refusal of a request of which there is only the head: no client sends a body in vain. `None` lets it go on
    /// to [`ShapesService::handle_as`].
    #[must_use]
    pub fn on_head(
        &self,
        head: &Request<'_>,
        access: Result<Option<Granted>, Denied>,
        now_ms: u64,
    ) -> Option<Response> {
        let route = Route::of(head.path);
        if route != Route::Shape || head.method == Method::Options {
            return None;
        }
        let refusal = self.0.admit(head, access).err()?;
        let moment = self.0.moment(now_ms);
        Some(self.0.responder.refuse(&self.0.context(head, route, moment), &refusal, moment))
    }
}

impl Service for ShapesService {
    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        self.0.handle(request, Ok(None), cx)
    }

    fn round_done(&self) {}

    fn gate_failed(&self) -> Response {
        Response::new(500)
    }
}

impl ServeState {
    fn handle(
        self: &Arc<Self>,
        request: &Request<'_>,
        access: Result<Option<Granted>, Denied>,
        cx: &mut Context<'_>,
    ) -> Reply {
        let route = Route::of(request.path);
        let moment = self.moment(cx.now_ms);
        let context = self.context(request, route, moment).private(matches!(access, Ok(Some(_))));
        let refuse = |refusal: Refusal| Reply::Now(self.responder.refuse(&context, &refusal, moment));
        match (route, request.method) {
            (Route::Health, Method::Get | Method::Head) => {
                let health = match self.server.source.health() {
                    // Electric says so too: the next request is served as ever.
                    Health::Active | Health::Asleep => respond::Health::Active,
                    Health::Waiting => respond::Health::Waiting,
                    Health::Starting => respond::Health::Starting,
                };
                return Reply::Now(self.responder.health(&context, health));
            }
            (Route::Shape, Method::Options) => return Reply::Now(self.responder.preflight(&context, request.headers)),
            (Route::Shape, Method::Get | Method::Head | Method::Post | Method::Delete) => {}
            _ => return refuse(Refusal::Unknown),
        }
        let granted = match self.admit(request, access) {
            Ok(granted) => granted,
            Err(refusal) => return refuse(refusal),
        };
        let done = match (request.method, granted) {
            (Method::Delete, Some(_)) => Err(Beyond::Delete.into()),
            (Method::Delete, None) => self.delete(request, &context),
            (_, granted) => self.begin(request, granted.as_ref(), &context, cx),
        };
        done.unwrap_or_else(refuse)
    }

    fn context(&self, request: &Request<'_>, route: Route, moment: RequestClock) -> RequestContext {
        let id = u128::from(self.random.hash_one(moment.unique)) << 64 | u128::from(moment.unique);
        RequestContext::new(request, route, id)
    }

    /// The grants of a request's sender, by a token or by the secret; all if no secret is required.
    fn admit(
        &self,
        request: &Request<'_>,
        access: Result<Option<Granted>, Denied>,
    ) -> Result<Option<Granted>, Refusal> {
        match access {
            Err(denied) => Err(Refusal::Denied(denied)),
            Ok(None) if !self.secret.admits(request.query) => Err(Refusal::Secret),
            Ok(granted) => Ok(granted),
        }
    }

    fn delete(self: &Arc<Self>, request: &Request<'_>, context: &RequestContext) -> Result<Reply, Refusal> {
        if !self.responder.settings().allow_delete {
            return Err(Refusal::NoDelete);
        }
        let wanted = DeleteRequest::parse(request.query.unwrap_or_default()).map_err(Refusal::Invalid)?;
        let registry = self.server.catalog.registry.read();
        let by_query_key = wanted.shape.as_ref().map(|shape| registry.by_query_key(&shape.key()).cloned());
        let by_handle = wanted.handle.as_ref().map(|handle| registry.by_handle(Handle::parse(handle).shape).cloned());
        drop(registry);
        let found = match (by_query_key, by_handle) {
            (Some(Some(shape)), Some(Some(named))) if shape.number != named.number => return Err(Refusal::Mismatch),
            (Some(Some(shape)), Some(None)) if shape.number > 0 => return Err(Refusal::Mismatch),
            (_, Some(Some(shape))) | (Some(Some(shape)), _) => shape,
            _ => return Err(Refusal::NoShape),
        };
        // Acknowledged means durable: a handle whose removal was acknowledged never comes back.
        let (inner, context) = (Arc::clone(self), context.clone());
        let deleted = self.io.run(move || match inner.server.retirement.drop_for_good(&found) {
            Ok(()) => inner.responder.deleted(&context),
            Err(error) => {
                let refusal = Refusal::Unreadable(error.to_string());
                inner.responder.refuse(&context, &refusal, RequestClock::default())
            }
        });
        deleted.map(|fetch| Reply::Later(Box::new(Deleting(fetch)))).ok_or_else(too_many_reads)
    }
}

/// A DELETE that waits for the disk.
struct Deleting(Fetch<Response>);

impl Pending for Deleting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        self.0.take(|| cx.waker()).map_or(Poll::Wait, |response| Poll::Ready(Reply::Now(response)))
    }
}
