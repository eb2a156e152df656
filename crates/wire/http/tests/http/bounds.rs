use crate::client::{Client, eventually, get};
use crate::service::{stand, stand_with};
use std::sync::atomic::Ordering;

#[test]
fn one_connection_too_many_is_told_so() {
    let stand = stand_with(|config| config.max_connections = 3);
    let mut clients: Vec<_> = (0..3).map(|_| Client::new(&stand.server)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let mut extra = Client::new(&stand.server);
    // No answer can be sent before a handshake.
    if crate::IDENTITY.is_none() {
        let answer = extra.answer();
        assert_eq!((answer.status, answer.field("connection")), (503, Some("close")));
        assert!(answer.field("retry-after").is_some());
    }
    extra.assert_closed();
    assert_eq!(stand.server.stats().connections_refused, 1);
    drop(clients.pop());
    eventually(|| stand.server.stats().connections_active == 2);
    assert_eq!(Client::new(&stand.server).get("/").status, 200);
}

#[test]
fn one_peer_cannot_take_all_connections() {
    let stand = stand_with(|config| config.max_connections_per_peer = 2);
    let mut held: Vec<_> = (0..2).map(|_| Client::new(&stand.server)).collect();
    for client in &mut held {
        assert_eq!(client.get("/").status, 200);
    }
    let mut extra = Client::new(&stand.server);
    if crate::IDENTITY.is_none() {
        let answer = extra.answer();
        assert!(answer.status == 503 && answer.text().contains("from this address"), "{}", answer.text());
    }
    extra.assert_closed();
    // 127.0.0.2 is another peer of the same machine.
    let elsewhere = std::process::Command::new("curl")
        .args(["-sk", "--interface", "127.0.0.2", "-o", "/dev/null", "-w", "%{http_code}"])
        .arg(format!("http{}://{}/", if crate::IDENTITY.is_some() { "s" } else { "" }, stand.server.local_addr()))
        .output();
    if let Ok(elsewhere) = elsewhere {
        assert_eq!(String::from_utf8_lossy(&elsewhere.stdout), "200");
    }
    drop(held.pop());
    eventually(|| stand.server.stats().connections_active == 1);
    assert_eq!(Client::new(&stand.server).get("/").status, 200);
}

#[test]
fn tls_on_a_plain_port_is_told_the_scheme() {
    if crate::IDENTITY.is_some() {
        return;
    }
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send([22, 3, 1, 2, 0, 1, 0]);
    let answer = client.answer();
    assert!(answer.status == 400 && answer.text().contains("use http://"), "{}", answer.text());
    client.assert_closed();
}

#[test]
fn after_a_framing_error_the_connection_closes() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send([get("/a"), "GET / HTTP/1.1\r\n\r\n".to_owned(), get("/b")].concat());
    assert_eq!(client.answer().text(), "/a");
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("connection")), (400, Some("close")));
    client.assert_closed();
    assert_eq!(stand.paths.handled.load(Ordering::SeqCst), 1);
    assert_eq!(stand.server.stats().requests_refused, 1);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}", "a".repeat(20_000)));
    assert_eq!(client.answer().status, 431);
    let mut client = Client::new(&stand.server);
    client.send(format!("GET /{}", "a".repeat(20_000)));
    assert_eq!(client.answer().status, 414);
}

#[test]
fn http_2_is_told_that_it_is_not_spoken() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(client.answer().status, 505);
    client.assert_closed();
}

#[test]
fn a_reader_that_stops_reading_stops_the_source() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/many?100000000"));
    let pulled = || stand.paths.pulled.load(Ordering::SeqCst);
    eventually(|| pulled() > 0);
    let mut last = 0;
    loop {
        std::thread::sleep(std::time::Duration::from_millis(30));
        if std::mem::replace(&mut last, pulled()) == pulled() {
            break;
        }
    }
    // The kernel's buffers are beyond our control, but take far less than the body.
    assert!(last < 30_000_000, "{last}");
    assert_eq!(client.answer().body.len(), 100_000_000);
    assert_eq!(stand.paths.alive(), 0);
}

#[test]
fn a_reader_that_stops_reading_is_not_served_further_requests() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/large?1000000").repeat(200));
    let handled = || stand.paths.handled.load(Ordering::SeqCst);
    eventually(|| handled() > 0);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(handled() <= 70, "{}", handled());
    for _ in 0..200 {
        assert_eq!(client.answer().body.len(), 1_000_000);
    }
}
