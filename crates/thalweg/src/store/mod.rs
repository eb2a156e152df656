//! `thalweg store`: what a prefix of a bucket holds, whether it is whole, and how a data folder comes back.

mod check;
mod ls;

use anyhow::bail;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::time::Instant;
use thalweg_cli::{Progress, human};
use thalweg_host::config::Store;
use thalweg_host::mirror;
use thalweg_object::Location;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thalweg store ls --store s3://bucket/prefix
  thalweg store check --store s3://bucket/prefix
  thalweg store fetch /var/lib/thalweg --store s3://bucket/prefix
                                              of a stopped server

`ls` and `check` change nothing, and may run beside servers and nodes.
Credentials, region and endpoint come from the environment, ~/.aws or the
machine's role, as for `thalweg serve`.")]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(clap::Subcommand)]
enum StoreCommand {
    /// Show what the prefix holds: the mirror of a data folder, units with their owners, orphans, and what it takes.
    ///
    /// Lists all of it, and reads roots, directories of streams and the ends of journals. Waits some seconds for nodes
    /// that do not show that they live.
    Ls {
        #[command(flatten)]
        at: At,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read everything that the prefix holds, contents included, and list damage. Costs the transfer of all of it.
    ///
    /// Exit code 0: everything is as it was written; 1: not, or the bucket could not be read.
    Check {
        #[command(flatten)]
        at: At,
        /// Print JSON.
        #[arg(long)]
        json: bool,
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
            // A server makes the folder. Whoever looks at it has named another one.
            Some(location) if location.folder().is_some_and(|folder| !folder.is_dir()) => {
                bail!("--store {location}: there is no such folder")
            }
            Some(location) => Ok(location),
            None => bail!("--store names no bucket"),
        }
    }
}

/// Performs the command, and prints on standard output.
pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<()> {
    match &args.command {
        StoreCommand::Ls { at, json } => ls::run(at.location()?, *json),
        StoreCommand::Check { at, json } => check::run(at.location()?, *json),
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
