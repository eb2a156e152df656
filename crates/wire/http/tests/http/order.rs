use crate::client::{Client, eventually, get, post};
use crate::service::{stand, stand_with};
use std::sync::atomic::Ordering;

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    for n in 0..100 {
        let answer = client.get(&format!("/{n}"));
        assert_eq!((answer.status, answer.text()), (200, format!("/{n}")));
        assert!(answer.field("date").is_some_and(|date| date.ends_with(" GMT")));
        assert_eq!(answer.field("connection"), None);
    }
    let stats = stand.server.stats();
    assert_eq!((stats.connections_accepted, stats.connections_active, stats.requests), (1, 1, 100));
}

#[test]
fn pipelined_requests_are_one_round() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send((0..50).map(|n| get(&format!("/{n}"))).collect::<String>());
    for n in 0..50 {
        assert_eq!(client.answer().text(), format!("/{n}"));
    }
    assert!(stand.paths.rounds.load(Ordering::SeqCst) <= 2);
}

#[test]
fn replies_leave_in_the_order_of_their_requests() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(["/a", "/held?5", "/b", "/later?1", "/held?3", "/parts?3", "/many?25000", "/c"].map(get).concat());
    assert_eq!(client.answer().text(), "/a");
    eventually(|| stand.paths.handled.load(Ordering::SeqCst) == 8);
    assert!(client.is_silent());
    stand.advance(4);
    assert!(client.is_silent());
    stand.advance(5);
    assert_eq!(client.answer().text(), "held 5");
    assert_eq!(client.answer().text(), "/b");
    assert!(client.is_silent());
    stand.paths.open();
    assert_eq!(client.answer().text(), "later 1");
    assert_eq!(client.answer().text(), "held 3");
    assert_eq!(client.answer().body.len(), 3000);
    assert_eq!(client.answer().body.len(), 25000);
    assert_eq!(client.answer().text(), "/c");
}

#[test]
fn a_pipeline_deeper_than_the_bound_is_served_to_its_end() {
    let stand = stand_with(|config| config.max_pipeline = 4);
    let mut client = Client::new(&stand.server);
    let requests: String = (0..300).map(|n| get(&format!("/held?{n}"))).collect();
    client.send(requests);
    eventually(|| stand.paths.handled.load(Ordering::SeqCst) == 5);
    assert_eq!(client.answer().text(), "held 0");
    assert!(client.is_silent());
    assert!(stand.paths.handled.load(Ordering::SeqCst) <= 5);
    stand.advance(1000);
    for n in 1..300 {
        assert_eq!(client.answer().text(), format!("held {n}"));
    }
}

#[test]
fn bytes_may_come_one_by_one() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    for byte in [get("/slow").into_bytes(), post("/echo", b"body")].concat() {
        client.send([byte]);
    }
    assert_eq!(client.answer().text(), "/slow");
    assert_eq!(client.answer().text(), "body");
}

#[test]
fn head_gets_the_length_but_no_body() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send("HEAD /large?1000 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().field("content-length"), Some("1000"));
    client.send("HEAD /many?1000 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().field("transfer-encoding"), Some("chunked"));
    assert_eq!(client.get("/after").text(), "/after");
    assert_eq!(stand.paths.alive(), 0);
}

#[test]
fn no_content_has_no_length() {
    let stand = stand();
    let answer = Client::new(&stand.server).get("/none");
    assert_eq!((answer.status, answer.field("content-length")), (204, None));
}

#[test]
fn http_1_0_closes_unless_asked_to_keep() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.answer().field("connection"), Some("keep-alive"));
    client.send("GET /b HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().field("connection"), Some("close"));
    client.assert_closed();
}

#[test]
fn close_is_honoured_and_what_follows_is_not_served() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(format!("GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n{}", get("/b")));
    let answer = client.answer();
    assert_eq!((answer.text().as_str(), answer.field("connection")), ("/a", Some("close")));
    client.assert_closed();
    assert_eq!(stand.paths.handled.load(Ordering::SeqCst), 1);
}

#[test]
fn a_round_is_over_also_when_an_answer_in_the_making_was_called() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/later-held?7"));
    eventually(|| stand.paths.wakers.lock().len() == 1);
    let before = stand.paths.rounds.load(Ordering::SeqCst);
    stand.paths.open();
    eventually(|| stand.paths.rounds.load(Ordering::SeqCst) > before);
    stand.advance(7);
    assert_eq!(client.answer().text(), "later held");
}

#[test]
fn a_response_may_be_the_last_of_its_connection() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    let answer = client.get("/last");
    assert_eq!((&*answer.text(), answer.field("connection")), ("the last", Some("close")));
    client.assert_closed();
}
