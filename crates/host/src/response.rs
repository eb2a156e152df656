//! Answers of the host itself.

use thalweg_http::Response;

/// The headers that every answer carries.
pub fn plain(status: u16, content_type: &str) -> Response {
    Response::new(status)
        .header("content-type", content_type)
        .header("cache-control", "no-store")
        .header("cross-origin-resource-policy", "cross-origin")
        .header("access-control-allow-origin", "*")
}
