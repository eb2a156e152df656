use crate::client::{Client, eventually, get};
use crate::service::{stand, stand_with};
use std::thread;
use thalweg_base::{Lsn, Reached};

#[test]
fn a_held_reply_waits_for_its_position() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/held?7"));
    assert!(client.is_silent());
    assert_eq!(stand.server.stats().replies_held, 1);
    stand.advance(6);
    assert!(client.is_silent());
    stand.advance(9);
    assert_eq!(client.answer().text(), "held 7");
    assert_eq!(client.get("/held?8").text(), "held 8");
    assert_eq!(stand.server.stats().replies_held, 0);
}

#[test]
fn what_needs_only_be_written_is_sent_earlier() {
    let stand = stand();
    let (mut durable, mut buffered) = (Client::new(&stand.server), Client::new(&stand.server));
    durable.send(get("/held?7"));
    buffered.send([get("/written?7"), get("/held?8"), get("/written?9")].concat());
    eventually(|| stand.server.stats().replies_held == 4);
    stand.gate.advance(Reached { written: Lsn(9), durable: Lsn(3) });
    assert_eq!(buffered.answer().text(), "written 7");
    assert!(buffered.is_silent() && durable.is_silent(), "the order of one connection stays");
    stand.advance(8);
    assert_eq!(durable.answer().text(), "held 7");
    assert_eq!((buffered.answer().text(), buffered.answer().text()), ("held 8".into(), "written 9".into()));
}

#[test]
fn the_time_that_replies_were_held_is_counted() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.get("/now");
    assert_eq!(stand.server.stats().waits.buckets().map(|(_, count)| count).sum::<u64>(), 0, "it waited for nothing");
    let begin = std::time::Instant::now();
    client.send([get("/held?1"), get("/held?2"), get("/held?3")].concat());
    eventually(|| stand.server.stats().replies_held == 3);
    thread::sleep(std::time::Duration::from_millis(20));
    stand.advance(3);
    (0..3).for_each(|_| drop(client.answer()));
    let (waits, all) = (stand.server.stats().waits, begin.elapsed().as_micros() as u64);
    assert!(waits.micros >= 3 * 20_000 && waits.micros <= 3 * all, "{} of {all}", waits.micros);
    let long = waits.buckets().filter(|(upper, _)| upper.is_none_or(|upper| upper > 20_000));
    assert_eq!(long.map(|(_, count)| count).sum::<u64>(), 3);
}

#[test]
fn one_advance_releases_all_connections() {
    let stand = stand_with(|config| config.reactors = 2);
    let mut clients: Vec<_> = (0..100).map(|_| Client::new(&stand.server)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(get(&format!("/held?{}", 100 - n)));
    }
    eventually(|| stand.server.stats().replies_held == 100);
    stand.advance(100);
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answer().text(), format!("held {}", 100 - n));
    }
}

#[test]
fn when_the_gate_fails_held_replies_are_replaced() {
    let stand = stand();
    let (mut early, mut late) = (Client::new(&stand.server), Client::new(&stand.server));
    early.send(get("/held?3"));
    late.send([get("/held?4"), get("/now")].concat());
    eventually(|| stand.server.stats().replies_held == 2);
    stand.advance(3);
    assert_eq!(early.answer().text(), "held 3");
    stand.gate.fail();
    let answer = late.answer();
    assert_eq!((answer.status, answer.text().as_str()), (503, "the gate failed"));
    assert_eq!(late.answer().text(), "/now");
    assert_eq!(early.get("/held?5").status, 503);
    assert_eq!(early.get("/held?2").status, 200);
}

#[test]
fn no_wake_up_is_lost_between_holding_and_sleeping() {
    let stand = stand_with(|config| config.reactors = 2);
    let gate = std::sync::Arc::clone(&stand.gate);
    let (sender, receiver) = std::sync::mpsc::channel();
    // The gate moves as soon as the request is sent, so that holding and releasing race.
    let mover = thread::spawn(move || receiver.iter().for_each(|position| gate.advance(Lsn(position).into())));
    let mut client = Client::new(&stand.server);
    for n in 1..=5000 {
        client.send(get(&format!("/held?{n}")));
        sender.send(n).unwrap();
        assert_eq!(client.answer().text(), format!("held {n}"));
    }
    drop(sender);
    mover.join().unwrap();
}

#[test]
fn a_client_that_shut_down_its_side_still_gets_a_held_reply() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/held?1"));
    client.shut_down();
    eventually(|| stand.server.stats().replies_held == 1);
    assert!(client.is_silent());
    stand.advance(1);
    assert_eq!(client.answer().text(), "held 1");
    client.assert_closed();
}
