//! `thalweg stream tail`: long-polls one after the other, which give every byte as it is (SSE cannot tell CR from LF) and are shared
//! by caches on the way.

use super::failure::Failure;
use super::pages::{After, Pages};
use super::progress::Progress;
use super::server::Server;
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream tail notes                                  what comes from now on
  thalweg stream tail events --from -1 | jq .                everything, then what comes
  thalweg stream tail notes --from 0000000000000064_0000000000000120

Ends with code 0 when the stream is closed, and by Ctrl-C. A server that is gone is asked again until it is back; nothing is
left out or comes twice.")]
pub(crate) struct TailArgs {
    /// The stream.
    name: String,
    /// Where to begin: now, -1 for the start, or an offset that the server gave.
    #[arg(long, value_name = "now|-1|OFFSET", default_value = "now", allow_hyphen_values = true)]
    from: String,
}

pub(crate) fn run(server: &Server, args: &TailArgs) -> Result<(), Failure> {
    // Every page is written whole before the next one is asked for, so that there is nothing to clean up.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::new(AtomicBool::new(true)))?;
    }
    let mut pages = Pages::new(server, &args.name, &args.from, true);
    if args.from == "now" && pages.skip_to_tail()? == After::Closed {
        return Ok(());
    }
    let out = std::io::stdout();
    let mut progress = Progress::new(out.is_terminal());
    let mut out = out.lock();
    while pages.next(&mut out, &mut progress)? != After::Closed {}
    Ok(())
}
