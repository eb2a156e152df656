//! `thalweg store check`.

use anyhow::bail;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Instant;
use thalweg_cli::{Progress, human};
use thalweg_host::holdings::{self, Problem, UnitVerified};
use thalweg_host::listed::Listed;
use thalweg_host::mirror::{self, Verified};
use thalweg_object::Location;

pub(super) fn run(location: &Location, as_json: bool) -> anyhow::Result<()> {
    let began = Instant::now();
    let shown = Mutex::new(Progress::new(None, false));
    let folder = mirror::verify(location, &mut |so_far| shown.lock().set(so_far.bytes))?;
    let (units, lost) = holdings::verify(location, &|bytes, total| {
        let mut shown = shown.lock();
        shown.set_total(total);
        shown.set(bytes);
    })?;
    drop(shown);
    if folder.is_none() && units.is_empty() {
        bail!("{location} holds no data");
    }
    if as_json {
        println!("{}", described(location, folder.as_ref(), &units, lost.as_deref()));
    } else {
        folder.iter().for_each(show_folder);
        units.iter().for_each(show_unit);
        lost.iter().for_each(|lost| println!("{lost}"));
    }
    let of_folder = folder.as_ref().map_or(0, |found| found.damage.len() + usize::from(found.journal.is_some()));
    let places = of_folder + usize::from(lost.is_some()) + units.iter().map(|unit| unit.problems.len()).sum::<usize>();
    if places > 0 {
        bail!("{location} is damaged at {places} places");
    }
    if !as_json {
        println!("{location} is whole; read in {:.1} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}

fn show_folder(found: &Verified) {
    for damage in found.damage.iter().cloned() {
        println!("{}", Listed::of("", damage));
    }
    if let Some(problem) = &found.journal {
        println!("the journal's end is not whole: {problem}");
    }
    if found.damage.is_empty() && found.journal.is_none() {
        println!(
            "the mirror of a data folder is whole: {} runs, {} objects ({}, {} directory records), {} frames of the journal",
            found.checked.runs,
            found.checked.objects,
            human::size(found.checked.bytes),
            found.checked.records,
            found.frames,
        );
    }
}

fn show_unit(unit: &UnitVerified) {
    let name = human::printable(&unit.name);
    if unit.problems.is_empty() {
        println!(
            "{} is whole: epoch {}, {} streams, {} objects ({}), {} frames of the journal",
            name,
            unit.epoch,
            unit.logs,
            unit.checked.objects,
            human::size(unit.checked.bytes),
            unit.frames,
        );
    }
    for problem in &unit.problems {
        println!("{name}: {}", human::printable(&problem.to_string()));
    }
}

fn described(location: &Location, folder: Option<&Verified>, units: &[UnitVerified], lost: Option<&str>) -> Value {
    let folder = folder.map(|found| {
        let damage: Vec<_> = found.damage.iter().cloned().map(|damage| Listed::of("", damage)).collect();
        json!({
            "objects": found.checked.objects,
            "bytes": found.checked.bytes,
            "records": found.frames,
            "damages": damage,
            "journal": found.journal,
        })
    });
    let of_unit = |unit: &UnitVerified| {
        json!({
            "name": unit.name,
            "epoch": unit.epoch,
            "streams": unit.logs,
            "objects": unit.checked.objects,
            "bytes": unit.checked.bytes,
            "records": unit.frames,
            "damages": unit.problems.iter().map(of_problem).collect::<Vec<_>>(),
        })
    };
    json!({
        "store": location.to_string(),
        "folder": folder,
        "lost": lost,
        "units": units.iter().map(of_unit).collect::<Vec<_>>(),
    })
}

fn of_problem(problem: &Problem) -> Value {
    json!({
        "key": problem.key,
        "at": problem.at,
        "what": problem.what,
        "streams": problem.streams,
        "moreStreams": problem.more_streams,
    })
}
