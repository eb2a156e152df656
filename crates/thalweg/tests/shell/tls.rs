//! Servers behind TLS, and proxies that are for other machines.

use crate::rig::Rig;
use std::path::Path;

/// A certificate for 127.0.0.1 that is its own authority, and its key.
fn certificate(rig: &Rig) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    std::fs::write(rig.path("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(rig.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

fn encrypted() -> Rig {
    let mut rig = Rig::alone();
    certificate(&rig);
    let (cert, key) = (rig.path("cert.pem"), rig.path("key.pem"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    rig.serve(&["--tls-cert", &path(&cert), "--tls-key", &path(&key)], |command| {
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null())
    });
    rig
}

/// One command of each kind that asks a server.
const ASKING: [&str; 4] = ["stream ls", "status", "backup --to @backups", "stream bench --seconds 100ms --writers 1"];

#[test]
fn every_command_trusts_what_ca_names_or_the_system_does_and_nothing_else() {
    let rig = encrypted();
    let https = format!("https://{}", rig.address);
    for line in ASKING {
        let ca = rig.path("cert.pem");
        let output = rig.command(line).env("THALWEG_SERVER", &https).output().unwrap();
        let said = crate::rig::said(&output);
        assert!(
            output.status.code() == Some(1) && said.contains("no trust in") && said.contains("--ca"),
            "{line}: {said}"
        );
        for (name, value) in [("THALWEG_CA", &ca), ("SSL_CERT_FILE", &ca)] {
            let output = rig.command(line).env("THALWEG_SERVER", &https).env(name, value).output().unwrap();
            assert!(output.status.success(), "{line} with {name}: {}", crate::rig::said(&output));
        }
        let output = rig.command(&format!("{line} --ca @cert.pem --server {https}")).output().unwrap();
        assert!(output.status.success(), "{line} --ca: {}", crate::rig::said(&output));
    }
}

#[test]
fn a_scheme_that_is_not_the_servers_is_named_with_the_right_one() {
    let encrypted = encrypted();
    let plain = Rig::start(&[]);
    for line in ASKING {
        let said = encrypted.fails(&format!("{line} --server http://{}", encrypted.address), 1);
        assert!(said.contains("speaks TLS: use https://"), "{line}: {said}");
        let said = plain.fails(&format!("{line} --server https://{}", plain.address), 1);
        assert!(said.contains("does not speak TLS: use http://"), "{line}: {said}");
    }
}

#[test]
fn a_proxy_is_not_asked_for_this_machine() {
    let rig = Rig::start(&[]);
    for line in ASKING {
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
            let output = rig.command(line).env(name, "http://127.0.0.1:1").output().unwrap();
            assert!(output.status.success(), "{line} with {name}: {}", crate::rig::said(&output));
        }
    }
}

#[test]
fn a_certificate_of_the_usual_recipe_is_explained() {
    let mut rig = Rig::alone();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(rig.path("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(rig.path("key.pem"), key.serialize_pem()).unwrap();
    let (cert, key) = (rig.path("cert.pem"), rig.path("key.pem"));
    rig.serve(&["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()], |command| {
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null())
    });
    let said = rig.fails(&format!("stream ls --ca @cert.pem --server https://{}", rig.address), 1);
    assert!(said.contains("basicConstraints=critical,CA:FALSE"), "{said}");
}
