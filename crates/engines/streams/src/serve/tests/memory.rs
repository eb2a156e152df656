//! Answers that nobody takes.

use super::support::Rig;
use crate::serve::StreamsConfig;
use crate::serve::turn::Answer;
use thalweg_base::Millis;
use thalweg_log::When;
use thalweg_wire::http::Method::{Get, Post};

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

#[test]
fn slow_readers_cannot_take_all_memory() {
    let rig = Rig::with(StreamsConfig { unsent_bytes_max: 1 << 20, ..StreamsConfig::default() });
    let bound = (1 << 20) + rig.logs.options().chunk_cache_bytes;
    let count = bound / 200_000 + 10;
    for n in 0..count {
        rig.put(&format!("s{n}"), "text/plain", &"x".repeat(200_000));
    }
    rig.put("small", "text/plain", "x");
    // Of what stands in the journal, the journal counts the memory.
    while rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap() {}
    rig.get("small");
    // An answer that is not read is held.
    let mut answers = Vec::new();
    let mut refused = 0;
    for n in 0..count {
        match rig.ask(Get, &format!("s{n}"), &[], b"") {
            Answer::Response(_, response) if response.status == 200 => answers.push(response),
            Answer::Response(_, response) => {
                refused += 1;
                let head = String::from_utf8(response.head).unwrap();
                assert!(response.status == 503 && head.contains("Retry-After: 1"), "{head}");
            }
            _ => panic!("it is in memory"),
        }
        assert!(rig.logs.held_bytes() <= bound + 200_000);
    }
    assert!(refused >= 4 && answers.len() > 2, "{refused}");
    assert_eq!(rig.get("s0").code(), "unsent_full");
    assert_eq!(rig.get("__ds/streams").code(), "unsent_full");
    let mut live = rig.live("s0?offset=-1&live=sse");
    assert_eq!(rig.pull(&mut live), (String::new(), false), "a live reader waits");
    // Writers and small reads go on.
    assert_eq!(rig.send(Post, "s0", &[TEXT], b"y").status, 204);
    assert_eq!(rig.get("small").text(), "x");
    drop(answers);
    assert_eq!(rig.logs.held_bytes(), 0);
    assert_eq!(rig.get("s0").body.len(), 200_000);
    assert!(rig.pull(&mut live).0.len() > 200_000);
}

#[test]
fn readers_of_one_chunk_share_it() {
    let rig = Rig::with(StreamsConfig { unsent_bytes_max: 1 << 20, ..StreamsConfig::default() });
    rig.put("a", "text/plain", &"x".repeat(200_000));
    let mut answers = Vec::new();
    for _ in 0..200 {
        let Answer::Response(_, response) = rig.ask(Get, "a", &[], b"") else { panic!() };
        assert_eq!(response.status, 200);
        answers.push(response);
    }
    assert!(rig.logs.held_bytes() <= 400_000, "{}", rig.logs.held_bytes());
}
