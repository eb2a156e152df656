//! The list of the streams of all nodes: each lists those of its units, and the node that was asked merges the pages.

use super::route::field;
use super::{Served, refused};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_host::nodes::{Forwarded, Forwarding, OwnedRequest, Place};
use thalweg_http::{Body, Context, Method, Pending, Poll, Reply, Request, Response};
use thalweg_streams::listed_prefix;

impl Served {
    pub(super) fn is_list(&self, request: &Request<'_>) -> bool {
        matches!(request.method, Method::Get) && listed_prefix(request.path, request.query, "/v1/stream/").is_some()
    }

    pub(super) fn list(self: &Arc<Self>, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let Some(node) = self.node.get() else { return Reply::Now(incomplete()) };
        if (0..node.units()).any(|unit| node.place(unit) == Place::Nowhere) {
            return Reply::Now(incomplete());
        }
        let own = match self.own_list(request, cx) {
            Reply::Now(response) => return Reply::Now(response),
            Reply::Held(..) => return Reply::Now(incomplete()),
            Reply::Later(pending) => pending,
        };
        let Some(owned) = OwnedRequest::of(request, &self.budget) else { return Reply::Now(incomplete()) };
        let others = node.peers();
        let others = others.iter().filter(|peer| !peer.units.is_empty());
        let others = others
            .map(|peer| node.forwarder().send_for((&peer.address, &peer.instance), &owned, &[], PAGE_BYTES_MAX))
            .collect();
        let limit = request.query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("limit="));
        let limit = limit.and_then(|limit| limit.parse().ok()).unwrap_or(1_000);
        let units = (0..node.units()).collect();
        Reply::Later(Box::new(Merging { own: Some(own), others, pages: Vec::new(), missing: units, limit }))
    }

    /// The list of the streams of this node's units. The field [`LISTED`] of the answer names them.
    pub(super) fn own_list(self: &Arc<Self>, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let units = self.leased();
        match self.streams.streams.handle(request, cx) {
            Reply::Later(page) => Reply::Later(Box::new(Listing { served: Arc::clone(self), units, page })),
            reply => reply,
        }
    }
}

/// The header field of a page of a list that names the units whose streams are in it.
const LISTED: &str = "thalweg-listed-units";

/// A page of the streams of these units. It counts for those that this node has owned from before it was made to after.
struct Listing {
    served: Arc<Served>,
    units: Vec<(u64, u64)>,
    page: Box<dyn Pending>,
}

impl Pending for Listing {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        match self.page.poll(cx) {
            Poll::Ready(Reply::Now(response)) if response.status == 200 => {
                let now = self.served.leased();
                let units = self.units.iter().filter(|unit| now.contains(unit)).map(|(unit, _)| unit.to_string());
                Poll::Ready(Reply::Now(response.header(LISTED, units.collect::<Vec<_>>().join(","))))
            }
            Poll::Ready(Reply::Later(page)) => {
                self.page = page;
                self.poll(cx)
            }
            polled => polled,
        }
    }
}

/// The longest page of another node that is taken.
const PAGE_BYTES_MAX: u64 = 32 << 20;

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
    /// Units whose streams no page has.
    missing: BTreeSet<u64>,
    limit: usize,
}

impl Merging {
    /// Takes a page, or returns the refusal that came instead.
    fn take(&mut self, response: Response) -> Result<(), Response> {
        let page = match &response.body {
            Body::Bytes(bytes) if response.status == 200 => serde_json::from_slice(bytes).ok(),
            _ => None,
        };
        let listed = field(&response, LISTED).unwrap_or_default();
        let listed: BTreeSet<u64> = listed.split(',').filter_map(|unit| unit.parse().ok()).collect();
        self.missing.retain(|unit| !listed.contains(unit));
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
        if self.own.is_some() || !self.others.is_empty() {
            return Ok(None);
        }
        if self.missing.is_empty() { Ok(Some(self.merged())) } else { Err(incomplete()) }
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
