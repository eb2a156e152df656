//! Tests of the loop against small servers with scripted answers.

use super::*;
use crate::work::live::{Live, Progress, Readers};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// A server that reads requests without bodies and lets `answer` write; one thread per connection, for as long as the
/// test runs.
fn serve(answer: impl Fn(usize, &mut TcpStream) -> bool + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, answer) = (socket.unwrap(), answer.clone());
            std::thread::spawn(move || {
                let (mut input, mut number) = (Vec::new(), 0);
                let mut piece = [0; 4096];
                loop {
                    while let Some(end) = memchr::memmem::find(&input, b"\r\n\r\n") {
                        input.drain(..end + 4);
                        if !answer(number, &mut socket) {
                            return;
                        }
                        number += 1;
                    }
                    match socket.read(&mut piece) {
                        Ok(many) if many > 0 => input.extend_from_slice(&piece[..many]),
                        _ => return,
                    }
                }
            });
        }
    });
    address
}

fn no_content(socket: &mut TcpStream) -> bool {
    socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_ok()
}

/// Sends for ever, or this many requests on each connection.
struct Asks {
    left: Vec<u64>,
    answers: u64,
}

impl Work for Asks {
    fn request(&mut self, connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        self.left[connection] = self.left[connection].checked_sub(1)?;
        out.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
        Some(0)
    }

    fn done(&mut self, _connection: usize, _tag: u32, status: u16) -> Verdict {
        self.answers += 1;
        if status == 204 { Verdict::Good } else { Verdict::Bad }
    }
}

fn pace(server: SocketAddr, connections: usize, depth: usize, rate: Option<f64>, until: Until<'_>) -> Pace<'_> {
    Pace { server, server_pid: None, connections, first: 0, depth, rate, until, interval: None }
}

#[test]
fn every_request_is_sent_once_and_answered() {
    let server = serve(|_, socket| no_content(socket));
    for depth in [1, 7] {
        let mut work = Asks { left: vec![100, 0, 33], answers: 0 };
        let tally = run(&pace(server, 3, depth, None, Until::Exhausted), Instant::now(), &mut work).unwrap();
        assert_eq!((tally.ops, tally.bad, work.answers, tally.latencies.count()), (133, 0, 133, 133));
    }
}

#[test]
fn refusals_are_bad() {
    let refusal = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 3\r\n\r\nno!";
    let server = serve(
        move |number, socket| {
            if number % 2 == 0 { no_content(socket) } else { socket.write_all(refusal).is_ok() }
        },
    );
    let mut work = Asks { left: vec![10], answers: 0 };
    let tally = run(&pace(server, 1, 1, None, Until::Exhausted), Instant::now(), &mut work).unwrap();
    assert_eq!((tally.ops, tally.bad), (5, 5));
}

#[test]
fn at_a_rate_a_pause_of_the_server_is_seen_by_all_that_was_due_in_it() {
    let pause = Duration::from_millis(300);
    let server = serve(move |number, socket| {
        if number == 20 {
            std::thread::sleep(pause);
        }
        no_content(socket)
    });
    let seconds = Duration::from_secs(1);
    let until = Until::Elapsed { warm: Duration::ZERO, seconds };
    let mut work = Asks { left: vec![u64::MAX], answers: 0 };
    // One connection and one request at a time: the loop cannot ask while the server sleeps, and still owes the
    // requests.
    let tally = run(&pace(server, 1, 1, Some(200.0), until), Instant::now(), &mut work).unwrap();
    assert!((190..=201).contains(&tally.latencies.count()), "{tally}");
    // Of 200 requests in a second, 60 were due in the pause, half of them in its first 150 ms.
    assert!(tally.latencies.permille(1000) >= 250_000, "{tally}");
    assert!(tally.latencies.permille(860) >= 100_000, "{tally}");
    assert!(tally.latencies.permille(400) < 100_000, "{tally}");
}

#[test]
fn the_warm_up_is_not_counted() {
    let server = serve(|_, socket| no_content(socket));
    let until = Until::Elapsed { warm: Duration::from_millis(200), seconds: Duration::from_millis(200) };
    let mut work = Asks { left: vec![u64::MAX], answers: 0 };
    let tally = run(&pace(server, 1, 1, Some(500.0), until), Instant::now(), &mut work).unwrap();
    assert!((80..=120).contains(&tally.ops) && work.answers >= tally.ops + 80, "{tally}, {} answers", work.answers);
    assert!((0.19..0.5).contains(&tally.cost.seconds), "{tally}");
}

#[test]
fn a_server_that_closes_fails_the_run_unless_readers_go_on() {
    let server = serve(|number, socket| number == 0 && no_content(socket));
    let mut work = Asks { left: vec![5], answers: 0 };
    let failed = run(&pace(server, 1, 1, None, Until::Exhausted), Instant::now(), &mut work).unwrap_err();
    assert!(failed.to_string().contains("closed a connection with 1 requests"), "{failed}");

    // Each connection gets one event and is closed; the reader reconnects with the offset of the last control event.
    let next = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let server = serve(move |_, socket| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let mut body = b"event: data\ndata:".to_vec();
        crate::work::event::write(0, number, 40, &mut body);
        body.extend_from_slice(
            format!("\n\nevent: control\ndata:{{\"streamNextOffset\":\"o{number}\"}}\n\n").as_bytes(),
        );
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
        socket.write_all(&[head.as_bytes(), &body, b"\r\n"].concat()).unwrap();
        false
    });
    let (progress, over) = (Progress::default(), AtomicBool::new(false));
    let mut readers = Readers::new("/s", "now", Live::Sse, 1, 0, &progress);
    let tally = std::thread::scope(|scope| {
        let running =
            scope.spawn(|| run(&pace(server, 1, 1, None, Until::Stopped(&over)), Instant::now(), &mut readers));
        while progress.delivered.load(Ordering::Relaxed) < 5 {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Release);
        running.join().unwrap().unwrap()
    });
    assert!(tally.reopened >= 4, "{tally}");
    assert_eq!((readers.missing, readers.duplicates, readers.refused), (0, 0, 0));
}

#[test]
fn connections_beyond_the_ports_of_one_address_come_from_the_next() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for (number, source) in [(0, "127.0.0.1"), (19_999, "127.0.0.1"), (20_000, "127.0.0.2"), (99_999, "127.0.0.5")] {
        let _socket = crate::socket::open(listener.local_addr().unwrap(), number).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip().to_string(), source);
    }
}
