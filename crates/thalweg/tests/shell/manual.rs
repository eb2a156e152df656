//! Completions, man pages, and the version text.

use crate::rig::Rig;
use std::process::Command;

#[test]
fn shells_take_their_completions() {
    let rig = Rig::alone();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = rig.ok(&format!("completions {shell}"));
        assert!(script.contains("thalweg") && script.contains("settle-after") && script.contains("append"), "{shell}");
        std::fs::write(rig.path(shell), script).unwrap();
    }
    let checked = Command::new("bash").arg("-n").arg(rig.path("bash")).output().unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{}", crate::rig::said(&checked));
    // Completions that Tab offers.
    let ask = format!(
        ". {}; COMP_WORDS=(thalweg stream ap); COMP_CWORD=2; _thalweg thalweg ap stream; echo ${{COMPREPLY[@]}}",
        rig.path("bash").display()
    );
    let found = Command::new("bash").args(["-c", &ask]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), "append", "{}", crate::rig::said(&found));
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let rig = Rig::alone();
    rig.ok("man --out @man");
    for page in ["thalweg", "thalweg-serve", "thalweg-stream-append", "thalweg-shape-tail", "thalweg-context-add"] {
        let text = std::fs::read_to_string(rig.path(&format!("man/{page}.1"))).unwrap();
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(rig.ok("man").contains(".SH NAME"));
}

#[test]
fn the_version_names_commit_and_format() {
    let rig = Rig::alone();
    let (short, long) = (rig.ok("-V"), rig.ok("--version"));
    assert_eq!(short, format!("thalweg {}\n", env!("CARGO_PKG_VERSION")));
    assert!(long.starts_with(short.trim()) && long.contains("writes format "), "{long}");
    let log =
        Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    if log.is_ok_and(|output| output.status.success()) {
        assert!(long.contains("(commit "), "{long}");
    }
}
