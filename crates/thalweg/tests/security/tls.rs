use crate::rig::{Rig, eventually, text, token};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use std::fs;
use std::path::Path;
use std::process::Command;

fn certificate(folder: &Path, name: &str) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let CertifiedKey { cert, signing_key }: CertifiedKey<KeyPair> = generate_simple_self_signed(names).unwrap();
    fs::write(folder.join(format!("{name}.key")), signing_key.serialize_pem()).unwrap();
    fs::write(folder.join(format!("{name}.pem")), cert.pem()).unwrap();
}

/// Exit code and output of curl, which trusts the certificate of that name alone.
fn curl(rig: &Rig, trusted: &str, path: &str, args: &[&str]) -> (i32, String) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "--cacert"]).arg(rig.path(trusted)).args(args);
    let out = command.arg(format!("https://{}{path}", rig.address)).output().unwrap();
    (out.status.code().unwrap_or(-1), text(&out.stdout) + &text(&out.stderr))
}

#[test]
fn curl_speaks_tls_with_the_binary_and_sees_a_new_certificate() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path(), "one");
    certificate(folder.path(), "two");
    fs::copy(folder.path().join("one.pem"), folder.path().join("cert.pem")).unwrap();
    fs::copy(folder.path().join("one.key"), folder.path().join("key.pem")).unwrap();
    let admin = token(&folder.path().join("tokens.toml"), "admin", &["--admin", "*"]);
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml", "--tls-cert", "$/cert.pem", "--tls-key", "$/key.pem"]);
    let (authorization, plain) = (format!("Authorization: Bearer {admin}"), "content-type: text/plain");
    let put =
        curl(&rig, "one.pem", "/v1/stream/a", &["-X", "PUT", "-H", &authorization, "-H", plain, "-d", "over TLS"]);
    assert_eq!(put, (0, String::new()));
    let read = curl(&rig, "one.pem", "/v1/stream/a?offset=-1", &["-H", &authorization]);
    assert_eq!(read, (0, "over TLS".to_owned()));
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        assert_eq!(curl(&rig, "one.pem", "/health", &[version]), (0, "ok\n".to_owned()));
    }
    assert_ne!(curl(&rig, "two.pem", "/health", &[]).0, 0);
    assert_ne!(curl(&rig, "one.pem", "/health", &["--tls-max", "1.1"]).0, 0);
    // A connection without a handshake is not counted.
    drop(std::net::TcpStream::connect(rig.address).unwrap());
    eventually(|| {
        let metrics = curl(&rig, "one.pem", "/metrics", &["-H", &authorization]).1;
        metrics.contains("thalweg_tls_handshakes_failed_total 2\n")
    });

    // The certificate first: until the matching key follows, the old pair stays.
    fs::copy(rig.path("two.pem"), rig.path("cert.pem")).unwrap();
    eventually(|| rig.log().contains("is not that of the certificate"));
    assert_eq!(curl(&rig, "one.pem", "/health", &[]).0, 0);
    fs::copy(rig.path("two.key"), rig.path("key.pem")).unwrap();
    eventually(|| curl(&rig, "two.pem", "/health", &[]).0 == 0);
    let (status, said) = rig.raw(b"GET /health", &[], "");
    assert!(status == 400 && said.contains("https"), "{said}");
}

#[test]
fn the_containers_health_check_speaks_what_the_server_speaks() {
    let file = include_str!("../../../../deploy/Dockerfile");
    let line = file.lines().find(|line| line.starts_with("HEALTHCHECK")).unwrap();
    let check = line.split_once(" CMD ").unwrap().1;
    let healthy = |rig: &Rig, certificate: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", check]).env("THALWEG_LISTEN", format!("0.0.0.0:{}", rig.address.port()));
        shell.env("THALWEG_TLS_CERT", certificate).output().unwrap().status.success()
    };
    let plain = Rig::start(tempfile::tempdir().unwrap(), &[]);
    assert!(healthy(&plain, ""));
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path(), "one");
    let tls = Rig::start(folder, &["--tls-cert", "$/one.pem", "--tls-key", "$/one.key"]);
    assert!(healthy(&tls, "one.pem") && healthy(&tls, ""), "also if the variable does not say so");
    drop(tls);
    let gone = Command::new("sh").args(["-c", check]).env("THALWEG_LISTEN", "0.0.0.0:1").output().unwrap();
    assert!(!gone.status.success());
}
