//! Requests about a running server: its state, its content, its abilities.

use crate::rig::Rig;

#[test]
fn status_shows_health_and_figures_and_its_code_is_that_of_health() {
    let rig = Rig::start(&[]);
    rig.append("a", "some words\n");
    let text = rig.ok("status");
    for part in ["health       ok", "streams      1;", " 0 requests/s", "settling", "memory", "damage"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&rig.ok("status --json")).unwrap();
    assert_eq!((&json["healthy"], &json["metrics"]["thalweg_streams"]), (&true.into(), &1.0.into()));
    assert_eq!(rig.ok("status --quiet"), "");
    assert_eq!(Rig::alone().run("status --quiet --server http://127.0.0.1:1").status.code(), Some(6));
}

#[test]
fn a_server_that_does_not_serve_has_a_status_that_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = std::io::Read::read(&mut socket, &mut request);
        let body = "the disk is full: appends are refused";
        let answer = format!("HTTP/1.1 503 x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        std::io::Write::write_all(&mut socket, answer.as_bytes()).unwrap();
    });
    let said = Rig::alone().fails(&format!("status --quiet --server {address}"), 1);
    assert!(said.contains("the disk is full"), "{said}");
}

#[test]
fn a_check_asks_again_when_the_server_was_started_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = |asked: u64, finished: u64| {
        serde_json::json!({
            "asked": asked, "finished": finished, "running": false, "read_bytes": 5, "total_bytes": 5, "passes": 1, "last_pass_ended_ms": 1,
            "unchecked": [], "unchecked_more": 0, "damage": 0, "left_out": 0, "damages": [],
        })
    };
    // The server of the first two answers has had seven requests, that of the others none.
    let answers = [
        ("POST", serde_json::json!({"pass": 7})),
        ("GET", state(7, 6)),
        ("GET", state(0, 0)),
        ("POST", serde_json::json!({"pass": 1})),
        ("GET", state(1, 1)),
    ];
    let server = std::thread::spawn(move || {
        for (method, body) in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let n = std::io::Read::read(&mut socket, &mut request).unwrap();
            assert!(request[..n].starts_with(method.as_bytes()), "{}", String::from_utf8_lossy(&request[..n]));
            let body = body.to_string();
            let answer = format!("HTTP/1.1 200 x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            std::io::Write::write_all(&mut socket, answer.as_bytes()).unwrap();
        }
    });
    let said = Rig::alone().ok(&format!("check --server {address}"));
    assert!(said.contains("is whole: 5 B read"), "{said}");
    server.join().unwrap();
}

#[test]
fn info_tells_what_is_known_of_a_stream() {
    let rig = Rig::start(&[]);
    rig.ok("stream create a --json --ttl 2h --retention-bytes 1MiB");
    rig.ok("stream fork a b");
    let text = rig.ok("stream info a");
    for part in ["application/json", "open", "0 B", "2h after its last use", "1.0 MiB", "forks        1"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&rig.ok("stream info b --json")).unwrap();
    assert_eq!((&json["forkedFrom"], &json["closed"], &json["bytes"]), (&"a".into(), &false.into(), &0.into()));
    assert!(rig.fails("stream info nowhere", 3).contains("there is no stream nowhere"));
}

#[test]
fn a_measurement_says_what_it_measured_and_leaves_nothing_behind() {
    let rig = Rig::start(&[]);
    let text = rig.ok("stream bench --seconds 300ms --writers 3 --streams 2 --bytes 100");
    for part in ["3 writers, 2 streams, 100 B an append", "append", "p99", "read", "waits for its answer"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let line = rig.ok("stream bench --seconds 200ms --writers 2 --json --durability buffered");
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    let (appends, bytes) = (json["append"]["count"].as_u64().unwrap(), json["read"]["bytes"].as_u64().unwrap());
    assert!(appends > 0 && bytes >= 256 * appends / 2 && json["durability"] == "buffered", "{line}");
    assert_eq!(rig.ok("stream ls"), "");
    assert!(rig.fails("stream bench --bytes 1GiB", 1).contains("16MiB"));
}

#[test]
fn start_and_last_are_places_to_begin() {
    let rig = Rig::start(&[]);
    rig.append("lines", "1\n2\n3\n");
    rig.ok("stream create events --json");
    std::fs::write(rig.path("json"), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n").unwrap();
    rig.ok("stream append events --lines --input @json --close");
    for from in ["--from start", "--from -1", "--offset -1", ""] {
        assert_eq!(rig.ok(&format!("stream read lines {from}")), "1\n2\n3\n");
    }
    assert_eq!(rig.ok("stream read lines --last 2"), "2\n3\n");
    assert_eq!(rig.ok("stream read events --last 1"), "{\"n\":3}\n");
    assert_eq!(rig.ok("stream tail events --last 2"), "{\"n\":2}\n{\"n\":3}\n");
    assert_eq!(rig.ok("stream tail events --from start").lines().count(), 3);
    rig.ok("stream fork events again --offset start --sub-offset 1");
    assert_eq!(rig.ok("stream read again"), "{\"n\":1}\n");
}
