use crate::rig::{text, thalweg, token};

fn refused(args: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let out = thalweg(&[&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"], args].concat());
    assert!(!out.status.success(), "{args:?}");
    text(&out.stderr)
}

#[test]
fn a_server_that_others_can_reach_without_tokens_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let out = thalweg(&["serve", "--data", folder.path().join("d").to_str().unwrap(), "--listen", "0.0.0.0:0"]);
    let said = text(&out.stderr);
    assert!(!out.status.success());
    for part in ["thalweg token new", "--tokens FILE", "--auth off"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn settings_that_promise_what_is_not_there_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let tokens = path("tokens.toml");
    token(tokens.as_ref(), "a", &["--read", "*"]);
    assert!(refused(&["--auth", "on"]).contains("--tokens"));
    assert!(refused(&["--auth", "off", "--tokens", &tokens]).contains("contradict"));
    assert!(refused(&["--tokens", &path("nowhere")]).contains("nowhere"));
    std::fs::write(path("bad"), "[[token]]\nid = \"a\"\n").unwrap();
    assert!(refused(&["--tokens", &path("bad")]).contains("hash"));
    assert!(refused(&["--tls-cert", &tokens]).contains("go together"));
    assert!(refused(&["--tls-cert", &path("nowhere.pem"), "--tls-key", &tokens]).contains("nowhere.pem"));
    assert!(refused(&["--tls-cert", &tokens, "--tls-key", &tokens]).contains("no certificate"));
}
