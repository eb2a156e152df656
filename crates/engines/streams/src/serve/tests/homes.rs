//! Names of nodes: one home each, wherever forks move it.

use super::support::{Got, Recorded, Rig};
use crate::serve::home::{GRANT, SOURCE_UNIT};
use crate::serve::{Streams, StreamsConfig};
use std::sync::Arc;
use thalweg_http::Method::{self, Delete, Get, Post, Put};
use thalweg_http::{Context, Headers, Poll, Reply, Request, Waker};
use thalweg_journal::Journal;

const UNITS: u64 = 4;
const TEXT: (&str, &str) = ("Content-Type", "text/plain");

struct Nodes {
    rig: Rig,
    journals: Vec<Arc<Recorded>>,
}

impl Nodes {
    fn new() -> Self {
        let rig = Rig::with(StreamsConfig { units_of_nodes: UNITS as usize, ..StreamsConfig::default() });
        let journals = (0..UNITS).map(|unit| rig.join_unit(unit)).collect();
        Self { rig, journals }
    }

    fn streams(&self) -> &Streams {
        &self.rig.streams
    }

    fn first(&self, name: &str) -> u64 {
        self.streams().first_unit(&format!("/v1/stream/{name}")).unwrap()
    }

    /// The answer of one unit.
    fn ask(
        &self,
        unit: u64,
        (grant, source): (u64, Option<u64>),
        method: Method<'_>,
        name: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Got {
        let path = format!("/v1/stream/{name}");
        let grant = grant.to_string();
        let source = source.map(|source| source.to_string());
        let mut all: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        all.push((GRANT, grant.as_bytes()));
        all.extend(source.iter().map(|source| (SOURCE_UNIT, source.as_bytes())));
        let request = Request { method, path: &path, query: None, headers: Headers(&all), body };
        let waker = || Waker::from_fn(|| {});
        let mut cx = Context::detached(self.rig.now.get(), &waker);
        let mut reply = self.streams().handle_in(unit, &request, &mut cx).unwrap();
        self.journals.iter().for_each(|journal| journal.kick());
        loop {
            match reply {
                Reply::Now(response) | Reply::Held(_, response) => return Got::of(response),
                Reply::Later(mut pending) => match pending.poll(&mut cx) {
                    Poll::Ready(next) => reply = next,
                    Poll::Wait => reply = Reply::Later(pending),
                },
            }
        }
    }

    /// The answer of the name's home, the unit that gave it, and its grant.
    fn follow(&self, method: Method<'_>, name: &str, headers: &[(&str, &str)], body: &[u8]) -> (Got, u64, u64) {
        let source = headers.iter().find(|(header, _)| *header == "Stream-Forked-From");
        let source = source.map(|(_, path)| self.follow(Get, path.strip_prefix("/v1/stream/").unwrap(), &[], b"").1);
        let (mut unit, mut grant) = (self.first(name), 0);
        for _ in 0..=UNITS {
            let got = self.ask(unit, (grant, source), method, name, headers, body);
            let number = |field: &str| got.get(field).map(|text| text.parse().unwrap());
            match (got.status, number("Thalweg-Unit"), number("Thalweg-Grant")) {
                (421, Some(to), Some(with)) => (unit, grant) = (to, with),
                _ => return (got, unit, grant),
            }
        }
        panic!("{name} has no home");
    }

    /// A name whose first home is this unit.
    fn name(&self, unit: u64, prefix: &str) -> String {
        (0..).map(|n| format!("{prefix}{n}")).find(|name| self.first(name) == unit).unwrap()
    }
}

#[test]
fn a_fork_is_where_its_source_is_and_its_name_is_found_there() {
    let nodes = Nodes::new();
    let (source, fork) = (nodes.name(1, "s"), nodes.name(2, "f"));
    assert_eq!(nodes.follow(Put, &source, &[TEXT], b"content").0.status, 201);
    let from = format!("/v1/stream/{source}");
    let (made, unit, grant) = nodes.follow(Put, &fork, &[("Stream-Forked-From", &from)], b"");
    assert_eq!((made.status, unit, grant), (201, 1, 1));
    for (method, body, status) in [(Get, &b""[..], 200), (Post, b" more", 204), (Get, b"", 200)] {
        let (got, unit, _) = nodes.follow(method, &fork, &[TEXT], body);
        assert_eq!((got.status, unit), (status, 1), "{method:?}");
    }
    assert_eq!(nodes.follow(Get, &fork, &[], b"").0.text(), "content more");
    // Made again, it is the same.
    assert_eq!(nodes.follow(Put, &fork, &[("Stream-Forked-From", &from)], b"").0.status, 200);
    // Deleted, its name stays where it was, until it is a fork of something else.
    assert_eq!(nodes.follow(Delete, &fork, &[], b"").0.status, 204);
    assert_eq!(nodes.follow(Get, &fork, &[], b"").0.status, 404);
    let (made, unit, _) = nodes.follow(Put, &fork, &[TEXT], b"plain");
    assert_eq!((made.status, unit), (201, 1));
}

/// Whatever comes late, no two units have the name.
#[test]
fn a_name_that_moves_on_is_not_made_where_it_was() {
    let nodes = Nodes::new();
    let (a, b, name) = (nodes.name(1, "a"), nodes.name(3, "b"), nodes.name(2, "x"));
    for source in [&a, &b] {
        nodes.follow(Put, source, &[TEXT], b"x");
    }
    let from = |source: &str| format!("/v1/stream/{source}");
    let mut grants = Vec::new();
    for source in [&a, &b, &a, &b] {
        let (made, unit, grant) = nodes.follow(Put, &name, &[("Stream-Forked-From", &from(source))], b"");
        assert_eq!((made.status, unit), (201, nodes.first(source)));
        grants.push(grant);
        assert_eq!(nodes.follow(Delete, &name, &[], b"").0.status, 204);
    }
    assert!(grants.is_sorted() && grants[0] == 1 && grants[3] == 4, "{grants:?}");
    // With the grants of before, in the units of before, and without any: everybody is sent on.
    for (unit, grant) in [(1, 1), (1, 3), (2, 0), (0, 0)] {
        let got = nodes.ask(unit, (grant, None), Put, &name, &[TEXT], b"late");
        assert_eq!(got.status, 421, "unit {unit} with grant {grant}: {got:?}");
    }
    // A grant that the home has given once more than it needs.
    assert_eq!(nodes.ask(3, (4, None), Put, &name, &[TEXT], b"here").status, 201);
    assert_eq!(nodes.follow(Get, &name, &[], b"").0.text(), "here");
    // While there is a stream of the name, it does not move.
    let (got, unit, _) = nodes.follow(Put, &name, &[("Stream-Forked-From", &from(&a))], b"");
    assert_eq!((got.code().as_str(), unit), ("exists_differently", 3));
}

#[test]
fn a_unit_that_leaves_answers_what_waits_and_nothing_else() {
    let nodes = Nodes::new();
    let name = nodes.name(1, "s");
    nodes.follow(Put, &name, &[TEXT], b"");
    nodes.journals[1].stop_syncing();
    let path = format!("/v1/stream/{name}");
    let headers: [(&str, &[u8]); 1] = [("Content-Type", b"text/plain")];
    let request = Request { method: Post, path: &path, query: None, headers: Headers(&headers), body: b"x" };
    let waker = || Waker::from_fn(|| {});
    let mut cx = Context::detached(nodes.rig.now.get(), &waker);
    let Some(Reply::Later(mut append)) = nodes.streams().handle_in(1, &request, &mut cx) else { panic!() };
    assert!(matches!(append.poll(&mut cx), Poll::Wait));
    nodes.streams().leave_unit(1);
    assert!(nodes.streams().handle_in(1, &request, &mut cx).is_none());
    // Its journal ends in order.
    nodes.journals[1].sync();
    nodes.journals[1].kick();
    let Poll::Ready(Reply::Now(response)) = append.poll(&mut cx) else { panic!("it still waits") };
    assert_eq!(response.status, 204);
}
