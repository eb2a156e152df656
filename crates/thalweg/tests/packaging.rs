//! The unit and the Dockerfile use only settings that this binary understands.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::process::Command;
use support::{THALWEG, thalweg};

const UNIT: &str = include_str!("../../../deploy/thalweg.service");
const DOCKERFILE: &str = include_str!("../../../deploy/Dockerfile");

/// Lines that count, with continued ones joined.
fn lines(text: &str) -> Vec<String> {
    let kept: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    kept.join("\n").replace("\\\n", " ").lines().map(str::to_owned).collect()
}

fn help() -> String {
    String::from_utf8(thalweg(&["serve", "--help"]).stdout).unwrap()
}

/// The flags of a command line.
fn flags(line: &str) -> Vec<&str> {
    line.split_whitespace().filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap()).collect()
}

/// Text between a mark and its end.
fn marked<'a>(page: &'a str, mark: &str) -> &'a str {
    page.split(&format!("<!-- {mark} -->")).nth(1).unwrap().split("<!-- end -->").next().unwrap()
}

#[test]
fn every_figure_of_the_readme_was_measured() {
    let results = include_str!("../../../bench/RESULTS.md");
    let table = marked(include_str!("../../../README.md"), "measured");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let figures = rows.iter().flat_map(|row| row.split(" | ").skip(1)).flat_map(|cell| {
        cell.split([' ', '/', ',', '|'])
            .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            .collect::<Vec<_>>()
    });
    let mut count = 0;
    for figure in figures {
        count += 1;
        assert!(results.contains(figure), "bench/RESULTS.md does not have {figure}");
    }
    assert!(rows.len() >= 5 && count >= 15, "{count} figures");
}

#[test]
fn the_units_command_and_stop_time_fit_to_the_server() {
    let lines = lines(UNIT);
    let command = lines.iter().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/thalweg ")).unwrap();
    assert!(command.starts_with("serve "));
    let help = help();
    let flags = flags(command);
    assert!(!flags.is_empty());
    for flag in flags {
        assert!(help.contains(flag), "{flag} is no flag of serve");
    }
    // The server gives requests 10 s, and closes the journal afterwards.
    let stop = lines.iter().find_map(|line| line.strip_prefix("TimeoutStopSec=")?.strip_suffix('s')).unwrap();
    assert!(stop.parse::<u32>().unwrap() >= 20);
    for needed in
        ["Restart=always", "KillSignal=SIGTERM", "StateDirectory=thalweg", "DynamicUser=yes", "ProtectSystem=strict"]
    {
        assert!(lines.iter().any(|line| line == needed), "{needed}");
    }
}

#[test]
fn the_images_settings_are_settings_and_it_runs_as_nobody_special() {
    let lines = lines(DOCKERFILE);
    let settings: Vec<(&str, &str)> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("ENV "))
        .flat_map(str::split_whitespace)
        .map(|pair| pair.split_once('=').unwrap())
        .collect();
    assert!(settings.len() >= 3, "{settings:?}");
    let help = help();
    for (name, _) in &settings {
        let flag = format!("--{}", name.strip_prefix("THALWEG_").unwrap().to_lowercase().replace('_', "-"));
        assert!(help.contains(&flag), "{name} is no setting");
    }
    // The values are understood: only the address is changed, and an address that cannot be listened on ends it.
    let folder = tempfile::tempdir().unwrap();
    let said = |auth: &str| {
        let mut server = Command::new(THALWEG);
        server.arg("serve").envs(settings.iter().copied()).env("THALWEG_AUTH", auth);
        let output = server.env("THALWEG_DATA", folder.path()).env("THALWEG_LISTEN", "192.0.2.1:1").output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said("off").contains("cannot listen on 192.0.2.1:1"), "{}", said("off"));
    // By default it is open to no client.
    assert!(said("auto").contains("--tokens FILE"), "{}", said("auto"));
    let user =
        lines.iter().rposition(|line| line.starts_with("USER ") && !line.contains("root") && !line.contains("USER 0"));
    assert!(user.is_some() && user < lines.iter().position(|line| line.starts_with("ENTRYPOINT")));
    assert!(lines.iter().any(|line| line.starts_with("HEALTHCHECK") && line.contains("/health")));
    assert!(lines.iter().any(|line| line == "VOLUME /data"));
}
