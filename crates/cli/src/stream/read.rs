//! `thalweg stream read`.

use super::pages::{After, Pages};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::server::{Call, Server, offset};
use clap::Args;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream read notes
  thalweg stream read events | jq .n          JSON messages, one per line
  thalweg stream read events --last 10        the last ten messages, or lines
  thalweg stream read blobs/1 --output copy
  next=$(thalweg stream read notes --show-offset 2>&1 >notes)
  thalweg stream read notes --from \"$next\"    later: new content since then

For --last the whole stream is read, since the protocol has no way back from its end.")]
pub(crate) struct ReadArgs {
    /// The stream.
    name: String,
    /// Where to begin: start, now, or an offset that the server gave.
    #[arg(
        long,
        alias = "offset",
        value_name = "start|now|OFFSET",
        default_value = "start",
        allow_hyphen_values = true
    )]
    from: String,
    /// Print only the last N lines, or JSON messages.
    #[arg(long, value_name = "N", conflicts_with = "from")]
    last: Option<u32>,
    /// Write to this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the next offset on standard error.
    #[arg(long)]
    show_offset: bool,
}

pub(crate) fn run(server: &Server, args: &ReadArgs) -> Result<(), Failure> {
    let mut pages = Pages::new(server, &args.name, offset(&args.from), false);
    match &args.output {
        Some(path) => {
            // A failing request must not empty an existing file.
            let head = Call::new(Method::HEAD, server.stream(&args.name));
            server.ask(&head).map_err(|failure| failure.of_stream(&args.name, ""))?;
            let file = File::create(path).map_err(|error| Failure::Local(format!("{}: {error}", path.display())))?;
            content(args, &mut pages, &file, false)?;
            // The offset is printed only when the content is durable in the file.
            file.sync_all()?;
        }
        None => {
            let out = std::io::stdout();
            content(args, &mut pages, out.lock(), out.is_terminal())?;
        }
    }
    if args.show_offset {
        eprintln!("{}", pages.offset());
    }
    Ok(())
}

fn content(args: &ReadArgs, pages: &mut Pages<'_>, mut out: impl Write, busy: bool) -> Result<(), Failure> {
    if let Some(count) = args.last {
        return pages.write_last(count, &mut out).map(drop);
    }
    let mut progress = Progress::new(None, busy);
    while pages.next(&mut out, &mut progress)? == After::Page {}
    Ok(())
}
