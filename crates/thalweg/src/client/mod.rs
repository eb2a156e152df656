//! `thalweg stream …` and, in [`shape`], `thalweg shape …`: streams and shapes of a running server from a shell. A file per command, on what they share: [`server`] asks and asks
//! again, [`failure`] says what went wrong, [`pages`] follows content, [`producer`] appends so that nothing is doubled.
//!
//! Knows the protocol only: it works with any server of it. Content goes to standard output and everything else to standard
//! error, so that commands can be joined by pipes.

mod append;
mod batches;
mod close;
mod create;
mod delete;
mod failure;
mod fork;
mod list;
mod messages;
mod pages;
mod producer;
mod progress;
mod read;
mod server;
mod shape;
mod tail;

pub(crate) use shape::{ShapeArgs, run as run_shape};

use clap::{Args, Subcommand};
use failure::Failure;
use server::{Server, Target};
use std::process::ExitCode;
use std::time::Duration;

/// How long a command that is to end keeps trying a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  thalweg stream create notes --content-type text/plain
  echo 'first words' | thalweg stream append notes
  thalweg stream read notes
  thalweg stream tail notes                                   from now on, until the stream is closed

  thalweg stream create events --json
  tail -F app.ndjson | thalweg stream append events --lines   each line a message, none lost or doubled
  thalweg stream tail events --from -1 | jq .
  thalweg stream ls --prefix ev

NAME is what follows /v1/stream/ in the stream's URL, or the whole URL; characters that no URL holds are encoded. A server elsewhere:
  export THALWEG_SERVER=https://streams.example.org THALWEG_TOKEN=…

Exit codes: 0 done; 1 something else failed; 2 wrong usage; 3 there is no such stream; 4 the stream's state refuses it (closed,
exists differently, …); 5 the request is refused as it is; 6 the server cannot be reached or is overloaded, and retrying did not
help; 7 not allowed, or not who one says.
";

#[derive(Subcommand)]
enum Command {
    /// Create a stream. One that exists with the same configuration is fine.
    Create(create::CreateArgs),
    /// Append standard input: as one message, or line by line.
    Append(append::AppendArgs),
    /// Read to the present end. JSON messages come one per line.
    Read(read::ReadArgs),
    /// Follow a stream until it is closed. Reconnects by itself.
    Tail(tail::TailArgs),
    /// Close a stream: readers learn that nothing follows.
    Close(close::CloseArgs),
    /// Delete a stream.
    Delete(delete::DeleteArgs),
    /// Make a stream that begins as another one does.
    Fork(fork::ForkArgs),
    /// List streams.
    Ls(list::ListArgs),
}

/// Runs one command; what went wrong is said on standard error.
pub(crate) fn run(args: StreamArgs) -> ExitCode {
    let patience = if matches!(args.command, Command::Tail(_)) { None } else { Some(PATIENCE) };
    let done = Server::new(args.target, patience).and_then(|server| match args.command {
        Command::Create(args) => create::run(&server, &args),
        Command::Append(args) => append::run(&server, &args),
        Command::Read(args) => read::run(&server, &args),
        Command::Tail(args) => tail::run(&server, &args),
        Command::Close(args) => close::run(&server, &args),
        Command::Delete(args) => delete::run(&server, &args),
        Command::Fork(args) => fork::run(&server, &args),
        Command::Ls(args) => list::run(&server, &args),
    });
    code(done)
}

/// Says on standard error what went wrong.
fn code(done: Result<(), Failure>) -> ExitCode {
    match done {
        // Whoever read our output has seen enough.
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("thalweg: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
