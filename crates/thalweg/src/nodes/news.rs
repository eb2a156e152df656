//! What nodes ask each other for the sake of subscriptions: which streams have changed, where they end, and to append
//! the event of a wake to a stream.

use super::Served;
use super::refused;
use super::route::{is_byte_of_path, not_here};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_host::nodes::{self, Asked, Forwarder, Interrupt, Node, Place};
use thalweg_host::plain;
use thalweg_http::{Context, Headers, Method, Pending, Poll, Reply, Request, Response};
use thalweg_streams::GRANT;
use thalweg_subscriptions::spread::{Cluster, Desk, NewsRequest, Page, PageRequest, Source};
use thalweg_subscriptions::{Teller, spread};

/// The path for changes.
const NEWS: &str = "/v1/node/news";
/// The path for the streams of a unit.
const STREAMS: &str = "/v1/node/streams";
/// The path for the event of a wake; the path of the stream follows.
const TELL: &str = "/v1/node/tell";
/// The path of all streams.
const ROOT: &str = "/v1/stream/";
/// The longest wait for changes that a node grants to another.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long an answer of another node is waited for, beyond the wait that was asked for.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// How long the append of an event is tried.
const TELL_WITHIN: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the home of a name may move while an event looks for it.
const MOVES_MAX: usize = 256;

impl Served {
    /// Answers another node's question; `None` for other paths.
    pub(super) fn of_subscriptions(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Option<Reply> {
        let told = request.path.strip_prefix(TELL);
        if told.is_none() && ![NEWS, STREAMS].contains(&request.path) {
            return None;
        }
        if !self.is_from_node(request) {
            return Some(Reply::Now(nodes::not_a_node()));
        }
        if !matches!(request.method, Method::Post) {
            return Some(Reply::Now(refused(405, "method_not_allowed", "nodes POST here").header("allow", "POST")));
        }
        Some(match told {
            Some(path) => self.tell(path, request, cx),
            None if request.path == STREAMS => match parse::<PageRequest>(request) {
                Ok(asked) => Reply::Now(match self.desk.page_of(&asked) {
                    Ok(page) => answer(&page),
                    Err(why) => refused(503, "not_here", &why),
                }),
                Err(refusal) => Reply::Now(refusal),
            },
            None => match parse::<NewsRequest>(request) {
                Ok(asked) => {
                    let wait = Duration::from_millis(asked.wait_ms).min(WAIT_MAX);
                    let (desk, until) = (Arc::clone(&self.desk), Instant::now() + wait);
                    Reply::Later(Box::new(Waiting { desk, asked, until, units: None, rung: None }))
                }
                Err(refusal) => Reply::Now(refusal),
            },
        })
    }

    /// Appends the event of a wake to a stream of this node's.
    fn tell(&self, path: &str, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let unit = request.headers.get(nodes::UNIT).and_then(|unit| std::str::from_utf8(unit).ok()?.parse().ok());
        let Some(unit) = unit.filter(|unit| self.node.get().is_some_and(|node| node.serves(*unit))) else {
            return Reply::Now(not_here());
        };
        let mut headers: Vec<(&str, &[u8])> = vec![("content-type", b"application/json")];
        headers.extend(request.headers.get(GRANT).map(|grant| (GRANT, grant)));
        let append =
            Request { method: Method::Post, path, query: None, headers: Headers(&headers), body: request.body };
        self.door.handle_in(unit, &append, cx).unwrap_or_else(|| Reply::Now(not_here()))
    }
}

fn parse<T: DeserializeOwned>(request: &Request<'_>) -> Result<T, Response> {
    serde_json::from_slice(request.body).map_err(|error| refused(400, "bad_request", &error.to_string()))
}

fn answer<T: Serialize>(said: &T) -> Response {
    plain(200, "application/json").body(serde_json::to_vec(said).unwrap_or_default())
}

/// A question for changes while there are none.
struct Waiting {
    desk: Arc<Desk>,
    asked: NewsRequest,
    until: Instant,
    units: Option<Vec<(u64, u64, u64)>>,
    /// The count of rings for which it waits.
    rung: Option<u64>,
}

impl Pending for Waiting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        loop {
            let count = self.desk.rung();
            let (news, is_new) = self.desk.answer(&self.asked);
            let has_moved = self.units.as_ref().is_some_and(|before| *before != news.units);
            let left = self.until.saturating_duration_since(Instant::now());
            if is_new || has_moved || left.is_zero() || cx.stopping() {
                return Poll::Ready(Reply::Now(answer(&news)));
            }
            self.units = Some(news.units);
            if self.rung == Some(count) || self.desk.wait(count, || cx.waker()) {
                self.rung = Some(count);
                cx.wake_within(left.min(spread::LOOK_EVERY));
                return Poll::Wait;
            }
        }
    }
}

/// The desks of this node and of all others that live.
pub(crate) struct Desks(Arc<Served>);

impl Desks {
    pub(crate) fn of(served: &Arc<Served>) -> Self {
        Self(Arc::clone(served))
    }
}

impl Cluster for Desks {
    fn sources(&self) -> Vec<(String, Arc<dyn Source>)> {
        let Some(node) = self.0.node.get() else { return Vec::new() };
        let own = (node.announcement().instance, Arc::clone(&self.0.desk) as Arc<dyn Source>);
        let others = node.peers().into_iter().map(|peer| {
            let desk = Remote {
                served: Arc::clone(&self.0),
                address: peer.address,
                instance: peer.instance.clone(),
                interrupt: Interrupt::default(),
            };
            (peer.instance, Arc::new(desk) as Arc<dyn Source>)
        });
        std::iter::once(own).chain(others).collect()
    }
}

/// The desk of another node.
struct Remote {
    served: Arc<Served>,
    address: String,
    instance: String,
    interrupt: Interrupt,
}

impl Remote {
    fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        question: &Q,
        within: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<Option<A>, String> {
        let Some(node) = self.served.node.get() else { return Err("the node has not started".into()) };
        let body = Bytes::from(serde_json::to_vec(question).map_err(|error| error.to_string())?);
        match node.forwarder().post((&self.address, &self.instance), path, &[], body, within, interrupt) {
            Asked::Interrupted => Ok(None),
            Asked::Answer(200, answer) => serde_json::from_slice(&answer).map(Some).map_err(|error| error.to_string()),
            Asked::Answer(status, _) => Err(format!("it answered {status}")),
            Asked::Failed(why) => Err(why),
        }
    }
}

impl Source for Remote {
    fn news(&self, request: &NewsRequest) -> Result<Option<spread::News>, String> {
        let within = Duration::from_millis(request.wait_ms) + ANSWER_WITHIN;
        // An answer that is due at once is not worth an interruption.
        self.ask(NEWS, request, within, Some(&self.interrupt).filter(|_| request.wait_ms > 0))
    }

    fn page(&self, request: &PageRequest) -> Result<Page, String> {
        let page = self.ask(STREAMS, request, ANSWER_WITHIN, None)?;
        page.ok_or_else(|| "it was interrupted".into())
    }

    fn interrupt(&self) {
        self.interrupt.now();
    }
}

/// The way to wake streams.
pub(crate) fn teller(served: &Arc<Served>) -> Teller {
    let served = Arc::clone(served);
    Arc::new(move |name, event| {
        let Some(node) = served.node.get() else { return Err("the node has not started".into()) };
        tell(&served, node, name, event)
    })
}

/// Appends to the stream of a name, wherever it is. Waits for the owner of its unit.
fn tell(served: &Served, node: &Node, name: &str, event: &[u8]) -> Result<(), String> {
    let path = format!("{TELL}{ROOT}{}", as_path(name));
    let until = Instant::now() + TELL_WITHIN;
    let (mut unit, mut grant, mut moves) = (served.streams.streams.first_unit_of_name(name), 0_u64, 0);
    let mut why = "no node owns the unit of the wake stream".to_owned();
    loop {
        let owner = match node.place(unit) {
            Place::Here => Some(node.announcement()).map(|own| (own.address, own.instance)),
            Place::There { address, instance } => Some((address, instance)),
            Place::Nowhere => None,
        };
        if let Some((address, instance)) = owner {
            let more = [(nodes::UNIT, unit.to_string()), (GRANT, grant.to_string())];
            match told(node.forwarder(), (&address, &instance), &path, &more, Bytes::copy_from_slice(event)) {
                Told::Yes => return Ok(()),
                Told::Elsewhere(to, by) if moves < MOVES_MAX => {
                    (unit, grant, moves) = (to, by, moves + 1);
                    continue;
                }
                Told::Elsewhere(..) => return Err("the home of the wake stream moves all the time".into()),
                Told::No(refusal) => return Err(refusal),
                Told::Again(failed) => why = failed,
            }
        }
        if Instant::now() >= until {
            return Err(why);
        }
        std::thread::sleep(PAUSE);
    }
}

/// A stream's name, in its normal form, as a path that goes between nodes as it is.
fn as_path(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        if is_byte_of_path(byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

enum Told {
    Yes,
    Elsewhere(u64, u64),
    No(String),
    /// It may or may not have happened: workers take an event twice for one.
    Again(String),
}

fn told(forwarder: &Forwarder, node: (&str, &str), path: &str, more: &[(&str, String)], event: Bytes) -> Told {
    let (status, head) = match forwarder.post_for_head(node, path, more, event, ANSWER_WITHIN) {
        Ok(answered) => answered,
        Err(why) => return Told::Again(why),
    };
    let number = |name: &str| head.get(name)?.to_str().ok()?.parse().ok();
    match (status, number(nodes::UNIT).zip(number(GRANT))) {
        (200..300, _) => Told::Yes,
        (421, Some((unit, grant))) => Told::Elsewhere(unit, grant),
        (421 | 429 | 500.., _) => Told::Again(format!("the node of the wake stream answered {status}")),
        _ => Told::No(format!("the wake stream takes no JSON: the append was answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_name_in_a_url() {
        assert_eq!(as_path("a/b-c_%C3%A9"), "a/b-c_%C3%A9");
        assert_eq!(as_path("wk?zz"), "wk%3Fzz");
        assert_eq!(as_path("a\\..\\b#c"), "a%5C..%5Cb%23c");
    }
}
