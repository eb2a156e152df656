use crate::client::{Client, eventually, get};
use crate::service::{stand, stand_with};
use std::time::{Duration, Instant};

#[test]
fn a_wake_from_another_thread_sends_the_next_event() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/events"));
    assert_eq!(client.head().field("transfer-encoding"), Some("chunked"));
    for n in 0..100 {
        eventually(|| !stand.paths.wakers.lock().is_empty());
        stand.paths.open();
        assert_eq!(client.chunk(), format!("event {n}\n").as_bytes());
    }
    assert_eq!(stand.server.stats().replies_pending, 1);
}

#[test]
fn one_event_reaches_all_readers() {
    let stand = stand_with(|config| config.reactors = 2);
    let mut clients: Vec<_> = (0..500).map(|_| Client::new(&stand.server)).collect();
    clients.iter_mut().for_each(|client| client.send(get("/events")));
    clients.iter_mut().for_each(|client| assert_eq!(client.head().status, 200));
    eventually(|| stand.paths.wakers.lock().len() == 500);
    for n in 0..3 {
        stand.paths.open();
        clients.iter_mut().for_each(|client| assert_eq!(client.chunk(), format!("event {n}\n").as_bytes()));
    }
}

#[test]
fn a_later_reply_comes_with_a_wake_or_its_deadline() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    let start = Instant::now();
    assert_eq!(client.get("/timeout?120").status, 204);
    assert!(start.elapsed() >= Duration::from_millis(120));
    client.send(get("/later?9"));
    assert!(client.is_silent());
    stand.paths.open();
    assert_eq!(client.answer().text(), "later 9");
}

#[test]
fn a_later_reply_may_turn_out_to_be_held() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/later-held?3"));
    eventually(|| !stand.paths.wakers.lock().is_empty());
    stand.paths.open();
    assert!(client.is_silent());
    stand.advance(3);
    assert_eq!(client.answer().text(), "later held");
}

#[test]
fn a_stream_that_fails_midway_is_not_taken_for_whole() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/abort?50000"));
    let said = client.rest();
    assert!(!said.ends_with(b"0\r\n\r\n"));
    let mut client = Client::new(&stand.server);
    client.send("GET /abort?5000000 HTTP/1.0\r\n\r\n");
    let reset = loop {
        match client.read(&mut [0; 4096]) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    };
    assert!(reset);
    eventually(|| stand.paths.alive() == 0);
}

#[test]
fn http_1_0_reads_a_stream_until_close() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send("GET /many?30000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let head = client.head();
    assert_eq!((head.field("transfer-encoding"), head.field("connection")), (None, Some("close")));
    assert_eq!(client.rest(), vec![b'm'; 30_000]);
}

#[test]
fn after_a_stream_the_connection_goes_on() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    for _ in 0..3 {
        assert_eq!(client.get("/many?1000000").body.len(), 1_000_000);
        assert_eq!(client.get("/next").text(), "/next");
    }
}

#[test]
fn a_body_whose_length_is_known_says_so_and_has_no_chunks() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    for length in [0, 1, 10_000, 3_000_000] {
        let answer = client.get(&format!("/sized?{length}"));
        assert_eq!(answer.field("content-length"), Some(length.to_string().as_str()));
        assert_eq!(answer.field("transfer-encoding"), None);
        assert!(answer.body == vec![b'm'; length]);
    }
    client.send("HEAD /sized?1000 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().field("content-length"), Some("1000"));
    // The connection stays open, in HTTP/1.0 too.
    client.send("GET /sized?30000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(client.answer().body == vec![b'm'; 30_000]);
    assert_eq!(client.get("/next").text(), "/next");
    assert_eq!(stand.paths.alive(), 0);
}
