//! Backups of the running server, in the middle of everything: each one is restored, served, and compared with the
//! model at its begin and at its end.
//!
//! For every stream: earlier acknowledged content is in it, it ends between two appends, and it holds nothing that is
//! not in the server too. Across streams: if an append is in it, so is every one that was answered before that one was
//! sent.

mod afterlife;
mod compare;
mod snapshot;

pub(crate) use snapshot::{Snapshot, Snapshots};

use crate::session::Session;
use crate::subs::Ledger;
use crate::tokens::ADMIN;
use crate::world::{Sabotage, World};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn work(world: &World, ledger: &Arc<Ledger>, owners: u32, seed: u64) {
    let mut rng = oorandom::Rand64::new(u128::from(seed) + 70_707);
    let mut number = 0;
    while !world.over() {
        number += 1;
        if let Err(error) = round(world, ledger, owners, number) {
            world.violation(format!("backup {number}: {error:#}"));
        }
        let until = rng.rand_range(2..20);
        for _ in 0..until {
            if world.over() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// One backup, and its content.
fn round(world: &World, ledger: &Ledger, owners: u32, number: u32) -> anyhow::Result<()> {
    let Some(mut before) = world.snapshots.take(world, owners) else { return Ok(()) };
    let written_before = ledger.lines();
    let Some((address, generation)) = world.server.serving() else { return Ok(()) };
    let folder = &world.server.spec.folder;
    let (backups, restored) = (folder.join("backups"), folder.join("restored"));
    let mut command = thalweg(world, "backup");
    command.arg("--server").arg(format!("http://{address}")).arg("--to").arg(&backups).args(["--keep", "2"]);
    let taken = command.output()?;
    if !taken.status.success() {
        if world.server.is_still(generation) && world.report.clean() {
            world.violation(format!("backup {number} of a server that is up: {}", said(&taken)));
        }
        world.report.count("backups cut off by a kill");
        return Ok(());
    }
    world.report.count("backups");
    let Some(mut after) = world.snapshots.take(world, owners) else { return Ok(()) };
    if world.sabotage(Sabotage::Unsaved) {
        snapshot::invent(&mut before, &mut after);
    }

    let _ = std::fs::remove_dir_all(&restored);
    std::fs::create_dir_all(&restored)?;
    let done = thalweg(world, "restore").arg(&backups).arg("--data").arg(restored.join("data")).output()?;
    if !done.status.success() {
        world.violation(format!("backup {number} cannot be restored: {}", said(&done)));
        return Ok(());
    }
    let twin = World::new(world.server.spec.restored(&restored), world.tokens.clone(), &[], None);
    twin.server.start()?;
    let mut session = Session::new(&twin, ADMIN);
    let compared = compare::Restored::read(&mut session).and_then(|restored| {
        restored.compare(&mut session, &before, &after)?;
        restored.compare_history(&mut session, &written_before, &ledger.history())
    });
    match compared {
        Ok((streams, lines)) => {
            world.report.add("restored streams compared", streams);
            world.report.add("restored lines in order", lines);
        }
        Err(what) => world.violation(format!("backup {number}, restored: {what}")),
    }
    if !twin.report.clean() {
        world.violation(format!("backup {number}, restored, does not behave"));
    }
    twin.server.terminate()?;
    if world.report.clean() {
        std::fs::remove_dir_all(&restored)?;
    }
    Ok(())
}

fn thalweg(world: &World, what: &str) -> Command {
    let binary: &Path = &world.server.spec.binary;
    let mut command = Command::new(binary);
    command.arg(what);
    if let Some(secret) = world.tokens.as_ref().and_then(|tokens| tokens.secret(ADMIN)) {
        command.env("THALWEG_TOKEN", secret);
    }
    command
}

fn said(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
}
