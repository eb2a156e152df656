//! `thalweg shape tail`: one long-poll after the other, whose answers caches on the path can share.

use super::definition::DefinitionArgs;
use super::turns::{Turn, Turns, is_control};
use crate::failure::Failure;
use crate::server::Server;
use crate::server::offset;
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg shape tail items                    changes from now on
  thalweg shape tail items --from start       the rows first
  thalweg shape tail items --from 26800584_0 --handle 1234-5678
  thalweg shape tail items --replica full |
    jq -c '[.headers.operation, .value, .old_value]'

When the shape is dropped (its table was altered or truncated, or an operator did it) a line {\"headers\":{\"control\":\"must-refetch\"}} is \
written: all earlier output is void. With --from now it continues with changes of the new shape, otherwise with the new shape's rows. A server \
that is gone is asked again until it is back. Ends by Ctrl-C with code 0.")]
pub(super) struct TailArgs {
    #[command(flatten)]
    definition: DefinitionArgs,
    /// Where to begin: now, start for all rows, or an offset that the server gave, with its --handle.
    #[arg(long, value_name = "now|start|OFFSET", default_value = "now", allow_hyphen_values = true)]
    from: String,
    /// The shape that the offset is of.
    #[arg(long)]
    handle: Option<String>,
    /// Print control messages too, such as up-to-date.
    #[arg(long)]
    control: bool,
}

const MUST_REFETCH: &str = r#"{"headers":{"control":"must-refetch"}}"#;

pub(super) fn run(server: &Server, args: &TailArgs) -> Result<(), Failure> {
    let from = offset(&args.from);
    if !matches!(from, "now" | "-1") && args.handle.is_none() {
        return Err(Failure::Local("--from an offset needs the --handle that it is of".to_owned()));
    }
    // Every answer is written whole before the next request, so a signal needs no cleanup.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::new(AtomicBool::new(true)))?;
    }
    let again = if from == "now" { "now" } else { "-1" };
    let mut turns = Turns::new(server, &args.definition, from, args.handle.clone());
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    loop {
        match turns.next()? {
            Turn::Messages(messages) => {
                for message in messages.iter().filter(|message| args.control || !is_control(message)) {
                    writeln!(out, "{}", message.get())?;
                }
            }
            Turn::MustRefetch => {
                writeln!(out, "{MUST_REFETCH}")?;
                turns.restart(again);
            }
        }
        out.flush()?;
    }
}
