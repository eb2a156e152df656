use crate::client::{Client, eventually, get};
use crate::service::stand_with;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(150);

#[test]
fn a_head_that_trickles_is_cut_off() {
    let stand = stand_with(|config| config.header_timeout = SHORT);
    let mut client = Client::new(&stand.server);
    let start = Instant::now();
    while start.elapsed() < SHORT / 2 {
        client.send("G");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.answer().status, 408);
    assert!(start.elapsed() >= SHORT && start.elapsed() < SHORT * 10);
    client.assert_closed();
    assert_eq!(stand.server.stats().timeouts, 1);
}

#[test]
fn a_body_that_stops_coming_is_cut_off() {
    let stand = stand_with(|config| (config.body_timeout, config.body_bytes_min) = (SHORT, 1));
    let mut client = Client::new(&stand.server);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n");
    for byte in ["a"; 6] {
        client.send(byte);
        std::thread::sleep(SHORT / 3);
    }
    assert!(client.is_silent(), "it was cut off though it came on");
    assert_eq!(client.answer().status, 408);
    client.assert_closed();
}

#[test]
fn a_body_that_comes_too_slowly_is_cut_off() {
    let stand = stand_with(|config| (config.body_timeout, config.body_bytes_min) = (SHORT, 1000));
    // Fast at first, which buys no time for later; some bytes in each read, so that it never stops.
    let mut client = Client::new(&stand.server);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    client.send(vec![b'a'; 300_000]);
    let start = Instant::now();
    while client.is_silent() {
        assert!(start.elapsed() < SHORT * 40, "it was never cut off");
        client.send("a");
    }
    assert_eq!(client.answer().status, 408);
    assert_eq!(stand.server.stats().timeouts, 1);
    // In chunks it is no different.
    let mut client = Client::new(&stand.server);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let start = Instant::now();
    while client.is_silent() {
        assert!(start.elapsed() < SHORT * 40, "it was never cut off");
        client.send("1\r\na\r\n");
    }
    assert_eq!(client.answer().status, 408);
}

#[test]
fn a_body_that_comes_fast_enough_takes_as_long_as_it_needs() {
    let stand = stand_with(|config| (config.body_timeout, config.body_bytes_min) = (SHORT, 1000));
    let mut client = Client::new(&stand.server);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
    let start = Instant::now();
    for n in 0..50 {
        client.send(vec![b'a'; 2000]);
        while n < 49 && start.elapsed() < SHORT * n / 10 {
            std::thread::yield_now();
        }
    }
    assert_eq!(client.answer().body.len(), 100_000);
}

#[test]
fn a_connection_that_asks_nothing_is_closed_sooner_than_one_that_rests() {
    let stand = stand_with(|config| config.header_timeout = SHORT);
    let (mut used, mut unused) = (Client::new(&stand.server), Client::new(&stand.server));
    assert_eq!(used.get("/").status, 200);
    let start = Instant::now();
    unused.assert_closed();
    assert!(start.elapsed() >= SHORT / 2 && start.elapsed() < SHORT * 20);
    assert_eq!(used.get("/").status, 200);
}

#[test]
fn an_idle_connection_is_closed() {
    let stand = stand_with(|config| config.idle_timeout = SHORT);
    let (mut used, mut unused) = (Client::new(&stand.server), Client::new(&stand.server));
    for _ in 0..6 {
        std::thread::sleep(SHORT / 3);
        assert_eq!(used.get("/").status, 200);
    }
    unused.assert_closed();
    used.assert_closed();
}

#[test]
fn waiting_for_an_answer_is_not_idleness() {
    let stand = stand_with(|config| (config.idle_timeout, config.header_timeout) = (SHORT, SHORT));
    let mut client = Client::new(&stand.server);
    client.send(get("/held?1"));
    std::thread::sleep(SHORT * 3);
    stand.advance(1);
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_reader_that_takes_nothing_is_cut_off() {
    let stand = stand_with(|config| config.write_timeout = SHORT);
    let mut client = Client::new(&stand.server);
    client.send(get("/many?500000000"));
    eventually(|| stand.server.stats().timeouts == 1 && stand.server.stats().connections_active == 0);
    assert_eq!(stand.paths.alive(), 0);
    assert!(client.rest().len() < 100_000_000);
}
