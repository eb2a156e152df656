//! Against a server that behaves badly by a script.

use crate::rig::{command, finish, said};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Output;
use std::time::{Duration, Instant};

/// Answers one request per connection with these texts, in turn; returns the requests, head and body, and the command's
/// output.
fn against(line: &str, input: &str, answers: &[&str]) -> (Vec<String>, Output) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut command = command(&format!("http://{address}"), line);
    command.env("THALWEG_TOKEN", "s3cret");
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).replace('\n', "\r\n")).collect();
    let script = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            let (mut request, mut length) = (String::new(), 0);
            loop {
                let begin = request.len();
                reader.read_line(&mut request).unwrap();
                let line = request[begin..].to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            request.push_str(&String::from_utf8(body).unwrap());
            requests.push(request);
            socket.write_all(answer.as_bytes()).unwrap();
        }
        requests
    });
    let output = finish(command, input);
    (script.join().unwrap(), output)
}

const BUSY: &str = "HTTP/1.1 503 x\nretry-after: 1\nconnection: close\ncontent-length: 0\n\n";
const APPENDED: &str = "HTTP/1.1 200 OK\nstream-next-offset: b\nconnection: close\ncontent-length: 0\n\n";

#[test]
fn an_overloaded_server_is_given_the_time_that_it_asks_for() {
    let begin = Instant::now();
    let (requests, output) = against("append x --content-type text/plain", "hello", &[BUSY, APPENDED]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(begin.elapsed() >= Duration::from_secs(1));
    let producer = |request: &str| -> Vec<String> {
        request.lines().filter(|line| line.starts_with("producer-")).map(str::to_owned).collect()
    };
    assert_eq!(producer(&requests[0]).len(), 3);
    assert_eq!(producer(&requests[0]), producer(&requests[1]), "so that the server can tell that it is the same");
    assert!(requests[1].ends_with("\r\n\r\nhello"));
}

#[test]
fn a_run_whose_producer_was_taken_over_goes_on_with_another() {
    let refusal = "HTTP/1.1 403 x\nconnection: close\ncontent-length: 45\n\n\
                   {\"error\":{\"code\":\"stale_epoch\",\"message\":\"\"}}";
    let (requests, output) = against("append x --content-type text/plain", "hello", &[refusal, APPENDED]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(requests.iter().all(|request| request.contains("producer-seq: 0\r\n")), "{requests:?}");
    let epoch = |request: &str| -> u64 {
        let line = request.lines().find_map(|line| line.strip_prefix("producer-epoch: ")).unwrap();
        line.parse().unwrap()
    };
    assert!(epoch(&requests[1]) > epoch(&requests[0]));
    let (requests, output) = against("append x --content-type text/plain", "hello", &[refusal; 16]);
    assert_eq!((requests.len(), output.status.code()), (16, Some(4)), "it does not go on for ever");
    let (_, output) = against("append x --content-type text/plain --producer me", "hello", &[refusal]);
    assert_eq!(output.status.code(), Some(4), "a name of one's own is not given up");
    let (_, output) = against("append x --content-type text/plain", "hello", &[BUSY, refusal]);
    assert_eq!(output.status.code(), Some(4), "the result of the first request is unknown");
}

#[test]
fn a_refusal_is_shown_and_not_repeated() {
    let refusal = "HTTP/1.1 413 x\nconnection: close\ncontent-length: 60\n\n\
                   {\"error\":{\"code\":\"too_large\",\"message\":\"at most 32 bytes\"}} ";
    let (_, output) = against("append x --content-type text/plain", "hello", &[refusal]);
    assert_eq!(output.status.code(), Some(5));
    assert!(said(&output).contains("413 too_large: at most 32 bytes"), "{}", said(&output));
}

#[test]
fn a_page_that_was_cut_off_is_completed() {
    const HEAD: &str = "HTTP/1.1 200 OK\ncontent-type: text/plain\nstream-next-offset: b\nstream-up-to-date: true\n\
                        connection: close\ncontent-length: 10\n\n";
    let (requests, output) = against("read x", "", &[&format!("{HEAD}0123"), &format!("{HEAD}0123456789")]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0123456789", "{}", said(&output));
    assert!(output.status.success());
    assert!(requests[1].starts_with("GET /v1/stream/x?offset=-1 "), "{}", requests[1]);
}

#[test]
fn tail_echoes_the_cursor_with_parameters_in_order() {
    let poll = |next: &str| {
        format!(
            "HTTP/1.1 204 x\nstream-next-offset: {next}\nstream-up-to-date: true\nstream-cursor: 7\nconnection: close\n\n"
        )
    };
    let end = "HTTP/1.1 204 x\nstream-next-offset: a\nstream-closed: true\nconnection: close\n\n";
    let (requests, output) = against("tail x --from a", "", &[&poll("a"), end]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(requests[0].starts_with("GET /v1/stream/x?live=long-poll&offset=a "), "{}", requests[0]);
    assert!(requests[1].starts_with("GET /v1/stream/x?cursor=7&live=long-poll&offset=a "), "{}", requests[1]);
}

#[test]
fn the_token_goes_to_the_server_that_was_named_and_to_no_other() {
    let (requests, _) = against("close x", "", &[APPENDED]);
    assert!(requests[0].contains("authorization: Bearer s3cret\r\n"), "{}", requests[0]);

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/stream/x", other.local_addr().unwrap());
    let mut elsewhere = command("http://127.0.0.1:1", &format!("close {url}"));
    let mut child = elsewhere.env("THALWEG_TOKEN", "s3cret").spawn().unwrap();
    let mut socket = other.accept().unwrap().0;
    let mut head = vec![0; 4096];
    let read = socket.read(&mut head).unwrap();
    socket.write_all(APPENDED.replace('\n', "\r\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!String::from_utf8_lossy(&head[..read]).contains("s3cret"));
}

#[test]
fn what_is_sent_elsewhere_is_not_followed() {
    let away = "HTTP/1.1 301 x\nlocation: https://example.org/\nconnection: close\ncontent-length: 0\n\n";
    let (_, output) = against("read x", "", &[away]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("https://example.org/"), "{}", said(&output));
}

#[test]
fn a_list_is_read_page_by_page() {
    let page = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\ncontent-type: application/json\nconnection: close\ncontent-length: {}\n\n{body}",
            body.len()
        )
    };
    let one = r#"{"streams":[{"name":"a/1","contentType":"text/plain","nextOffset":"7","closed":true}],"next":"a/1"}"#;
    let two = r#"{"streams":[{"name":"a/2","contentType":"a/b","nextOffset":"8","bytes":1,"closed":false,"forks":1}],"next":null}"#;
    let (requests, output) = against("ls --prefix a/ --long", "", &[&page(one), &page(two)]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "NAME  SIZE  TYPE        STATE   KEEPS\na/1      -  text/plain  closed  all\na/2    1 B  a/b         open    all    1 forks\n",
        "{}",
        said(&output)
    );
    assert!(requests[0].starts_with("GET /v1/stream/__ds/streams?limit=1000&prefix=a%2F "), "{}", requests[0]);
    assert!(
        requests[1].starts_with("GET /v1/stream/__ds/streams?after=a%2F1&limit=1000&prefix=a%2F "),
        "{}",
        requests[1]
    );
}
