//! `thalweg stream read`.

use super::failure::Failure;
use super::pages::{After, Pages};
use super::progress::Progress;
use super::server::{Call, Server};
use clap::Args;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream read notes
  thalweg stream read events | jq .n                         JSON messages come one per line
  thalweg stream read blobs/1 --output copy
  next=$(thalweg stream read notes --show-offset 2>&1 >notes)   and later: thalweg stream read notes --offset \"$next\"")]
pub(crate) struct ReadArgs {
    /// The stream.
    name: String,
    /// Read from here on: an offset that the server gave, -1 for the start, or now.
    #[arg(long, allow_hyphen_values = true)]
    offset: Option<String>,
    /// Read from the start, as is the default.
    #[arg(long, conflicts_with = "offset")]
    from_start: bool,
    /// Write to this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Say on standard error where to go on.
    #[arg(long)]
    show_offset: bool,
}

pub(crate) fn run(server: &Server, args: &ReadArgs) -> Result<(), Failure> {
    let mut pages = Pages::new(server, &args.name, args.offset.as_deref().unwrap_or("-1"), false);
    match &args.output {
        Some(path) => {
            // A file that is there is not emptied for nothing.
            server.ask(&Call::new(Method::HEAD, server.stream(&args.name)))?;
            let file = File::create(path).map_err(|error| Failure::Local(format!("{}: {error}", path.display())))?;
            all(&mut pages, &file, &mut Progress::new(false))?;
            // What is reported as read is there after a crash too.
            file.sync_all()?;
        }
        None => {
            let out = std::io::stdout();
            all(&mut pages, out.lock(), &mut Progress::new(out.is_terminal()))?;
        }
    }
    if args.show_offset {
        eprintln!("{}", pages.offset());
    }
    Ok(())
}

fn all(pages: &mut Pages<'_>, mut out: impl Write, progress: &mut Progress) -> Result<(), Failure> {
    while pages.next(&mut out, progress)? == After::Page {}
    Ok(())
}
