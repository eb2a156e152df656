use crate::client::{Client, eventually, get, post};
use crate::service::{bind_with, serve, stand};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn stopping_finishes_what_is_in_flight() {
    let stand = stand();
    let mut clients: Vec<_> = (0..5).map(|_| Client::new(&stand.server)).collect();
    let [idle, held, later, events, upload] = clients.as_mut_slice() else { panic!() };
    assert_eq!(idle.get("/").status, 200);
    held.send(get("/held?1"));
    later.send(get("/later"));
    events.send(get("/events"));
    let bytes = post("/echo", &[b'u'; 1000]);
    upload.send(&bytes[..500]);
    assert_eq!(events.head().status, 200);
    eventually(|| stand.paths.alive() == 2 && stand.server.stats().replies_held == 1);
    eventually(|| stand.server.stats().bytes_in as usize >= 500 + 4 * 30);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| {
            let start = Instant::now();
            stand.server.stop(LONG);
            start.elapsed()
        });
        idle.assert_closed();
        assert_eq!(later.answer().text(), "stopping");
        assert_eq!(events.rest(), b"0\r\n\r\n");
        upload.send(&bytes[500..]);
        let answer = upload.answer();
        assert_eq!((answer.body.len(), answer.field("connection")), (1000, Some("close")));
        assert!(held.is_silent());
        stand.advance(1);
        let answer = held.answer();
        assert_eq!((answer.text().as_str(), answer.field("connection")), ("held 1", Some("close")));
        assert!(stop.join().unwrap() < LONG);
    });
    assert!(TcpStream::connect(stand.server.local_addr()).is_err());
    assert_eq!(stand.server.stats().connections_active, 0);
}

#[test]
fn a_client_that_comes_before_the_server_serves_waits_and_is_answered() {
    let bound = bind_with(|_| {});
    let mut client = Client::at(bound.local_addr());
    let stand = serve(bound);
    assert_eq!(stand.server.local_addr(), client.socket.peer_addr().unwrap());
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn grace_has_an_end() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/held?1"));
    eventually(|| stand.server.stats().replies_held == 1);
    let start = Instant::now();
    stand.server.stop(Duration::from_millis(100));
    assert!(start.elapsed() >= Duration::from_millis(100));
    client.assert_closed();
    stand.advance(1);
    stand.server.stop(LONG);
}

#[test]
fn a_stopped_server_leaves_its_port_and_gate() {
    let stand = stand();
    drop(stand.server);
    stand.gate.advance(thalweg_base::Lsn(1).into());
    assert_eq!(std::sync::Arc::strong_count(&stand.gate), 1);
    assert_eq!(std::sync::Arc::strong_count(&stand.paths), 1);
}
