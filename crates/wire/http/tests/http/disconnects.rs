use crate::client::{Client, eventually, get};
use crate::service::stand;

#[test]
fn a_pending_answer_is_dropped_with_its_client() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/later"));
    eventually(|| stand.paths.alive() == 1);
    drop(client);
    eventually(|| stand.paths.alive() == 0 && stand.server.stats().connections_active == 0);
    assert_eq!(stand.server.stats().replies_pending, 0);
    // The dropped connection's waker still exists, and must not harm the connection that now has its place.
    let mut next = Client::new(&stand.server);
    assert_eq!(next.get("/a").status, 200);
    stand.paths.open();
    assert_eq!(next.get("/b").status, 200);
}

#[test]
fn a_source_is_dropped_with_its_client() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/events"));
    assert_eq!(client.head().status, 200);
    drop(client);
    eventually(|| stand.paths.alive() == 0 && stand.server.stats().connections_active == 0);
}

#[test]
fn a_client_that_shuts_down_its_side_does_not_wait_for_a_pending_answer() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/later"));
    eventually(|| stand.paths.alive() == 1);
    client.shut_down();
    eventually(|| stand.paths.alive() == 0);
    client.assert_closed();
}

#[test]
fn a_disconnect_is_noticed_though_the_client_wanted_to_close_anyway() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send("GET /later HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    eventually(|| stand.paths.alive() == 1);
    drop(client);
    eventually(|| stand.paths.alive() == 0);
}

#[test]
fn half_a_request_and_gone_leaves_nothing() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc");
    eventually(|| stand.server.stats().bytes_in > 0);
    drop(client);
    eventually(|| stand.server.stats().connections_active == 0);
}
