//! Output without a reader, or without room.

use crate::rig::Rig;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::Stdio;

/// A pipe whose reader is gone.
fn broken() -> OwnedFd {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Commands that write to standard output, each with the code that it is to end with.
const COMMANDS: [(&str, i32); 20] = [
    ("--help", 0),
    ("--version", 0),
    ("serve --help", 0),
    ("serve --print-config", 0),
    ("serve --check-config", 0),
    ("config example", 0),
    ("completions bash", 0),
    ("man", 0),
    ("token new --name a --read x", 0),
    ("token sign --data @keys --prefix a", 1),
    ("check @whole", 0),
    ("check @nowhere", 1),
    ("backup --from @whole --to @backups", 0),
    ("restore @kept --data @restored", 0),
    ("stream ls", 0),
    ("stream ls --long", 0),
    ("stream read a", 0),
    ("stream info a", 0),
    ("status", 0),
    ("stream read nowhere", 3),
];

/// A running server with a stream, a data folder that is whole, and a backup.
fn prepared() -> Rig {
    let mut rig = Rig::start(&[]);
    rig.append("a", "some words\n");
    rig.stop();
    std::fs::rename(rig.path("data"), rig.path("whole")).unwrap();
    rig.serve(&[], |command| command.stdout(Stdio::null()).stderr(Stdio::null()));
    rig.append("a", "some words\n");
    rig.ok("backup --to @kept");
    rig
}

#[test]
fn readers_that_have_gone_are_harmless_for_every_command() {
    let rig = prepared();
    for (line, code) in COMMANDS {
        for both in [false, true] {
            let _ = std::fs::remove_dir_all(rig.path("restored"));
            let mut command = rig.command(line);
            command.stdout(broken());
            if both {
                command.stderr(broken());
            }
            assert_eq!(command.status().unwrap().code(), Some(code), "{line}, standard error too: {both}");
        }
    }
}

#[test]
fn output_without_room_is_a_failure_and_no_panic() {
    let rig = prepared();
    for (line, _) in COMMANDS.iter().filter(|(_, code)| *code == 0) {
        let _ = std::fs::remove_dir_all(rig.path("restored"));
        let mut command = rig.command(line);
        let status = command.stdout(File::options().write(true).open("/dev/full").unwrap()).status().unwrap();
        // Help and completions of clap ignore the failure.
        assert!(matches!(status.code(), Some(0 | 1)), "{line}: {status}");
        if !line.starts_with('-') && !line.ends_with("--help") {
            assert_eq!(status.code(), Some(1), "{line}: its output is lost");
        }
    }
}

#[test]
fn a_server_whose_output_nobody_reads_serves_and_stops_in_order() {
    let mut rig = Rig::alone();
    rig.serve(&["--log", "debug"], |command| command.stdout(broken()).stderr(broken()));
    rig.append("a", "some words\n");
    assert_eq!(rig.ok("stream read a"), "some words\n");
    assert_eq!(rig.stop(), Some(0));
    rig.ok("check @data");
}

#[test]
fn a_banner_that_nobody_takes_does_not_keep_a_server_from_serving() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut rig = Rig::alone();
    rig.serve(&[], |command| command.stdout(writer).stderr(Stdio::null()));
    rig.append("a", "some words\n");
    assert_eq!(rig.stop(), Some(0));
    drop(reader);
}
