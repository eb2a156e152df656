//! `thalweg store ls`.

use serde_json::{Value, json};
use std::io::Write;
use thalweg_cli::{Table, human};
use thalweg_host::background;
use thalweg_host::holdings::{self, Holdings, NodeSeen, UnitHeld};
use thalweg_host::mirror::Held;
use thalweg_object::{Location, Usage};

pub(super) fn run(location: &Location, as_json: bool) -> anyhow::Result<()> {
    let holdings = holdings::look(location)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if as_json {
        writeln!(out, "{}", described(location, &holdings))?;
    } else {
        show(&mut out, location, &holdings)?;
    }
    Ok(out.flush()?)
}

fn show(out: &mut impl Write, location: &Location, holdings: &Holdings) -> anyhow::Result<()> {
    writeln!(out, "{location}")?;
    let holds_nothing = holdings.folder.lineage.is_empty() && holdings.units.is_empty();
    match holdings.made_for {
        Some((true, units)) => writeln!(out, "  made for  nodes, {units} units")?,
        Some((false, _)) => writeln!(out, "  made for  one server with a data folder")?,
        None if holds_nothing => writeln!(out, "  holds no data")?,
        None => {}
    }
    if !holdings.folder.lineage.is_empty() {
        show_folder(out, &holdings.folder)?;
    }
    for (part, usage) in &holdings.usage {
        let what = match part.as_str() {
            "m" => "roots",
            "d" => "objects",
            "j" => "journals",
            "h" => "beacons",
            "n" => "announcements of nodes",
            "signing.key" => "the key by which tokens are signed",
            "subscriptions.keys" => "the keys by which subscriptions are signed",
            "units" => "which units there are",
            ".lock" => "the lock of a folder in place of a bucket",
            _ => "unknown to this version of thalweg",
        };
        let part = human::printable(part);
        writeln!(out, "  {part:<9} {} ({}), {what}", usage.objects, human::size(usage.bytes))?;
    }
    let sent: Vec<String> = holdings.requests.iter().map(|(kind, sent)| format!("{sent} {kind}")).collect();
    let pages = holdings.list_pages;
    writeln!(out, "  requests  {pages} list for one listing of it; {} for the rest", sent.join(", "))?;
    show_nodes(out, holdings)?;
    show_units(out, &holdings.units)
}

fn show_folder(out: &mut impl Write, held: &Held) -> anyhow::Result<()> {
    let state = if held.is_closed { "closed with everything here" } else { "in use, or its server has died" };
    writeln!(out, "  folder    lineage {}, {state}", held.lineage)?;
    writeln!(out, "  server    {}", held.owner.as_deref().unwrap_or("none has shown itself"))?;
    writeln!(out, "  journal   up to {}", held.end)?;
    writeln!(out, "  objects   {} ({})", held.objects, human::size(held.bytes))?;
    let unnamed = human::size(held.unnamed_bytes);
    writeln!(out, "  unnamed   {} ({unnamed}): copies for the next state, or leftovers", held.unnamed)?;
    Ok(())
}

fn state_of(node: &NodeSeen) -> String {
    match (node.is_live, node.said.is_draining) {
        (true, true) => "draining".to_owned(),
        (true, false) => "live".to_owned(),
        (false, _) => format!("gone, last seen {} ago", human::time(node.age_ms)),
    }
}

fn show_nodes(out: &mut impl Write, holdings: &Holdings) -> anyhow::Result<()> {
    let is_of_nodes = holdings.made_for.is_some_and(|(is_of_nodes, _)| is_of_nodes);
    if holdings.nodes.is_empty() {
        if is_of_nodes {
            writeln!(out, "\nno node has announced itself")?;
        }
        return Ok(());
    }
    let mut table = Table::new(["NODE", "ADDRESS", "UNITS", "STATE"]).right(&[2]);
    for node in &holdings.nodes {
        let said = &node.said;
        table.row([said.name.clone(), said.address.clone(), said.units.len().to_string(), state_of(node)]);
    }
    writeln!(out)?;
    Ok(table.write(out)?)
}

fn show_units(out: &mut impl Write, units: &[UnitHeld]) -> anyhow::Result<()> {
    if units.is_empty() {
        return Ok(());
    }
    let columns = ["UNIT", "EPOCH", "STREAMS", "RECORDS", "TAIL", "OBJECTS", "SIZE", "ORPHANS", "ROOT", "OWNER"];
    let mut table = Table::new(columns).right(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let dash = || "-".to_owned();
    for unit in units {
        let known = |text: String| if unit.problem.is_none() { text } else { "?".to_owned() };
        let orphans = match unit.orphans.oldest_ms {
            Some(oldest) => {
                let Usage { objects, bytes } = unit.orphans.usage;
                format!("{objects} ({}, up to {} old)", human::size(bytes), human::time(age_ms(oldest)))
            }
            None => "0".to_owned(),
        };
        let owner = unit.owner.as_ref().map_or_else(dash, |owner| match owner.is_live {
            true => owner.name.clone(),
            false => format!("{} (gone)", owner.name),
        });
        table.row([
            unit.name.clone(),
            unit.epoch.map_or_else(dash, |epoch| epoch.to_string()),
            known(unit.logs.to_string()),
            known(unit.journal.records.to_string()),
            known(human::size(unit.journal.bytes)),
            known(unit.objects.objects.to_string()),
            known(human::size(unit.objects.bytes)),
            known(orphans),
            unit.root_written_ms.map_or_else(dash, |written| format!("{} ago", human::time(age_ms(written)))),
            owner,
        ]);
    }
    writeln!(out)?;
    table.write(out)?;
    for unit in units {
        if let Some(problem) = &unit.problem {
            writeln!(out, "{}: {problem}", unit.name)?;
        }
    }
    Ok(())
}

/// How long ago a time of the bucket's clock was, by the clock of this machine.
fn age_ms(at_ms: i64) -> u64 {
    background::now().0.saturating_sub(at_ms.max(0).cast_unsigned())
}

fn described(location: &Location, holdings: &Holdings) -> Value {
    let usage = |usage: &Usage| json!({"objects": usage.objects, "bytes": usage.bytes});
    let held = &holdings.folder;
    let folder = (!held.lineage.is_empty()).then(|| {
        json!({
            "lineage": held.lineage,
            "closed": held.is_closed,
            "server": held.owner,
            "position": held.end.0,
            "objects": held.objects,
            "bytes": held.bytes,
            "unnamed": held.unnamed,
            "unnamedBytes": held.unnamed_bytes,
        })
    });
    let nodes: Vec<_> = holdings.nodes.iter().map(of_node).collect();
    let units: Vec<_> = holdings.units.iter().map(of_unit).collect();
    let all: serde_json::Map<_, _> = holdings.usage.iter().map(|(part, of)| (part.clone(), usage(of))).collect();
    let requests: serde_json::Map<_, _> =
        holdings.requests.iter().map(|(kind, sent)| ((*kind).to_owned(), json!(sent))).collect();
    json!({
        "store": location.to_string(),
        "owners": holdings.made_for.map(|(is_of_nodes, _)| if is_of_nodes { "nodes" } else { "folder" }),
        "unitsMade": holdings.made_for.map(|(_, units)| units),
        "folder": folder,
        "nodes": nodes,
        "units": units,
        "usage": all,
        "listPages": holdings.list_pages,
        "requests": requests,
    })
}

fn of_node(node: &NodeSeen) -> Value {
    let units: Vec<u64> = node.said.units.iter().map(|(unit, _)| *unit).collect();
    json!({
        "name": node.said.name,
        "instance": node.said.instance,
        "address": node.said.address,
        "live": node.is_live,
        "draining": node.said.is_draining,
        "ageMs": node.age_ms,
        "units": units,
    })
}

fn of_unit(unit: &UnitHeld) -> Value {
    let owner =
        unit.owner.as_ref().map(|owner| json!({"name": owner.name, "address": owner.address, "live": owner.is_live}));
    json!({
        "name": unit.name,
        "epoch": unit.epoch,
        "owner": owner,
        "rootWrittenMs": unit.root_written_ms,
        "streams": unit.logs,
        "records": unit.journal.records,
        "recordBytes": unit.journal.bytes,
        "journalObjects": unit.journal_usage.objects,
        "journalObjectBytes": unit.journal_usage.bytes,
        "objects": unit.objects.objects,
        "bytes": unit.objects.bytes,
        "orphans": unit.orphans.usage.objects,
        "orphanBytes": unit.orphans.usage.bytes,
        "oldestOrphanMs": unit.orphans.oldest_ms,
        "problem": unit.problem,
    })
}
