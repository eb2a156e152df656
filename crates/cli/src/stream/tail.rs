//! `thalweg stream tail`: one long-poll after the other. Long-polls carry every byte unchanged (SSE cannot distinguish
//! CR from LF), and caches on the path can share their answers.

use super::pages::{After, Pages};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::server::{Server, offset};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream tail notes                   new content from now on
  thalweg stream tail events --from start | jq .
                                              everything, then new content
  thalweg stream tail events --last 10        the last ten, then new content
  thalweg stream tail notes --from 0000000000000064_0000000000000120

Ends with code 0 when the stream is closed, and by Ctrl-C. A server that is gone is asked again until it is back; nothing is left out or \
comes twice. For --last the whole stream is read, since the protocol has no way back from its end.")]
pub(crate) struct TailArgs {
    /// The stream.
    name: String,
    /// Where to begin: now, start, or an offset that the server gave.
    #[arg(long, value_name = "now|start|OFFSET", default_value = "now", allow_hyphen_values = true)]
    from: String,
    /// Begin with the last N lines or JSON messages of the present content.
    #[arg(long, value_name = "N", conflicts_with = "from")]
    last: Option<u32>,
}

pub(crate) fn run(server: &Server, args: &TailArgs) -> Result<(), Failure> {
    // Every page is written whole before the next request, so a signal needs no cleanup.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::new(AtomicBool::new(true)))?;
    }
    let out = std::io::stdout();
    let mut progress = Progress::new(None, out.is_terminal());
    let mut out = out.lock();
    let mut pages = Pages::new(server, &args.name, offset(&args.from), true);
    if let Some(count) = args.last {
        let mut past = Pages::new(server, &args.name, "-1", false);
        let closed = past.write_last(count, &mut out)?;
        if closed == After::Closed {
            return Ok(());
        }
        pages = Pages::new(server, &args.name, past.offset(), true);
    } else if args.from == "now" && pages.skip_to_tail()? == After::Closed {
        return Ok(());
    }
    while pages.next(&mut out, &mut progress)? != After::Closed {}
    Ok(())
}
