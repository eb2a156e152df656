use crate::rig::{Rig, eventually, text, thalweg, token};
use std::fs;

#[test]
fn tokens_change_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens.toml");
    let old = token(&file, "old", &["--admin", "*"]);
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml"]);
    assert_eq!(rig.ask(&old, "PUT /v1/stream/a", "x"), 201);
    let new = token(&file, "new", &["--read", "a"]);
    eventually(|| rig.ask(&new, "GET /v1/stream/a", "") == 200);
    assert_eq!(rig.ask(&old, "GET /v1/stream/a", ""), 200);

    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}\n[[token]]\nid = ")).unwrap();
    eventually(|| rig.log().contains("could not be reloaded"));
    assert_eq!((rig.ask(&old, "GET /v1/stream/a", ""), rig.ask(&new, "GET /v1/stream/a", "")), (200, 200));

    let only_new = good[good.rfind("[[token]]").unwrap()..].to_owned();
    fs::write(&file, only_new).unwrap();
    rig.signal("-HUP");
    eventually(|| rig.ask(&old, "GET /v1/stream/a", "") == 401);
    assert_eq!(rig.ask(&new, "GET /v1/stream/a", ""), 200);
}

#[test]
fn without_its_key_no_signed_token_counts_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let admin = token(&folder.path().join("tokens.toml"), "admin", &["--admin", "*"]);
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml"]);
    assert_eq!(rig.ask(&admin, "PUT /v1/stream/a", "x"), 201);
    let sign = || {
        let signed = thalweg(&["token", "sign", "--data", rig.path("data").to_str().unwrap(), "--prefix", "a"]);
        text(&signed.stdout).trim().to_owned()
    };
    let before = sign();
    assert_eq!(rig.ask(&before, "GET /v1/stream/a", ""), 200);
    fs::remove_file(rig.path("data/signing.key")).unwrap();
    eventually(|| rig.ask(&before, "GET /v1/stream/a", "") == 401);
    assert_eq!(rig.ask(&sign(), "GET /v1/stream/a", ""), 200);
    assert_eq!(rig.ask(&admin, "GET /v1/stream/a", ""), 200);
}
