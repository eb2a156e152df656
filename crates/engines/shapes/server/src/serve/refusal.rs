//! Every answer that is not a success. Status, body and wording are on the wire; `docs/protocol/refusals.md` lists
//! them.

use super::access::{Denied, Narrowed};
use super::admission::Overloaded;
use serde_json::json;
use thalweg_shapes_core::encode::message::MUST_REFETCH;
use thalweg_shapes_core::request::params::RequestError;
use thalweg_shapes_core::request::raw_params::BodyError;
use thalweg_shapes_model::failure::{Beyond, Failure};
use thalweg_shapes_model::invalid::Invalid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400: parameters are wrong, each of which is named.
    Invalid(Invalid),
    /// 400: a DELETE names a definition, and the handle of another.
    Mismatch,
    /// 400 or 413: the body is no set of parameters.
    Body(BodyError),
    /// 401
    Secret,
    /// 401 or 403: the token does not allow it.
    Denied(Denied),
    /// 404: no resource has this address.
    Unknown,
    /// 404: there is no such shape to delete.
    NoShape,
    /// 405: shapes are not deleted by clients.
    NoDelete,
    /// 409: start again, with this handle if it is known.
    MustRefetch(Option<String>),
    /// 500: stored data cannot be read.
    Unreadable(String),
    /// 503
    Overloaded(Overloaded),
    /// 503: Postgres cannot be reached.
    Database,
    /// 503: the server is starting, or has lost its database for a while.
    NotReady(String),
    /// 503: the rows could not be copied.
    Snapshot(String),
    /// 503: anything else that may be better later.
    Unavailable { code: &'static str, message: String, retry_after_s: u32 },
}

impl From<&Failure> for Refusal {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Invalid(invalid) => Self::Invalid(invalid.clone()),
            Failure::Rotated => Self::MustRefetch(None),
            Failure::Beyond(beyond) => beyond.clone().into(),
            Failure::Unavailable { code: "database_unreachable", .. } => Self::Database,
            Failure::Unavailable { code: "snapshot_error", message, .. } => Self::Snapshot(message.clone()),
            Failure::Unavailable { code, message, retry_after_s } => {
                Self::Unavailable { code, message: message.clone(), retry_after_s: *retry_after_s }
            }
        }
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Invalid(invalid) => Self::Invalid(invalid),
            RequestError::Body(error) => Self::Body(error),
        }
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<Beyond> for Refusal {
    fn from(beyond: Beyond) -> Self {
        let ((status, code), message) = (beyond.mapping(), beyond.to_string());
        Self::Denied(Denied { status, code, message })
    }
}

impl From<Narrowed> for Refusal {
    fn from(narrowed: Narrowed) -> Self {
        match narrowed {
            Narrowed::Beyond(beyond) => beyond.into(),
            Narrowed::Invalid(invalid) => invalid.into(),
        }
    }
}

impl From<Overloaded> for Refusal {
    fn from(overloaded: Overloaded) -> Self {
        Self::Overloaded(overloaded)
    }
}

impl Refusal {
    /// The client is ahead of the shape, and waiting did not help.
    pub(crate) fn out_of_bounds() -> Self {
        Self::Invalid(Invalid::shape("offset", "out of bounds for this shape"))
    }

    /// The shape that the request waits for has not begun yet.
    pub(crate) fn still_made() -> Self {
        Self::Unavailable {
            code: "shape_not_begun",
            message: "The shape has not begun yet because the database is slow to answer, please retry".to_owned(),
            retry_after_s: 5,
        }
    }

    /// Answers that clients do not take hold as much memory as they may.
    pub(crate) fn unsent() -> Self {
        Self::Unavailable {
            code: "unsent_full",
            message: "Answers that clients do not take hold too much memory, please retry".to_owned(),
            retry_after_s: 1,
        }
    }

    /// The same for a client that may not see every row: Postgres's message about a row that it failed on may hold the
    /// row.
    pub(crate) fn without_values(self) -> Self {
        match self {
            Self::Invalid(invalid) => Self::Invalid(invalid.without_values()),
            Self::Snapshot(_) => Self::Snapshot("The rows could not be read, please retry".to_owned()),
            other => other,
        }
    }

    #[must_use]
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) | Self::Mismatch | Self::Body(BodyError::NotJson(_) | BodyError::NotObject) => 400,
            Self::Secret => 401,
            Self::Denied(denied) => denied.status,
            Self::Unknown | Self::NoShape => 404,
            Self::NoDelete => 405,
            Self::MustRefetch(_) => 409,
            Self::Body(BodyError::TooLarge) => 413,
            Self::Unreadable(_) => 500,
            Self::Overloaded(_) | Self::Database | Self::NotReady(_) | Self::Snapshot(_) | Self::Unavailable { .. } => {
                503
            }
        }
    }

    /// Seconds until it is worth trying again. `random` spreads clients that were refused together.
    #[must_use]
    pub(crate) fn retry_after_s(&self, random: u32) -> Option<u32> {
        match self {
            Self::Overloaded(_) => Some(6 + random % 5),
            Self::Database | Self::Snapshot(_) => Some(10),
            Self::NotReady(_) => Some(5),
            Self::Unavailable { retry_after_s, .. } => Some(*retry_after_s),
            _ => None,
        }
    }

    /// It is expected to happen: clients need not report it.
    #[must_use]
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Overloaded(_) | Self::Snapshot(_) | Self::Unavailable { .. })
    }

    #[must_use]
    pub(crate) fn body(&self) -> Vec<u8> {
        let body = match self {
            Self::Invalid(invalid) => return invalid.body(),
            Self::MustRefetch(_) => return MUST_REFETCH.to_vec(),
            Self::Unknown => return b"Not found".to_vec(),
            Self::Mismatch => json!({ "message": MISMATCH }),
            Self::Body(BodyError::TooLarge) => json!({ "error": "Request body too large" }),
            Self::Body(BodyError::NotJson(why)) => json!({ "error": "Invalid JSON in request body", "details": why }),
            Self::Body(BodyError::NotObject) => json!({ "error": "Request body must be a JSON object" }),
            Self::Secret => json!({ "message": "Unauthorized - Invalid API secret" }),
            Self::Denied(denied) => json!({ "code": denied.code, "message": denied.message }),
            Self::NoShape => json!({ "message": "No existing shape found" }),
            Self::NoDelete => json!({ "message": "DELETE not allowed" }),
            Self::Unreadable(why) => json!({ "message": format!("Unable to retrieve shape log: {why}") }),
            Self::Overloaded(overloaded) => {
                json!({ "code": "concurrent_request_limit_exceeded", "message": overloaded.to_string() })
            }
            Self::Database => json!({ "code": "database_unreachable", "error": "Database is unreachable" }),
            Self::NotReady(message) | Self::Snapshot(message) => json!({ "message": message }),
            Self::Unavailable { code, message, .. } => json!({ "code": code, "message": message }),
        };
        body.to_string().into_bytes()
    }

    /// `Unknown` is text for people, all others are JSON.
    #[must_use]
    pub(crate) fn content_type(&self) -> &'static str {
        if matches!(self, Self::Unknown) { "text/plain; charset=utf-8" } else { "application/json; charset=utf-8" }
    }
}

const MISMATCH: &str = "The specified shape definition and handle do not match. \
Please ensure the shape definition is correct or omit the shape handle from the request to obtain a new one.";
