//! Inputs that must be refused, and similar ones that must not.

use super::fuzz::{SMALL, Said, Seen, listen};

fn say(bytes: impl AsRef<[u8]>) -> Said {
    listen([bytes.as_ref()], SMALL)
}

#[track_caller]
fn refused(bytes: impl AsRef<[u8]>, status: u16) {
    let said = say(bytes);
    assert_eq!(said.refusal.map(|r| r.status), Some(status), "{said:?}");
    assert_eq!(said.requests.len(), 0, "{said:?}");
}

#[track_caller]
fn taken(bytes: impl AsRef<[u8]>) -> Seen {
    let said = say(bytes);
    assert_eq!((said.refusal, said.requests.len()), (None, 1));
    said.requests.into_iter().next().unwrap()
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked", body)
}

#[test]
fn both_lengths_are_refused() {
    refused(post("Content-Length: 3\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), 400);
    refused(post("Transfer-Encoding: chunked\r\nContent-Length: 3", "0\r\n\r\n"), 400);
}

#[test]
fn more_than_one_content_length_is_refused() {
    refused(post("Content-Length: 3\r\nContent-Length: 4", "abcd"), 400);
    refused(post("Content-Length: 3\r\ncontent-length: 3", "abc"), 400);
    refused(post("Content-Length: 5, 5", "abcde"), 400);
    refused(post("Content-Length: 5,6", "abcde"), 400);
}

#[test]
fn a_content_length_that_is_no_number_is_refused() {
    for bad in ["+3", "-3", "3 3", "0x3", "3.", "", "18446744073709551616", "99999999999999999999999", "3;", "\u{0663}"]
    {
        refused(post(&format!("Content-Length: {bad}"), "abc"), 400);
    }
}

#[test]
fn a_transfer_coding_other_than_chunked_is_refused() {
    for bad in ["gzip", "gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunked;q=1", "", "\"chunked\""] {
        refused(post(&format!("Transfer-Encoding: {bad}"), "0\r\n\r\n"), 501);
    }
    refused(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), 400);
    refused(post("Transfer-Encoding: \x0bchunked", "0\r\n\r\n"), 400);
    refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
}

#[test]
fn a_malformed_chunk_is_refused() {
    for bad in [
        "\r\nabc\r\n",
        ";x\r\n",
        "3xyz\r\n",
        "g\r\n",
        "-1\r\n",
        "+1\r\n",
        " 3\r\nabc\r\n",
        "3 \r\nabc\r\n",
        "0x3\r\nabc\r\n",
        "3\nabc\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\rabc\r\n",
        "3;a\nb\r\nabc\r\n",
        "3;a\0\r\nabc\r\n",
        "00000000000000003\r\nabc\r\n",
        "0\r\nx\r\n",
        "0\r\n: v\r\n\r\n",
        "0\r\n folded\r\n\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\nA: \0\r\n\r\n",
        "0\r\n\n",
    ] {
        refused(chunked(bad), 400);
    }
}

#[test]
fn a_chunk_size_that_overflows_is_too_large() {
    refused(chunked("ffffffffffffffff\r\n"), 413);
    refused(chunked("1001\r\n"), 413);
    refused(chunked(&format!("1000\r\n{}\r\n1\r\n", "x".repeat(4096))), 413);
}

#[test]
fn endless_extensions_and_trailers_are_refused() {
    refused(chunked(&format!("1;{}\r\n", "x".repeat(2000))), 431);
    refused(chunked(&"1;aaaaaaaaa\r\nx\r\n".repeat(200)), 431);
    refused(chunked(&format!("0\r\n{}", "a: b\r\n".repeat(1000))), 431);
}

#[test]
fn extensions_and_trailers_are_skipped() {
    let seen = taken(chunked("3;a=b;c=\"d e\"\r\nabc\r\n00a\r\n0123456789\r\n0;last\r\nT: 1\r\nU:\r\n\r\n"));
    assert_eq!(seen.body, b"abc0123456789");
    assert!(seen.fields.iter().all(|(name, _)| name != "T"));
}

#[test]
fn folded_header_fields_are_refused() {
    refused("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\tc\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400);
}

#[test]
fn bare_cr_lf_and_nul_are_refused() {
    refused("GET / HTTP/1.1\nHost: h\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: h\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: h\r\n\n", 400);
    refused("GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\r\n\r\n", 400);
    refused("GET / HTTP/1.1\rHost: h\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: h\r\nA\0: b\r\n\r\n", 400);
    refused("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    refused("\n", 400);
}

#[test]
fn a_malformed_field_name_is_refused() {
    for bad in ["A : b", "A b: c", ": b", "A", "A\t: b", "\u{e9}: b", "A(: b"] {
        refused(format!("GET / HTTP/1.1\r\nHost: h\r\n{bad}\r\n\r\n"), 400);
    }
    refused("GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400);
}

#[test]
fn a_malformed_method_is_refused() {
    for bad in ["G(T", "", " ", "G\tT", "\u{e9}", "GET@"] {
        refused(format!("{bad} / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    }
    refused([0x16, 0x03, 0x01, 0x02, 0x00], 400);
}

#[test]
fn host_is_needed_once() {
    refused("GET / HTTP/1.1\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    refused("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400);
    for bad in ["a b", "a,b", "a/b", "u@h", "a\\b", "\u{e9}"] {
        refused(format!("GET / HTTP/1.1\r\nHost: {bad}\r\n\r\n"), 400);
    }
    taken("GET / HTTP/1.0\r\n\r\n");
    taken("GET / HTTP/1.1\r\nHost:\r\n\r\n");
    taken("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
}

#[test]
fn a_malformed_target_is_refused() {
    for bad in [
        "a",
        "*",
        "host:80",
        "//\u{e9}",
        "/\u{e9}",
        "/a\x7f",
        "/a\tb",
        "/a#b",
        "ftp://h/",
        "http:///a",
        "http:/a",
        "?a",
    ] {
        refused(format!("GET {bad} HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    }
    refused("CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 400);
}

#[test]
fn targets_are_reduced_to_path_and_query() {
    let target = |method: &str, target: &str| {
        let seen = taken(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        (seen.path, seen.query)
    };
    let some = |s: &str| Some(s.to_owned());
    assert_eq!(target("GET", "/a%20b?c=d?e"), ("/a%20b".to_owned(), some("c=d?e")));
    assert_eq!(target("GET", "/?"), ("/".to_owned(), some("")));
    assert_eq!(target("GET", "http://h:1/a/b?c"), ("/a/b".to_owned(), some("c")));
    assert_eq!(target("GET", "HTTPS://h"), ("/".to_owned(), None));
    assert_eq!(target("GET", "http://h?c"), ("/".to_owned(), some("c")));
    assert_eq!(target("OPTIONS", "*"), ("*".to_owned(), None));
}

#[test]
fn other_versions_are_refused() {
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    refused("GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505);
    refused("GET / HTTP/0.9\r\n\r\n", 505);
    refused("GET / http/1.1\r\nHost: h\r\n\r\n", 505);
    refused("GET / HTTP/1.10\r\nHost: h\r\n\r\n", 400);
}

#[test]
fn heads_have_a_bound() {
    refused(format!("GET /{} HTTP/1.1\r\n", "a".repeat(2000)), 414);
    refused("a".repeat(1024), 414);
    refused(format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "a".repeat(1000)), 431);
    let fields = "a:b\r\n".repeat(129);
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let limits = super::Limits { head: 4096, body: 0 };
    assert_eq!(listen([many.as_bytes()], limits).refusal.map(|r| r.status), Some(431));
}

#[test]
fn a_head_of_exactly_the_limit_is_taken() {
    let head = "GET / HTTP/1.1\r\nHost: h\r\nA: ";
    taken(format!("{head}{}\r\n\r\n", "a".repeat(1024 - 4 - head.len())));
    refused(format!("{head}{}\r\n\r\n", "a".repeat(1025 - 4 - head.len())), 431);
}

#[test]
fn a_body_that_announces_too_much_is_refused_at_once() {
    refused(post("Content-Length: 4097", ""), 413);
    refused(post("Content-Length: 4097\r\nExpect: 100-continue", ""), 413);
    assert_eq!(taken(post("Content-Length: 4096", &"x".repeat(4096))).body.len(), 4096);
}

#[test]
fn only_100_continue_can_be_expected() {
    refused(post("Expect: 200-ok", ""), 417);
    assert_eq!(say(post("Content-Length: 3\r\nExpect: 100-Continue", "")).continues, 1);
    assert_eq!(say(chunked("").replace("Host: h", "Host: h\r\nExpect: 100-continue")).continues, 1);
    assert_eq!(
        say(post("Content-Length: 3\r\nExpect: 100-continue", "a")).continues,
        0,
        "its body is on the way already"
    );
    assert_eq!(say(post("Content-Length: 0\r\nExpect: 100-continue", "")).continues, 0);
    assert_eq!(say("POST / HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").continues, 0);
}

#[test]
fn connection_options_decide_over_keep_alive() {
    let keep = |version: &str, fields: &str| taken(format!("GET / {version}\r\nHost: h\r\n{fields}\r\n")).keep_alive;
    assert!(keep("HTTP/1.1", ""));
    assert!(!keep("HTTP/1.1", "Connection: close\r\n"));
    assert!(!keep("HTTP/1.1", "Connection: x, Close\r\n"));
    assert!(!keep("HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
    assert!(!keep("HTTP/1.0", ""));
    assert!(keep("HTTP/1.0", "Connection: Keep-Alive\r\n"));
}

#[test]
fn one_empty_line_before_a_request_is_let_pass() {
    taken("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    refused("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
}

#[test]
fn a_smuggled_request_is_never_seen() {
    let inner = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    for fields in [
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding: chunked\r\n\x20, identity",
        "X: y\nTransfer-Encoding: chunked",
        "Content-Length: 0\r\nContent-Length: 43",
        "Content-Length: 0,43",
        "Content-Length:\x0043",
        "Content-Length: 4_3",
    ] {
        let said = say(post(fields, inner));
        assert!(said.requests.is_empty() && said.refusal.is_some(), "{fields}: {said:?}");
    }
    let said = say(post(&format!("Content-Length: {}", inner.len()), inner));
    assert_eq!((said.requests.len(), said.refusal), (1, None));
    let said = say(chunked(&format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len())));
    assert_eq!((said.requests.len(), said.refusal), (1, None));
}

#[test]
fn a_head_is_judged_once_and_before_anything_is_said_of_the_body() {
    let step = |reads: &[&str], turn: bool| {
        let (mut buf, mut framer, mut judged, mut last) = (Vec::new(), super::Framer::new(), 0, None);
        for read in reads {
            buf.extend_from_slice(read.as_bytes());
            let judge = |head: &crate::Request<'_>| {
                assert!(head.path == "/a" && head.body.is_empty());
                judged += 1;
                turn.then_some("turned")
            };
            last = Some(framer.step(&mut buf, 0, SMALL, judge, |_, _| "whole").map_err(|refusal| refusal.status));
            if matches!(last, Some(Ok(super::Step::Turned(..)) | Err(_))) {
                break;
            }
        }
        (judged, last.unwrap())
    };
    let (head, large) = (post("Content-Length: 4", "ab"), post("Content-Length: 99999", ""));
    assert!(matches!(step(&[&head], true), (1, Ok(super::Step::Turned(manner, "turned"))) if !manner.keep_alive));
    assert!(matches!(step(&[&chunked("2\r\nab")], true), (1, Ok(super::Step::Turned(..)))));
    assert!(matches!(step(&[&large], true), (1, Ok(super::Step::Turned(..)))));
    assert!(matches!(step(&[&large], false), (1, Err(413))));
    assert!(matches!(step(&[&head, "c", "d"], false), (1, Ok(super::Step::Request(.., "whole")))));
    assert!(matches!(step(&[&post("Content-Length: 2", "ab")], true), (0, Ok(super::Step::Request(.., "whole")))));
}
