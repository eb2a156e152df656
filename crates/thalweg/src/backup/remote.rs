//! A running server as a source: pulls, piece by piece, over HTTP. The server holds the cut for as long as pieces are asked for.

use super::{Listing, Source};
use anyhow::{Context, bail};
use std::time::Duration;
use ureq::Agent;
use ureq::http::Response;

/// For one request and its answer: the server may have to wait for its disk.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A listing has a short line per object.
const LISTING_BYTES_MAX: u64 = 1 << 30;
/// More than a server gives at once.
const PIECE_BYTES_MAX: u64 = 16 << 20;

pub(super) struct Server {
    agent: Agent,
    base: String,
    authorization: Option<String>,
    backup: String,
}

impl Server {
    /// `url` is the server's, such as `http://127.0.0.1:4437`.
    pub(super) fn new(url: &str, token: Option<&str>) -> Self {
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
        Self {
            agent: config.build().into(),
            base: format!("{}{}", url.trim_end_matches('/'), super::SERVED),
            authorization: token.map(|token| format!("Bearer {token}")),
            backup: String::new(),
        }
    }

    fn body(answer: Response<ureq::Body>, max: u64) -> anyhow::Result<Vec<u8>> {
        let status = answer.status().as_u16();
        let body = answer.into_body().into_with_config().limit(max).read_to_vec()?;
        match status {
            200..=299 => Ok(body),
            404 if message(&body).is_none() => bail!("the server answered 404: is it a thalweg that can be backed up?"),
            _ => bail!(
                "the server answered {status}: {}",
                message(&body).unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned())
            ),
        }
    }
}

/// What an error's body says.
fn message(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(body.get("error")?.get("message")?.as_str()?.to_owned())
}

impl Source for Server {
    fn begin(&mut self) -> anyhow::Result<Listing> {
        let mut request = self.agent.post(&self.base);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let answer = request.send_empty().with_context(|| format!("cannot ask {}", self.base))?;
        let listing: Listing = serde_json::from_slice(&Self::body(answer, LISTING_BYTES_MAX)?)
            .context("the server's listing cannot be understood")?;
        // It becomes a part of paths.
        if listing.backup.is_empty() || !listing.backup.bytes().all(|b| b.is_ascii_alphanumeric()) {
            bail!("the server's listing has no usable name");
        }
        self.backup.clone_from(&listing.backup);
        Ok(listing)
    }

    fn read(&mut self, path: &str, at: u64) -> anyhow::Result<Vec<u8>> {
        let mut request = self.agent.get(format!("{}/{}/{path}?at={at}", self.base, self.backup));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        Self::body(request.call()?, PIECE_BYTES_MAX)
    }

    fn end(&mut self) {
        if self.backup.is_empty() {
            return;
        }
        let mut request = self.agent.delete(format!("{}/{}", self.base, self.backup));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        // If it does not get there, the server lets go by itself a little later.
        if let Err(error) = request.call() {
            tracing::debug!(%error, "the server was not told that the backup is over");
        }
        self.backup.clear();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
