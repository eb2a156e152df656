//! How fast the reading side is, without a database: a server of ours sends ready-made messages.

use crate::fake::{Fake, hear, message};
use std::io::Write;
use std::time::{Duration, Instant};
use thalweg_pg::PgLsn;
use thalweg_pg::pgoutput::{Decoder, Message, TupleWriter, Value, encode};
use thalweg_pg::replication::{self, Event, StartOptions};

const MESSAGES: usize = 500_000;
/// Far below the rate of a release build on an idle machine, so that the test passes beside busy neighbours.
const PER_SECOND: f64 = 60_000.0;

#[test]
fn small_messages_are_read_and_decoded_in_their_hundreds_of_thousands() {
    let mut writer = TupleWriter::default();
    for value in ["12345", "a name", "2026-01-01 00:00:00+00"] {
        writer.push(Value::Text(value.as_bytes()));
    }
    let mut body = [&b"w"[..], &[0; 24]].concat();
    encode(&Message::Insert { xid: None, relation: 16384, new: writer.tuple() }, &mut body);
    let batch: Vec<u8> = std::iter::repeat_n(message(b'd', &body), 1000).flatten().collect();
    let fake = Fake::greeting(move |socket| {
        hear(socket);
        socket.write_all(&message(b'W', b"\0\0\0")).unwrap();
        for _ in 0..MESSAGES / 1000 {
            socket.write_all(&batch).unwrap();
        }
    });
    let options = StartOptions { publications: vec!["p".to_owned()], ..StartOptions::default() };
    let mut stream = replication::Conn::connect(&fake.config).unwrap().start("s", PgLsn::ZERO, &options).unwrap();
    let (start, mut decoder) = (Instant::now(), Decoder::new());
    let (mut messages, mut bytes) = (0, 0);
    while messages < MESSAGES {
        match stream.next(Some(start + Duration::from_secs(100))).unwrap() {
            Event::XLogData { body, .. } => match decoder.decode(body).unwrap() {
                Message::Insert { new, .. } => {
                    messages += 1;
                    bytes += new
                        .values()
                        .map(|value| if let Value::Text(text) = value { text.len() } else { 0 })
                        .sum::<usize>();
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    let rate = messages as f64 / start.elapsed().as_secs_f64();
    eprintln!("{rate:.0} messages per second, {} bytes of values", bytes);
    assert_eq!(bytes, MESSAGES * 33);
    assert!(rate > PER_SECOND, "{rate:.0} messages per second");
    fake.join();
}
