//! A running server as a source: pulls, piece by piece, over HTTP. The server holds the cut while pieces are requested.

use super::{Listing, Source};
use anyhow::{Context, bail};
use std::io::Read;
use thalweg_cli::{Call, Failure, PATIENCE, Server, Target};
use ureq::http::Method;

/// A listing has a short line per object.
const LISTING_BYTES_MAX: u64 = 1 << 30;
/// More than a server gives at once.
const PIECE_BYTES_MAX: u64 = 16 << 20;

pub(super) struct Remote {
    server: Server,
    backup: String,
}

impl Remote {
    pub(super) fn new(target: &Target) -> Result<Self, Failure> {
        Ok(Self { server: Server::new(target, Some(PATIENCE))?, backup: String::new() })
    }

    fn at(&self, rest: &str) -> String {
        self.server.at(&format!("{}{rest}", super::SERVED))
    }
}

fn body(mut answer: thalweg_cli::Answer, max: u64) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    answer.body().take(max + 1).read_to_end(&mut body).context("the answer was cut off")?;
    if body.len() as u64 > max {
        bail!("the answer is longer than {max} bytes");
    }
    Ok(body)
}

/// A server of another product answers 404 to unknown paths.
fn is_no_thalweg(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(mut refusal) if refusal.status == 404 && refusal.code.is_none() => {
            refusal.message = "is it a thalweg that can be backed up?".to_owned();
            Failure::Refused(refusal)
        }
        failure => failure,
    }
}

impl Source for Remote {
    fn begin(&mut self) -> anyhow::Result<Listing> {
        // Asked twice, the second one would meet the hold of the first.
        let answer = self.server.ask_once(&Call::new(Method::POST, self.at(""))).map_err(is_no_thalweg)?;
        let listing: Listing = serde_json::from_slice(&body(answer, LISTING_BYTES_MAX)?)
            .context("the server's listing cannot be understood")?;
        // The id becomes a part of paths.
        if listing.backup.is_empty() || !listing.backup.bytes().all(|b| b.is_ascii_alphanumeric()) {
            bail!("the server's listing has no usable name");
        }
        self.backup.clone_from(&listing.backup);
        Ok(listing)
    }

    fn read(&mut self, path: &str, at: u64) -> anyhow::Result<Vec<u8>> {
        let url = self.at(&format!("/{}/{path}?at={at}", self.backup));
        body(self.server.ask(&Call::new(Method::GET, url))?, PIECE_BYTES_MAX)
    }

    fn end(&mut self) {
        if self.backup.is_empty() {
            return;
        }
        let url = self.at(&format!("/{}", self.backup));
        // If the request is lost, the server releases the cut by itself a little later.
        if let Err(error) = self.server.ask_once(&Call::new(Method::DELETE, url)) {
            tracing::debug!(%error, "the server did not get the end of the backup");
        }
        self.backup.clear();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end();
    }
}
