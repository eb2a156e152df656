//! `thalweg store`: what a bucket holds of a data folder, and how it comes back.

use anyhow::bail;
use parking_lot::Mutex;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;
use thalweg_cli::{Progress, human};
use thalweg_host::config::Store;
use thalweg_host::listed::Listed;
use thalweg_host::mirror::{self, Held};
use thalweg_object::Location;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thalweg store ls --store s3://bucket/prefix
  thalweg store check --store s3://bucket/prefix
  thalweg store fetch /var/lib/thalweg --store s3://bucket/prefix
                                              of a stopped server

Credentials, region and endpoint come from the environment, ~/.aws or the
machine's role, as for `thalweg serve`.")]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(clap::Subcommand)]
enum StoreCommand {
    /// Show what the bucket holds: whose it is, how far it is, and what it takes.
    Ls {
        #[command(flatten)]
        at: At,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read everything that the bucket holds, contents included, and list damage. Costs the transfer of all of it.
    Check {
        #[command(flatten)]
        at: At,
    },
    /// Bring everything back into the folder of a stopped server, which then runs without --store.
    Fetch {
        /// The data folder.
        dir: PathBuf,
        #[command(flatten)]
        at: At,
    },
}

/// The bucket of a stopped server's folder.
#[derive(clap::Args)]
pub(crate) struct OfFolder {
    /// The store that the stopped server was served with, if objects of its folder are in a bucket only.
    #[arg(long, env = "THALWEG_STORE", value_name = "s3://BUCKET/PREFIX", hide_env = true)]
    store: Option<Store>,
}

impl OfFolder {
    pub(crate) fn location(&self) -> Option<&Location> {
        self.store.as_ref()?.0.as_ref()
    }
}

#[derive(clap::Args)]
struct At {
    /// The bucket and prefix, as for `thalweg serve`.
    #[arg(long, env = "THALWEG_STORE", value_name = "s3://BUCKET/PREFIX", hide_env = true)]
    store: Store,
}

impl At {
    fn location(&self) -> anyhow::Result<&Location> {
        match &self.store.0 {
            Some(location) => Ok(location),
            None => bail!("--store names no bucket"),
        }
    }
}

/// Performs the command, and prints on standard output.
pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<()> {
    match &args.command {
        StoreCommand::Ls { at, json } => ls(at.location()?, *json),
        StoreCommand::Check { at } => check(at.location()?),
        StoreCommand::Fetch { dir, at } => {
            let began = Instant::now();
            let shown = Mutex::new(Progress::new(None, false));
            let fetched = mirror::fetch(dir, at.location()?, &|bytes, total| {
                let mut shown = shown.lock();
                shown.set_total(total);
                shown.set(bytes);
            })?;
            drop(shown);
            println!(
                "{} needs no bucket any longer: {} objects ({}) were brought back in {:.1} s; start it without --store",
                dir.display(),
                fetched.objects,
                human::size(fetched.bytes),
                began.elapsed().as_secs_f64()
            );
            Ok(())
        }
    }
}

fn ls(location: &Location, as_json: bool) -> anyhow::Result<()> {
    let held = mirror::look(location)?;
    if as_json {
        println!("{}", described(location, &held));
        return Ok(());
    }
    println!("{location}");
    if held.lineage.is_empty() {
        println!("  holds no data of a folder");
    } else {
        let state = if held.is_closed { "closed with everything here" } else { "in use, or its server has died" };
        println!("  folder    lineage {}, {state}", held.lineage);
        println!("  server    {}", held.owner.as_deref().unwrap_or("none has shown itself"));
        println!("  journal   up to {}", held.end);
        println!("  objects   {} ({})", held.objects, human::size(held.bytes));
        println!(
            "  unnamed   {} ({}): copies for the next state, or leftovers",
            held.unnamed,
            human::size(held.unnamed_bytes)
        );
    }
    for (part, usage) in &held.usage {
        let what = match part.as_str() {
            "m" => "roots",
            "d" => "objects",
            "j" => "journals",
            "h" => "beacons",
            _ => "not thalweg's",
        };
        println!("  {part:<9} {} ({}), {what}", usage.objects, human::size(usage.bytes));
    }
    Ok(())
}

fn described(location: &Location, held: &Held) -> serde_json::Value {
    let usage: serde_json::Map<_, _> = held
        .usage
        .iter()
        .map(|(part, usage)| (part.clone(), json!({"objects": usage.objects, "bytes": usage.bytes})))
        .collect();
    json!({
        "store": location.to_string(),
        "lineage": held.lineage,
        "closed": held.is_closed,
        "server": held.owner,
        "position": held.end.0,
        "objects": held.objects,
        "bytes": held.bytes,
        "unnamed": held.unnamed,
        "unnamedBytes": held.unnamed_bytes,
        "usage": usage,
    })
}

fn check(location: &Location) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut shown = Progress::new(None, false);
    let verified = mirror::verify(location, &mut |so_far| shown.set(so_far.bytes))?;
    drop(shown);
    let Some(verified) = verified else { bail!("{location} holds no data of a folder") };
    for damage in verified.damage.iter().cloned() {
        println!("{}", Listed::of("", damage));
    }
    if let Some(problem) = &verified.journal {
        println!("the journal's end is not whole: {problem}");
    }
    if !verified.damage.is_empty() || verified.journal.is_some() {
        bail!("{location} is damaged at {} places", verified.damage.len() + usize::from(verified.journal.is_some()));
    }
    println!(
        "{location} is whole: {} runs, {} objects ({}, {} directory records), {} frames of the journal; read in {:.1} s",
        verified.checked.runs,
        verified.checked.objects,
        human::size(verified.checked.bytes),
        verified.checked.records,
        verified.frames,
        began.elapsed().as_secs_f64(),
    );
    Ok(())
}
