//! Settings: shown, checked, begun with.

use crate::rig::Rig;

#[test]
fn the_settings_in_force_are_shown_with_where_they_come_from() {
    let rig = Rig::alone();
    std::fs::write(rig.path("t.toml"), "settle_after = \"7s\"\nmax_connections = 77\n").unwrap();
    let mut command = rig.command("serve --config @t.toml --max-body 1MiB --print-config --shape-secret s3cret");
    let output = command
        .env("THALWEG_REACTORS", "3")
        .env("THALWEG_SETTLE_AFTER", "9s")
        .env("DATABASE_URL", "postgres://u:p4ss@h/d");
    let text = String::from_utf8(output.output().unwrap().stdout).unwrap();
    let line = |key: &str| {
        let found =
            text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap_or_else(|| panic!("{key}: {text}"));
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("max_body"), "max_body = \"1MiB\" # --max-body");
    assert_eq!(line("reactors"), "reactors = 3 # THALWEG_REACTORS");
    assert_eq!(line("settle_after"), "settle_after = \"9s\" # THALWEG_SETTLE_AFTER");
    assert_eq!(line("max_connections"), "max_connections = 77 # the file");
    assert_eq!(line("listen"), "listen = \"127.0.0.1:4437\" # default");
    assert_eq!(line("database_url"), "database_url = \"postgres://u:***@h/d\" # a variable of Electric");
    assert!(!text.contains("s3cret") && !text.contains("p4ss"), "{text}");
    assert!(rig.ok("dev --print-config").contains("# thalweg dev"));
}

#[test]
fn the_example_file_is_one_to_start_with() {
    let rig = Rig::alone();
    std::fs::write(rig.path("example.toml"), rig.ok("config example")).unwrap();
    assert_eq!(rig.ok("serve --config @example.toml --data @data --check-config"), "the configuration is good\n");
    assert!(!rig.path("data").exists(), "checking makes nothing");
}

#[test]
fn a_check_of_settings_reads_the_files_that_they_name() {
    let rig = Rig::alone();
    std::fs::write(rig.path("tokens.toml"), "[[token]]\nid = 1\n").unwrap();
    for name in ["cert.pem", "key.pem"] {
        std::fs::write(rig.path(name), "nonsense").unwrap();
    }
    let check = "serve --check-config --data @data";
    assert!(rig.fails(&format!("{check} --tokens @tokens.toml"), 1).contains("tokens.toml"));
    assert!(rig.fails(&format!("{check} --tokens @none.toml"), 1).contains("none.toml"));
    assert!(rig.fails(&format!("{check} --tls-cert @cert.pem --tls-key @key.pem"), 1).contains("cert.pem"));
    assert!(rig.fails(&format!("{check} --listen 0.0.0.0:0"), 1).contains("tokens"));
    assert!(
        rig.fails(&format!("{check} --database-url postgres:// --shape-insecure on --gzip-level 11"), 1)
            .contains("gzip")
    );
    assert!(!rig.path("data").exists());
}
