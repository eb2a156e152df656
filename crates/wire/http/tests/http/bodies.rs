use crate::client::{Client, eventually, post};
use crate::service::{stand, stand_with};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

#[test]
fn large_bodies_go_up_and_down() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    for len in [0, 1, 65_000, 65_536, 1 << 20, 20 << 20] {
        let body = pattern(len);
        // The server answers once it has the whole.
        client.send(post("/echo", &body));
        assert!(client.answer().body == body, "{len}");
    }
}

#[test]
fn chunked_bodies_of_any_chunk_size_arrive_whole() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    let body = pattern(300_000);
    for size in [1, 7, 4096, 100_000] {
        client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        let body = if size == 1 { &body[..20_000] } else { &body };
        let chunks: Vec<u8> = body
            .chunks(size)
            .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
            .collect();
        client.send(chunks);
        client.send("0\r\n\r\n");
        assert!(client.answer().body == body, "{size}");
    }
}

#[test]
fn a_large_body_and_the_next_request_in_one_piece_are_two_requests() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    let body = pattern(150_000);
    let bytes = [post("/echo", &body), post("/echo", b"next")].concat();
    client.send(bytes);
    assert!(client.answer().body == body);
    assert_eq!(client.answer().text(), "next");
}

#[test]
fn many_parts_are_sent_in_order() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    let answer = client.get("/parts?5000");
    assert_eq!(answer.body.len(), 5_000_000);
    assert!(answer.body.chunks(1000).enumerate().all(|(n, part)| part.iter().all(|b| *b == b'a' + (n % 26) as u8)));
}

#[test]
fn a_wanted_body_is_asked_for() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().status, 100);
    client.send("body");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str()), (200, "body"));
}

#[test]
fn an_unwanted_body_is_refused_before_it_is_sent() {
    let stand = stand_with(|config| config.max_body = 100);
    let mut client = Client::new(&stand.server);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("connection")), (413, Some("close")));
    client.assert_closed();
}

#[test]
fn a_client_that_sends_too_much_still_sees_the_answer() {
    let stand = stand_with(|config| config.max_body = 100_000);
    let mut client = Client::new(&stand.server);
    // The client sends everything before it reads the answer.
    client.send(post("/echo", &pattern(5 << 20)));
    assert_eq!(client.answer().status, 413);
    client.assert_closed();
    assert_eq!(stand.server.stats().requests_refused, 1);
}

#[test]
fn bodies_of_all_connections_share_a_budget() {
    let stand = stand_with(|config| config.max_buffered = 300_000);
    let (mut first, mut second) = (Client::new(&stand.server), Client::new(&stand.server));
    let body = pattern(250_000);
    let bytes = post("/echo", &body);
    let (most, last) = bytes.split_at(240_000);
    first.send(most);
    eventually(|| stand.server.stats().bytes_in >= 240_000);
    second.send(most);
    let answer = second.answer();
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
    first.send(last);
    assert!(first.answer().body == body);
    let mut third = Client::new(&stand.server);
    third.send(&bytes);
    assert!(third.answer().body == body, "the budget was given back");
}

#[test]
fn a_body_that_the_head_rules_out_is_not_received() {
    let stand = stand_with(|config| config.max_body = 1 << 20);
    for length in ["Content-Length: 1000", "Content-Length: 1073741824", "Transfer-Encoding: chunked"] {
        for expect in ["", "Expect: 100-continue\r\n"] {
            let mut client = Client::new(&stand.server);
            client.send(format!("POST /guarded HTTP/1.1\r\nHost: h\r\n{expect}{length}\r\n\r\n"));
            let answer = client.answer();
            assert_eq!((answer.status, answer.text().as_str()), (403, "the head is enough"), "{length} {expect}");
            assert_eq!(answer.field("connection"), Some("close"));
            client.assert_closed();
        }
    }
    assert_eq!(stand.paths.handled.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn a_client_that_sends_on_regardless_is_cut_off_and_costs_no_memory() {
    let stand = stand_with(|config| {
        config.max_body = 1 << 30;
        config.max_buffered = 100_000;
    });
    let mut client = Client::new(&stand.server);
    client.send(format!("POST /guarded HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 1 << 30));
    let piece = pattern(1 << 20);
    let sent = (0..1024).take_while(|_| client.try_send(&piece)).count();
    assert!(sent < 200, "{sent} MiB were taken");
    assert!(stand.server.stats().bytes_in < 1 << 20);
}

#[test]
fn a_small_request_is_looked_at_whole_and_the_connection_goes_on() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(post("/guarded", b"small"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str(), answer.field("connection")), (403, "looked at whole", None));
    assert_eq!(client.get("/a").text(), "/a");
}
