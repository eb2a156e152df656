//! Requests of operators: `/v1/admin/shapes`. The host checks their permission; `secret` is not required.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/admin/shapes?after=N&limit=N&table=T` | 200 and a page of shapes, with the state of the source |
//! | `GET /v1/admin/shapes/HANDLE` | 200 and one shape |
//! | `DELETE /v1/admin/shapes/HANDLE` | 204: its clients must refetch |
//! | `GET /v1/admin/shapes/explain?table=T&where=W&params[1]=V` | 200 and how the clause is indexed |

use super::service::ShapesService;
use super::state::ServeState;
use crate::explain::explain;
use crate::view::{PAGE_MAX, view};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use thalweg_http::{Context, Fetch, Method, Pending, Poll, Reply, Request, Response};
use thalweg_shapes_core::request::params::DeleteRequest;
use thalweg_shapes_core::request::query::{decoded, pairs};
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::handle::Handle;
use thalweg_shapes_source::catalog::{self, LookupError};

/// A handle is never this: it has a dash.
const EXPLAIN: &str = "explain";

/// A refusal: status, code, message.
type Refused = (u16, &'static str, String);
type Answer = Result<(u16, Vec<u8>), Refused>;

struct Waiting(Fetch<Answer>);

impl Pending for Waiting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        match self.0.take(|| cx.waker()) {
            Some(answer) => Poll::Ready(Reply::Now(response(answer))),
            None => Poll::Wait,
        }
    }
}

impl ShapesService {
    /// [`ShapesService::admin`] answers for this path and for all below it.
    pub const ADMIN: &str = "/v1/admin/shapes";

    /// Answers operators. Never waits.
    #[must_use]
    pub fn admin(&self, request: &Request<'_>, cx: &Context<'_>) -> Reply {
        let rest = request.path.strip_prefix(Self::ADMIN).unwrap_or_default();
        let query = request.query.unwrap_or_default();
        let read = matches!(request.method, Method::Get | Method::Head);
        let begun = match (rest.strip_prefix('/').unwrap_or_default(), request.method) {
            ("", _) if read => self.0.list(query, cx.now_ms),
            (EXPLAIN, _) if read => self.0.explain(query),
            ("" | EXPLAIN, _) => return now(not_allowed("GET")),
            (handle, _) if read => return now(self.0.one(handle, cx.now_ms)),
            (handle, Method::Delete) => self.0.put_out(handle),
            _ => return now(not_allowed("GET, DELETE")),
        };
        match begun {
            Ok(fetch) => Reply::Later(Box::new(Waiting(fetch))),
            Err(refused) => now(Err(refused)),
        }
    }
}

impl ServeState {
    /// Of a million shapes a page takes a while: not on the event loop.
    fn list(&self, query: &str, now_ms: u64) -> Result<Fetch<Answer>, Refused> {
        let (mut after, mut limit, mut table) = (0, PAGE_MAX, None);
        for (name, value) in pairs(query) {
            let number = || value.parse::<u64>().map_err(|_| bad(format!("`{name}` is not a whole number")));
            match &*name {
                "after" => after = number()?,
                "limit" => limit = usize::try_from(number()?).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX),
                "table" => {
                    table = Some(decoded(value).map_err(|_| bad("`table` is no text".to_owned()))?.into_owned());
                }
                _ => {}
            }
        }
        let server = Arc::clone(&self.server);
        let job = move || body(200, &server.page(after, limit, table.as_deref(), now_ms));
        self.io.run(job).ok_or_else(too_many_reads)
    }

    fn one(&self, handle: &str, now_ms: u64) -> Answer {
        let found = self.server.catalog.registry.read().by_handle(Handle::parse(handle).shape).cloned();
        body(200, &view(&*found.ok_or_else(no_shape)?, now_ms))
    }

    /// Drops a shape, and answers once that is durable.
    fn put_out(&self, handle: &str) -> Result<Fetch<Answer>, Refused> {
        let found =
            self.server.catalog.registry.read().by_handle(Handle::parse(handle).shape).cloned().ok_or_else(no_shape)?;
        tracing::info!(handle, "a shape is dropped: an operator asked for it");
        let server = Arc::clone(&self.server);
        let job = move || match server.retirement.drop_for_good(&found) {
            Ok(()) => Ok((204, Vec::new())),
            Err(error) => Err((503, "storage_error", error.to_string())),
        };
        self.io.run(job).ok_or_else(too_many_reads)
    }

    /// Explains a definition's where clause, for the table as Postgres has it.
    fn explain(&self, query: &str) -> Result<Fetch<Answer>, Refused> {
        let wanted = DeleteRequest::parse(query).map_err(|invalid| bad(words(&invalid.body())))?;
        let shape = wanted.shape.ok_or_else(|| bad("`table` is missing".to_owned()))?;
        let (definition, publication) = (shape.to_definition(), self.server.config.publication());
        let server = Arc::clone(&self.server);
        let run = self.database.run(move |session| {
            let session = session.map_err(|error| failed(&crate::failures::unavailable(error)))?;
            let found = catalog::lookup(session, &publication, &definition.table);
            let found = found.map_err(|error| match error {
                LookupError::Unsupported(error) => bad(error.to_string()),
                LookupError::Source(error) => failed(&crate::failures::unavailable(error)),
            })?;
            let found = found.ok_or_else(|| bad(format!("there is no table {}", definition.table)))?;
            let dependence = server.dependence(session, &definition, &found.table).map_err(|error| failed(&error))?;
            let explanation = explain(&definition, &found.table, dependence.as_ref(), &server.feed);
            let explanation = explanation.map_err(|why| (422, "not_explained", why))?;
            body(200, &explanation)
        });
        run.map_err(|error| failed(&crate::failures::unavailable(error)))
    }
}

fn bad(message: String) -> Refused {
    (400, "bad_request", message)
}

fn too_many_reads() -> Refused {
    (503, "too_many_reads", "too much waits for the disk, please retry".to_owned())
}

fn no_shape() -> Refused {
    (404, "no_shape", "there is no shape with this handle".to_owned())
}

fn not_allowed(methods: &str) -> Answer {
    Err((405, "method_not_allowed", format!("what works here: {methods}")))
}

fn failed(failure: &Failure) -> Refused {
    match failure {
        Failure::Invalid(invalid) => bad(words(&invalid.body())),
        Failure::Beyond(beyond) => {
            let (status, code) = beyond.mapping();
            (status, code, beyond.to_string())
        }
        Failure::Rotated => (503, "changing", "the table is changing, please retry".to_owned()),
        Failure::Unavailable { code, message, .. } => (503, code, message.clone()),
    }
}

/// The complaints without their braces.
fn words(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let fields = body["errors"].as_object().into_iter().flatten();
    let all: Vec<String> = fields
        .flat_map(|(field, messages)| {
            let messages = messages.as_array().into_iter().flatten().filter_map(|message| message.as_str());
            messages.map(move |message| format!("{field}: {message}"))
        })
        .collect();
    all.join("; ")
}

fn body(status: u16, value: &impl Serialize) -> Answer {
    serde_json::to_vec(value).map(|body| (status, body)).map_err(|error| (500, "internal", error.to_string()))
}

fn now(answer: Answer) -> Reply {
    Reply::Now(response(answer))
}

/// Nothing here is for pages of other origins: no access-control headers.
fn response(answer: Answer) -> Response {
    let (status, body) = answer.unwrap_or_else(|(status, code, message)| {
        (status, json!({"error": {"code": code, "message": message}}).to_string().into_bytes())
    });
    let response =
        Response::new(status).header("cache-control", "no-store").header("cross-origin-resource-policy", "same-origin");
    match status {
        204 => response,
        405 => response.header("content-type", "application/json").header("allow", "GET, DELETE").body(body),
        503 => response.header("content-type", "application/json").header("retry-after", "1").body(body),
        _ => response.header("content-type", "application/json").body(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_in_one_line() {
        let invalid = thalweg_shapes_model::invalid::Invalid::shape("table", "has no name");
        assert_eq!(words(&invalid.body()), "table: has no name");
        assert_eq!(words(b"nonsense"), "");
    }
}
