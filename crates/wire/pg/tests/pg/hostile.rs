//! Servers that break the protocol, stall or lie.

use crate::fake::{Fake, hear, message, ready, startup};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use thalweg_pg::replication::{self, Event, StartOptions};
use thalweg_pg::{AuthError, Conn, Error, Password, PgLsn, SslMode, TlsError};

fn everything() -> StartOptions {
    StartOptions { publications: vec!["p".to_owned()], ..StartOptions::default() }
}

/// The client's error for these bytes instead of a greeting.
fn greeted_with(bytes: Vec<u8>) -> Error {
    let fake = Fake::new(move |socket| {
        startup(socket);
        let _ = socket.write_all(&bytes);
    });
    let mut config = fake.config.clone();
    config.password = Some(Password("secret".to_owned()));
    let error = Conn::connect(&config).unwrap_err();
    fake.join();
    error
}

#[test]
fn a_greeting_that_is_none_is_refused() {
    let sasl = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let ok = message(b'R', &[0; 4]);
    assert!(matches!(greeted_with(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), Error::TooLarge { .. }));
    assert!(matches!(greeted_with(message(b'Z', b"I")), Error::Protocol(_)));
    assert!(matches!(greeted_with(b"R\0\0\0\x03".to_vec()), Error::Protocol(_)));
    assert!(matches!(greeted_with(b"R\xff\xff\xff\xff".to_vec()), Error::TooLarge { .. }));
    assert!(matches!(greeted_with(message(b'R', b"\0\0\0\x63")), Error::Protocol(_)));
    assert!(matches!(greeted_with(message(b'R', b"\0\0\0\x07")), Error::Auth(AuthError::Unsupported(_))));
    assert!(matches!(
        greeted_with(message(b'R', b"\0\0\0\x0aSCRAM-SHA-1\0\0")),
        Error::Auth(AuthError::Unsupported(_))
    ));
    assert!(matches!(greeted_with([sasl.clone(), ok.clone()].concat()), Error::Auth(AuthError::NotProved)));
    let lie = message(b'R', b"\0\0\0\x0br=other,s=QQ==,i=4096");
    assert!(matches!(greeted_with([sasl, lie].concat()), Error::Auth(AuthError::Scram(_))));
    assert!(matches!(greeted_with(Vec::new()), Error::Closed(None)));
    assert!(matches!(greeted_with(ok.clone()), Error::Closed(None)));
    let settings = (0..1000).flat_map(|i| message(b'S', format!("s{i}\0x\0").as_bytes()));
    assert!(matches!(greeted_with(ok.into_iter().chain(settings).collect()), Error::Protocol(_)));
    let busy = message(b'E', b"SFATAL\0VFATAL\0C53300\0Mtoo many\0\0");
    let error = greeted_with(busy);
    assert!(error.code() == Some("53300") && error.is_transient(), "{error}");
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let fake = Fake::new(|socket| drop(socket.read_to_end(&mut Vec::new())));
    for mode in [SslMode::Disable, SslMode::Require] {
        let fake = Fake::new(|socket| drop(socket.read_to_end(&mut Vec::new())));
        let (mut config, start) = (fake.config.clone(), Instant::now());
        (config.ssl_mode, config.connect_timeout) = (mode, Some(Duration::from_millis(200)));
        let error = Conn::connect(&config).unwrap_err();
        assert!(matches!(error, Error::Timeout(timeout) if timeout == Duration::from_millis(200)), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(4));
        fake.join();
    }
    drop(std::net::TcpStream::connect(("127.0.0.1", port_of(&fake))));
    fake.join();
}

fn port_of(fake: &Fake) -> u16 {
    match fake.config.hosts[0] {
        thalweg_pg::Host::Tcp { port, .. } => port,
        thalweg_pg::Host::Unix { .. } => unreachable!(),
    }
}

#[test]
fn what_comes_in_the_clear_before_tls_is_not_believed() {
    let fake = Fake::new(|socket| {
        startup(socket);
        let _ = socket.write_all(&[b"S".to_vec(), message(b'R', &[0; 4]), ready()].concat());
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let mut config = fake.config.clone();
    config.ssl_mode = SslMode::Require;
    assert!(matches!(Conn::connect(&config), Err(Error::Tls(TlsError::Session(_)))));
    fake.join();
}

/// The client's result for these bytes as an answer, and whether the connection survives for another query.
fn answered_with(bytes: Vec<u8>) -> (Result<usize, Error>, bool) {
    let fake = Fake::greeting(move |socket| {
        hear(socket);
        let _ = socket.write_all(&bytes);
    });
    let mut conn = Conn::connect(&fake.config).unwrap();
    let result = conn.simple("SELECT 1").map(|sets| sets.len());
    let poisoned = conn.is_poisoned();
    fake.join();
    (result, poisoned)
}

#[test]
fn an_answer_that_is_none_poisons() {
    let columns = message(b'T', b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0");
    let whole = [columns.clone(), message(b'D', b"\0\x01\0\0\0\x01x"), message(b'C', b"SELECT 1\0"), ready()].concat();
    assert!(matches!(answered_with(whole), (Ok(1), false)));
    for wrong in [
        message(b'D', b"\0\x01\0\0\0\x01x"),
        [columns.clone(), message(b'D', b"\0\x02\0\0\0\x01x")].concat(),
        [columns.clone(), message(b'D', b"\0\x01\0\0\0\x09x")].concat(),
        [columns.clone(), message(b'D', b"\0\x01\xff\xff\xff\xfe")].concat(),
        [columns.clone(), message(b'D', b"\0\x01\0\0\0\x01\xff")].concat(),
        [columns, message(b'D', b"\0\x01\0\0\0\x01xy")].concat(),
        message(b'T', b"\0\x05a\0"),
        message(b'Z', b"?"),
        message(b'E', b"SERROR"),
        message(b'W', b"\0\0\0"),
        message(b'd', b"x"),
        message(b'?', b""),
        b"Z\0\0\0\0".to_vec(),
    ] {
        let (result, poisoned) = answered_with(wrong.clone());
        assert!(matches!(result, Err(Error::Protocol(_))) && poisoned, "{wrong:?}: {result:?}");
    }
    assert!(matches!(answered_with(message(b'C', b"SELECT 1\0")), (Err(Error::Closed(None)), true)));
    let fatal = message(b'E', b"SFATAL\0VFATAL\0C57P01\0Mbye\0\0");
    assert!(matches!(answered_with(fatal), (Err(Error::Closed(Some(_))), true)));
}

/// All events of these bytes, and the error that ends them.
fn streamed(bytes: Vec<u8>) -> (usize, Error) {
    let fake = Fake::greeting(move |socket| {
        hear(socket);
        let _ = socket.write_all(&[message(b'W', b"\0\0\0"), bytes].concat());
    });
    let mut stream = replication::Conn::connect(&fake.config).unwrap().start("s", PgLsn::ZERO, &everything()).unwrap();
    let mut events = 0;
    let error = loop {
        match stream.next(Some(Instant::now() + Duration::from_secs(5))) {
            Ok(Event::Idle) => panic!("idle"),
            Ok(_) => events += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(stream.next(None), Err(Error::Poisoned | Error::Closed(_))));
    fake.join();
    (events, error)
}

#[test]
fn a_stream_that_breaks_the_protocol_ends() {
    let data = [&b"w"[..], &[0; 24], b"body"].concat();
    let alive = [&b"k"[..], &[0; 16], &[1]].concat();
    let (data, alive) = (message(b'd', &data), message(b'd', &alive));
    let good = [data.clone(), alive.clone(), message(b'N', b"SNOTICE\0M?\0\0"), message(b'S', b"a\0b\0"), data.clone()]
        .concat();
    assert!(matches!(streamed(good.clone()), (3, Error::Closed(None))));
    for (wrong, closed) in [
        (message(b'd', b""), false),
        (message(b'd', b"x"), false),
        (message(b'd', &[b'w'; 24]), false),
        (message(b'd', &[b'k'; 17]), false),
        (message(b'd', &[b'k'; 18]), false),
        (message(b'd', &[b'k'; 19]), false),
        (message(b'T', b"\0\0"), false),
        (message(b'c', b""), true),
        (message(b'C', b"COPY 0\0"), true),
    ] {
        let (events, error) = streamed([good.clone(), wrong.clone()].concat());
        let expected = if closed { matches!(error, Error::Closed(None)) } else { matches!(error, Error::Protocol(_)) };
        assert!(events == 3 && expected, "{wrong:?}: {events} {error:?}");
    }
    let error = message(b'E', b"SERROR\0VERROR\0C58P01\0Mgone\0\0");
    assert!(matches!(streamed([good, error].concat()), (3, Error::Server(_))));
}

#[test]
fn a_message_is_put_together_from_any_pieces() {
    let body = [&b"w"[..], &[7; 24], &[9; 3000]].concat();
    let bytes: Vec<u8> = std::iter::repeat_n(message(b'd', &body), 5).flatten().collect();
    let fake = Fake::greeting(move |socket| {
        hear(socket);
        socket.set_nodelay(true).unwrap();
        let _ = socket.write_all(&message(b'W', b"\0\0\0"));
        for (i, piece) in bytes.chunks(61).enumerate() {
            socket.write_all(piece).unwrap();
            if i % 50 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let mut stream = replication::Conn::connect(&fake.config).unwrap().start("s", PgLsn::ZERO, &everything()).unwrap();
    let mut events = 0;
    while events < 5 {
        // A deadline that passes in the middle of a message loses nothing of it.
        match stream.next(Some(Instant::now() + Duration::from_micros(100))).unwrap() {
            Event::Idle => {}
            Event::XLogData { start, body, .. } => {
                assert_eq!((start, body), (PgLsn(0x0707_0707_0707_0707), &[9; 3000][..]));
                events += 1;
            }
            Event::Keepalive { .. } => panic!(),
        }
    }
    drop(stream);
    fake.join();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbage_never_panics_and_always_ends(
        pieces in prop::collection::vec((prop::sample::select(&b"RSKZTDCEINAdcHGW12tns?"[..]), prop::collection::vec(any::<u8>(), 0..40)), 0..12),
        raw: Vec<u8>,
    ) {
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|(tag, body)| message(*tag, body)).collect();
        bytes.extend(raw);
        greeted_with_anything(&bytes);
        let _ = answered_with(bytes.clone());
        let fake = Fake::greeting(move |socket| {
            hear(socket);
            let _ = socket.write_all(&[message(b'W', b"\0\0\0"), bytes].concat());
        });
        let started = replication::Conn::connect(&fake.config).unwrap().start("s", PgLsn::ZERO, &everything());
        if let Ok(mut stream) = started {
            while stream.next(Some(Instant::now() + Duration::from_secs(5))).is_ok() {}
        }
        fake.join();
    }
}

fn greeted_with_anything(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let fake = Fake::new(move |socket| {
        startup(socket);
        let _ = socket.write_all(&bytes);
    });
    let mut config = fake.config.clone();
    config.password = Some(Password("secret".to_owned()));
    let _ = Conn::connect(&config);
    fake.join();
}
