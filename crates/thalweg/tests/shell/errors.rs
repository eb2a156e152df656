//! Error messages: the cause first, then the remedy.

use crate::rig::Rig;

#[test]
fn a_host_that_nobody_has_is_said_at_once() {
    let rig = Rig::alone();
    let began = std::time::Instant::now();
    for line in ["stream ls", "backup --to @b", "status"] {
        let said = rig.fails(&format!("{line} --server http://nowhere.invalid:4437"), 6);
        assert!(said.contains("no host has the name in http://nowhere.invalid:4437"), "{said}");
    }
    assert!(began.elapsed().as_secs() < 30, "it is not tried again and again");
}

#[test]
fn a_host_and_port_are_enough() {
    let rig = Rig::start(&[]);
    for line in ["stream ls", "backup --to @b", "status --quiet"] {
        rig.ok(&format!("{line} --server {}", rig.address));
    }
}

#[test]
fn a_data_folder_that_cannot_be_one_is_said_to_be_what_it_is() {
    let rig = Rig::alone();
    std::os::unix::fs::symlink("/nowhere/at/all", rig.path("link")).unwrap();
    std::fs::write(rig.path("file"), "").unwrap();
    assert!(rig.fails("serve --data @link", 1).contains("is a symbolic link to /nowhere/at/all, which is not there"));
    assert!(rig.fails("serve --data @file", 1).contains("is a file and not a folder"));
    let said = rig.fails("serve --data @d --database-url mysql://u:p@h/d --shape-insecure on", 1);
    assert!(said.contains("begins with mysql://") && said.contains("postgres://USER"), "{said}");
}

#[test]
fn tokens_for_patterns_and_for_the_past_are_refused() {
    let rig = Rig::alone();
    assert!(rig.fails("token new --name a --read chat*", 1).contains("write `chat/` for all"));
    assert!(rig.fails("token new --name a --read chat --expires 2020-01-01T00:00:00Z", 1).contains("is over already"));
    let said = rig.fails("token new --name a --read chat --expires tomorrow", 1);
    assert!(said.contains("2030-01-31T12:00:00Z") && !said.contains("failed to parse"), "{said}");
    rig.ok("token new --name a --read *");
}

/// The log's complete lines, once it says that the server listens: a separate thread writes them, perhaps after the
/// ready file.
fn until_listening(rig: &Rig) -> String {
    rig.until("the log says so", || {
        let log = rig.log();
        let whole = log.rfind('\n').map_or("", |end| &log[..=end]);
        whole.contains("listening on").then(|| whole.to_owned())
    })
}

#[test]
fn a_log_for_programs_has_no_banner_beside_it() {
    let mut rig = Rig::alone();
    let out = std::fs::File::create(rig.path("out")).unwrap();
    let log = std::fs::File::create(rig.path("log")).unwrap();
    rig.serve(&["--log-format", "json"], |command| command.stdout(out).stderr(log));
    assert_eq!(std::fs::read_to_string(rig.path("out")).unwrap(), "");
    let said = until_listening(&rig);
    assert!(said.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{said}");
    let listening = said.lines().find(|line| line.contains("listening on")).unwrap();
    assert!(listening.contains(&rig.address) && listening.contains("no tokens"), "{listening}");
}

#[test]
fn the_first_lines_of_a_new_server_do_not_read_like_a_fault() {
    let rig = Rig::start(&[]);
    // Tests may run as root, which gives a separate warning.
    let said: String =
        until_listening(&rig).split_inclusive('\n').filter(|line| !line.contains("runs as root")).collect();
    assert!(said.contains("opened the data folder") && said.contains("listening on http://"), "{said}");
    for word in ["WARN", "ERROR", "stopped", "recovered"] {
        assert!(!said.contains(word), "{said}");
    }
}

#[test]
fn a_webhook_that_fails_says_why() {
    let rig = Rig::start(&["--webhook-targets", "local"]);
    rig.append("a", "one");
    let body = r#"{"type":"webhook","pattern":"a","webhook":{"url":"http://127.0.0.1:1/"}}"#;
    let request = format!(
        "PUT /v1/stream/__ds/subscriptions/s HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        rig.address,
        body.len()
    );
    let mut socket = std::net::TcpStream::connect(&rig.address).unwrap();
    std::io::Write::write_all(&mut socket, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut socket, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    rig.append("a", "two");
    let line = rig.until("the delivery has failed", || {
        rig.log().lines().find(|line| line.contains("a webhook delivery failed")).map(str::to_owned)
    });
    assert!(line.contains("WARN") && line.contains("refused"), "{line}");
}

#[test]
fn an_address_in_use_and_a_missing_key_say_what_to_do() {
    let rig = Rig::start(&[]);
    let said = rig.fails(&format!("serve --data @other --listen {}", rig.address), 1);
    assert!(said.contains("cannot listen on") && said.contains("another port with --listen"), "{said}");
    let said = rig.fails("token sign --data @nowhere --prefix a", 1);
    assert!(said.contains("there is no key") && said.contains("--tokens or --database-url makes it"), "{said}");
}

#[test]
fn status_of_an_address_with_a_path_says_what_an_address_is() {
    let rig = Rig::start(&[]);
    let said = rig.fails(&format!("status --server {}/v1/stream", rig.url()), 1);
    assert!(said.contains("/v1/stream/health is not there") && said.contains("without a path"), "{said}");
}
