use crate::rig::{Rig, eventually, token};
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
    eventually(|| rig.log().contains("could not be read again"));
    assert_eq!((rig.ask(&old, "GET /v1/stream/a", ""), rig.ask(&new, "GET /v1/stream/a", "")), (200, 200));

    let only_new = good[good.rfind("[[token]]").unwrap()..].to_owned();
    fs::write(&file, only_new).unwrap();
    rig.signal("-HUP");
    eventually(|| rig.ask(&old, "GET /v1/stream/a", "") == 401);
    assert_eq!(rig.ask(&new, "GET /v1/stream/a", ""), 200);
}
