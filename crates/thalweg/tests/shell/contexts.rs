//! Servers and tokens under names.

use crate::rig::{Rig, said};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

/// A server that asks for tokens, and a token that may do everything.
fn guarded() -> (Rig, String) {
    let mut rig = Rig::alone();
    let made = rig.run("token new --name ops --admin *");
    std::fs::write(rig.path("tokens.toml"), &made.stdout).unwrap();
    let token = said(&made).lines().last().unwrap().to_owned();
    let tokens = rig.path("tokens.toml");
    rig.serve(&["--tokens", tokens.to_str().unwrap()], |command| command.stdout(Stdio::null()).stderr(Stdio::null()));
    (rig, token)
}

#[test]
fn a_context_keeps_server_and_token_for_every_command() {
    let (rig, token) = guarded();
    let url = rig.url();
    let mut add = rig.command("context add prod --token - --use");
    let mut add = add.arg("--server").arg(&url).stdin(Stdio::piped()).spawn().unwrap();
    add.stdin.take().unwrap().write_all(format!("{token}\n").as_bytes()).unwrap();
    assert!(add.wait().unwrap().success());
    // Only the context has the server and the credentials.
    let run = |line: &str| rig.command(line).env_remove("THALWEG_SERVER").output().unwrap();
    let ok = |line: &str| {
        let output = run(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    ok("stream create a --content-type text/plain");
    assert_eq!(ok("stream ls"), "a\n");
    assert!(ok("status").contains(&format!("{url} (context prod)")));
    ok("backup --to @backups");
    let listed = ok("context ls");
    assert!(listed.contains("prod") && listed.contains(&url) && !listed.contains(&token), "{listed}");
    assert!(!ok("context ls --json").contains(&token));

    // The token is for that server only.
    let other = run(&format!("stream ls --server {}", rig.url().replace("127.0.0.1", "localhost")));
    assert_eq!(other.status.code(), Some(7), "{}", said(&other));

    ok("context use --none");
    assert_eq!(ok("stream ls --context prod"), "a\n");
    let by_name =
        rig.command("stream ls").env_remove("THALWEG_SERVER").env("THALWEG_CONTEXT", "prod").output().unwrap();
    assert_eq!(by_name.stdout, b"a\n");
    ok("context rm prod");
    let gone = run("stream ls --context prod");
    assert!(gone.status.code() == Some(1) && said(&gone).contains("`prod`"), "{}", said(&gone));
    assert_eq!(run("context use prod").status.code(), Some(1));
}

#[test]
fn contexts_are_readable_for_their_owner_alone_and_refused_otherwise() {
    let rig = Rig::alone();
    rig.ok("context add a --server http://127.0.0.1:1 --token s3cret");
    let file = rig.path(".config/thalweg/contexts.toml");
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = rig.fails("stream ls --context a", 1);
    assert!(said.contains("chmod 600"), "{said}");
}

#[test]
fn a_name_or_server_that_cannot_be_is_refused() {
    let rig = Rig::alone();
    assert!(rig.fails("context add a/b --server http://h", 1).contains("`a/b`"));
    assert!(rig.fails("context add a --server ftp://h", 1).contains("http://HOST:PORT"));
    assert!(rig.fails("stream ls --context a --server http://h", 2).contains("cannot be used with"));
}
