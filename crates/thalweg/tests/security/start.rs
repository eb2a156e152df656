use crate::rig::{BINARY, text, thalweg, token};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

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

#[test]
fn what_is_probably_a_mistake_is_told_by_a_start_and_by_a_check_of_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.toml");
    token(&tokens, "a", &["--read", "*"]);
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o666)).unwrap();
    // A missing certificate ends the start.
    for last in [&["--check-config"][..], &["--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.key"]] {
        let mut command = Command::new(BINARY);
        command.env_clear().env("THALWEG_LISSTEN", "0.0.0.0:80").env("THALWEG_TOKENS", &tokens).arg("serve");
        let out = command.arg("--data").arg(folder.path().join("data")).args(last).output().unwrap();
        let said = text(&out.stderr);
        assert!(said.contains("did you mean THALWEG_LISTEN?") && said.contains("of mode 666"), "{last:?}: {said}");
    }
}
