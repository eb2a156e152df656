//! The list of the streams of all nodes: each lists those of its units, and the node that was asked merges the pages.

use super::{Served, refused};
use serde_json::{Value, json};
use std::sync::Arc;
use thalweg_host::nodes::{self, Forwarded, Forwarding, Node, OwnedRequest, Place};
use thalweg_http::{Body, Context, Method, Pending, Poll, Reply, Request, Response};
use thalweg_streams::listed_prefix;

impl Served {
    pub(super) fn is_list(&self, request: &Request<'_>) -> bool {
        matches!(request.method, Method::Get) && listed_prefix(request.path, request.query, "/v1/stream/").is_some()
    }

    pub(super) fn list(self: &Arc<Self>, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let Some(node) = self.node.get() else { return Reply::Now(incomplete()) };
        if (0..node.units()).any(|unit| node.place(unit) == Place::Nowhere) || !is_current(node) {
            return Reply::Now(incomplete());
        }
        let own = match self.streams.streams.handle(request, cx) {
            Reply::Now(response) => return Reply::Now(response),
            Reply::Held(..) => return Reply::Now(incomplete()),
            Reply::Later(pending) => pending,
        };
        let owned = OwnedRequest::of(request);
        let secret = [(nodes::SECRET, node.secret().to_owned())];
        let others = node.peers();
        let others = others.iter().filter(|peer| !peer.units.is_empty());
        let others =
            others.map(|peer| node.forwarder().send_for(&peer.address, &owned, &secret, PAGE_BYTES_MAX)).collect();
        let limit = request.query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("limit="));
        let limit = limit.and_then(|limit| limit.parse().ok()).unwrap_or(1_000);
        Reply::Later(Box::new(Merging { own: Some(own), others, pages: Vec::new(), limit }))
    }
}

/// The longest page of another node that is taken.
const PAGE_BYTES_MAX: u64 = 32 << 20;

/// Whether the node has a lease for all that it would list.
pub(super) fn is_current(node: &Node) -> bool {
    node.announcement().units.iter().all(|(unit, _)| node.serves(*unit))
}

pub(super) fn incomplete() -> Response {
    refused(
        503,
        "no_owner",
        "not every unit has an owner just now, so that the list would lack streams; retry in a second",
    )
}

struct Merging {
    own: Option<Box<dyn Pending>>,
    others: Vec<Forwarding>,
    pages: Vec<Value>,
    limit: usize,
}

impl Merging {
    /// Takes a page, or returns the refusal that came instead.
    fn take(&mut self, response: Response) -> Result<(), Response> {
        let page = match &response.body {
            Body::Bytes(bytes) if response.status == 200 => serde_json::from_slice(bytes).ok(),
            _ => None,
        };
        match page {
            Some(page) => {
                self.pages.push(page);
                Ok(())
            }
            None if response.status >= 400 => Err(response),
            None => Err(incomplete()),
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Result<Option<Response>, Response> {
        if let Some(own) = &mut self.own
            && let Poll::Ready(reply) = own.poll(cx)
        {
            match reply {
                Reply::Later(next) => self.own = Some(next),
                Reply::Now(response) | Reply::Held(_, response) => {
                    self.own = None;
                    self.take(response)?;
                }
            }
        }
        let mut waiting = Vec::new();
        for mut other in std::mem::take(&mut self.others) {
            match other.take(|| cx.waker()) {
                None => waiting.push(other),
                Some(Forwarded::Response(response)) => self.take(response)?,
                Some(Forwarded::Unreachable(_) | Forwarded::Broken(_)) => return Err(incomplete()),
            }
        }
        self.others = waiting;
        Ok((self.own.is_none() && self.others.is_empty()).then(|| self.merged()))
    }

    fn merged(&mut self) -> Response {
        let mut streams: Vec<Value> = Vec::new();
        // A page that is cut says nothing of names behind its last one, which it may have left out.
        let cut = self.pages.iter().filter_map(|page| page["next"].as_str()).min().map(str::to_owned);
        for page in &mut self.pages {
            if let Value::Array(found) = page["streams"].take() {
                streams.extend(found);
            }
        }
        let name = |stream: &Value| stream["name"].as_str().unwrap_or_default().to_owned();
        streams.sort_by_cached_key(name);
        streams.dedup_by(|a, b| a["name"] == b["name"]);
        if let Some(cut) = &cut {
            streams.retain(|stream| name(stream) <= *cut);
        }
        let is_long = streams.len() > self.limit;
        streams.truncate(self.limit);
        let next = if is_long { streams.last().map(name) } else { cut };
        let body = json!({ "streams": streams, "next": next }).to_string();
        Response::new(200)
            .header("access-control-allow-origin", "*")
            .header("cache-control", "no-store")
            .header("content-type", "application/json")
            .body(body)
    }
}

impl Pending for Merging {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        match self.step(cx) {
            Ok(Some(response)) | Err(response) => Poll::Ready(Reply::Now(response)),
            Ok(None) => Poll::Wait,
        }
    }
}
