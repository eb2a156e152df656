use crate::client::{Client, eventually, get, post};
use crate::identity::{self, Identity};
use crate::service::{Stand, stand, stand_with};
use rustls::{ClientConnection, ProtocolVersion};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_http::{IdentityError, TlsIdentity};

const SHORT: Duration = Duration::from_millis(150);

fn socket(stand: &Stand) -> TcpStream {
    let socket = TcpStream::connect(stand.server.local_addr()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// A whole exchange by another identity's client.
fn ask(stand: &Stand, identity: &Identity) -> std::io::Result<(ClientConnection, String)> {
    let (mut session, mut socket) = (identity.session(), socket(stand));
    let mut said = String::new();
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
    stream.read_to_string(&mut said)?;
    Ok((session, said))
}

#[test]
fn both_versions_are_spoken_and_the_end_is_said() {
    let stand = stand();
    for (version, number) in
        [(&rustls::version::TLS12, ProtocolVersion::TLSv1_2), (&rustls::version::TLS13, ProtocolVersion::TLSv1_3)]
    {
        // `read_to_string` fails if the connection ends without `close_notify`.
        let (session, said) = ask(&stand, &identity::own().speaking(version)).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("/a"), "{said}");
        assert_eq!((session.protocol_version(), session.alpn_protocol()), (Some(number), Some(&b"http/1.1"[..])));
    }
}

#[test]
fn another_protocol_is_refused_and_none_is_taken_for_http() {
    let stand = stand();
    let h2 = identity::own().changed(|client| client.alpn_protocols = vec![b"h2".to_vec()]);
    assert!(ask(&stand, &h2).is_err());
    let none = identity::own().changed(|client| client.alpn_protocols.clear());
    assert!(ask(&stand, &none).is_ok());
    eventually(|| stand.server.stats().connections_active == 0);
}

#[test]
fn a_returning_client_resumes_its_session() {
    let (stand, identity) = (stand(), identity::own().changed(|_| {}));
    let kind = |n| (n, ask(&stand, &identity).unwrap().0.handshake_kind());
    assert_eq!(kind(1), (1, Some(rustls::HandshakeKind::Full)));
    assert_eq!(kind(2), (2, Some(rustls::HandshakeKind::Resumed)));
}

#[test]
fn a_handshake_that_stalls_is_cut_off() {
    let stand = stand_with(|config| config.header_timeout = SHORT);
    let start = Instant::now();
    let mut silent = socket(&stand);
    let mut trickling = socket(&stand);
    let mut hello = Vec::new();
    identity::own().session().write_tls(&mut hello).unwrap();
    for byte in &hello {
        if trickling.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut rest = Vec::new();
    let _ = trickling.read_to_end(&mut rest);
    let _ = silent.read_to_end(&mut rest);
    assert!(start.elapsed() < SHORT * 30, "{:?}", start.elapsed());
    eventually(|| stand.server.stats().connections_active == 0);
    assert_eq!(stand.paths.handled.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn garbage_and_records_that_were_changed_end_the_connection_alone() {
    let stand = stand();
    let mut good = Client::new(&stand.server);
    assert_eq!(good.get("/before").status, 200);
    let mut rng = oorandom::Rand32::new(11);
    for round in 0..200 {
        let mut bytes = Vec::new();
        identity::own().session().write_tls(&mut bytes).unwrap();
        if round % 2 == 0 {
            bytes = (0..300).map(|_| rng.rand_u32() as u8).collect();
            // No method begins with this byte.
            bytes[0] = 0x80;
        } else {
            let at = rng.rand_range(0..bytes.len() as u32) as usize;
            bytes[at] ^= 1 << rng.rand_range(0..8);
            bytes.truncate(rng.rand_range(1..bytes.len() as u32) as usize);
        }
        let _ = socket(&stand).write_all(&bytes);
    }
    eventually(|| stand.server.stats().connections_active == 1);
    assert_eq!(good.get("/after").status, 200);
}

#[test]
fn plain_http_is_told_to_speak_tls() {
    let stand = stand();
    let mut socket = socket(&stand);
    socket.write_all(&post("/echo", &[b'x'; 100_000])).unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 400 Bad Request\r\n") && said.contains("https"), "{said}");
    drop(socket);
    eventually(|| stand.server.stats().connections_active == 0);
}

#[test]
fn a_cut_is_not_taken_for_an_end() {
    let stand = stand();
    let (mut session, mut socket) = (identity::own().session(), socket(&stand));
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    stream.write_all(b"GET /abort?5000000 HTTP/1.0\r\n\r\n").unwrap();
    assert!(stream.read_to_end(&mut Vec::new()).is_err());
    // Conversely, half a body and the end of the socket is no request.
    let handled = || stand.paths.handled.load(std::sync::atomic::Ordering::SeqCst);
    let before = handled();
    let mut client = Client::new(&stand.server);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    drop(client);
    eventually(|| stand.server.stats().connections_active == 0);
    assert_eq!(handled(), before);
}

#[test]
fn large_bodies_go_both_ways_through_small_records() {
    let stand = stand();
    let small = identity::own().changed(|client| client.max_fragment_size = Some(512));
    let (mut session, mut socket) = (small.session(), socket(&stand));
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    let mut request =
        format!("POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    request.extend(&body);
    stream.write_all(&request).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert!(said.ends_with(&body));
}

#[test]
fn many_connections_share_one_event_loop() {
    let stand = stand();
    let mut clients: Vec<_> = (0..300).map(|_| Client::new(&stand.server)).collect();
    for _ in 0..2 {
        clients.iter_mut().for_each(|client| client.send(get("/many?70000")));
        clients.iter_mut().for_each(|client| assert_eq!(client.answer().body.len(), 70_000));
    }
}

#[test]
fn a_new_certificate_is_for_the_connections_to_come() {
    let server = identity::own().server();
    let stand = stand_with(|config| config.tls = Some(Arc::clone(&server)));
    let mut old = Client::new(&stand.server);
    assert_eq!(old.get("/a").status, 200);
    let next = Identity::new();
    assert!(ask(&stand, &next).is_err());
    assert!(server.replace(next.certificate.as_bytes(), b"no key").is_err());
    assert!(ask(&stand, &identity::own()).is_ok());
    server.replace(next.certificate.as_bytes(), next.key.as_bytes()).unwrap();
    assert!(ask(&stand, &next).is_ok());
    assert!(ask(&stand, &identity::own()).is_err());
    assert_eq!(old.get("/b").status, 200);
}

#[test]
fn a_certificate_that_cannot_be_served_says_why() {
    let (one, other) = (identity::own(), Identity::new());
    let why = |certificate: &str, key: &str| TlsIdentity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
    assert!(matches!(why(&one.certificate, &other.key), IdentityError::Mismatch));
    assert!(matches!(why(&one.key, &one.key), IdentityError::NoCertificate));
    assert!(matches!(why("", &one.key), IdentityError::NoCertificate));
    assert!(matches!(why(&one.certificate, &one.certificate), IdentityError::NoKey));
    assert!(matches!(why(&one.certificate, ""), IdentityError::NoKey));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(matches!(why(&one.certificate, encrypted), IdentityError::Encrypted));
    let cut = &one.certificate[..one.certificate.len() / 2];
    assert!(matches!(why(cut, &one.key), IdentityError::NotPem(_) | IdentityError::NoCertificate));
    let rubbish = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(why(rubbish, &one.key), IdentityError::Unusable(_) | IdentityError::Mismatch));
}
