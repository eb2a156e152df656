//! Streams of both durabilities on one server: the failures that each survives, and its cost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use support::Server;

const TEXT: (&str, &str) = ("content-type", "text/plain");

fn create(server: &Server, name: &str, durability: Option<&str>) {
    let said = durability.map(|word| ("stream-durability", word));
    let headers: Vec<_> = [TEXT].into_iter().chain(said).collect();
    let (head, _) = server.ask("PUT", &format!("/v1/stream/{name}"), &headers, b"");
    assert_eq!(head.status(), 201, "creating {name}");
}

fn syncs(server: &Server) -> u64 {
    let page = String::from_utf8(server.get("/metrics").1).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("thalweg_journal_syncs_total ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn each_stream_survives_what_it_promises_whatever_the_server_does() {
    for (server_is, unsaid_moves) in [("durable", false), ("buffered", true)] {
        let work = tempfile::tempdir().unwrap();
        let data = work.path().join("data");
        let flags = ["--durability", server_is];
        let server = Server::start(&data, &flags);
        let kinds = [("b", Some("buffered"), true), ("d", Some("durable"), false), ("u", None, unsaid_moves)];
        for (name, said, _) in kinds {
            create(&server, name, said);
            server.append(name, b"one;");
            let (head, _) = server.ask("HEAD", &format!("/v1/stream/{name}"), &[], b"");
            let told = head.headers()["stream-durability"].to_str().unwrap();
            assert_eq!(told, said.unwrap_or(server_is));
        }
        server.append("b", b"last");
        let offsets = kinds.map(|(name, ..)| server.next_offset(name));
        server.kill();

        // Death of the process takes nothing, and no offset is refused.
        let server = Server::start(&data, &flags);
        assert_eq!(server.read("b"), "one;last");
        for ((name, ..), offset) in kinds.iter().zip(&offsets) {
            assert_eq!(server.get(&format!("/v1/stream/{name}?offset={offset}")).0, 200);
        }
        server.kill();

        // As after a crash of the machine, which may have lost buffered appends.
        let run = fs::read_to_string(data.join("RUN")).unwrap();
        assert!(run.starts_with(server_is), "{run}");
        fs::write(data.join("RUN"), format!("{server_is} another-boot\n")).unwrap();
        for _ in 0..2 {
            let server = Server::start(&data, &flags);
            for ((name, _, moves), offset) in kinds.iter().zip(&offsets) {
                let (status, body) = server.get(&format!("/v1/stream/{name}?offset={offset}"));
                let body = String::from_utf8(body).unwrap();
                assert_eq!(status == 400 && body.contains("stale_offset"), *moves, "{name} on {server_is}: {body}");
            }
            assert_eq!(server.read("b"), "one;last");
            server.kill();
        }
    }
}

#[test]
fn buffered_appends_make_no_syncs_of_their_own() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(&work.path().join("data"), &["--settle-after", "1h"]);
    create(&server, "b", Some("buffered"));
    create(&server, "d", Some("durable"));
    let count = |name: &str| {
        let before = syncs(&server);
        for _ in 0..200 {
            server.append(name, b"x");
        }
        syncs(&server) - before
    };
    let (durable, buffered) = (count("d"), count("b"));
    assert!(durable >= 200, "{durable}");
    // One in 200 ms.
    assert!(buffered < 100, "{buffered}");
}
