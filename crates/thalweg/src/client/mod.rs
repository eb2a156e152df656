//! Commands that ask a running server: `thalweg stream …`, `shape …` (in [`shape`]), `status`, and `context …`. Each
//! command has a file. They share these: [`target`] chooses the server, [`server`] sends requests and retries,
//! [`failure`] explains errors, [`pages`] follows content, [`producer`] appends without duplicates.
//!
//! `stream` knows the protocol, and for lists and details thalweg's additions to it: it works with any server of the
//! protocol. Content goes to standard output and everything else to standard error, so that commands can be joined by
//! pipes.

mod append;
mod batches;
mod bench;
mod close;
mod context;
mod create;
mod delete;
mod failure;
mod fork;
mod info;
mod last;
mod list;
mod messages;
mod pages;
mod producer;
mod read;
mod server;
mod shape;
mod status;
mod table;
mod tail;
mod target;

pub(crate) use context::{ContextArgs, run as run_context};
pub(crate) use failure::Failure;
pub(crate) use server::{Answer, Call, Server};
pub(crate) use shape::{ShapeArgs, run as run_shape};
pub(crate) use status::{StatusArgs, run as run_status};
pub(crate) use target::Target;

use clap::{Args, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// How long a command that is to end keeps trying a server that does not answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

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
  thalweg stream tail notes                   from now on, until it is closed

  thalweg stream create events --json
  tail -F app.ndjson | thalweg stream append events --lines
                                              each line a message, none lost
                                              or doubled
  thalweg stream tail events --from start | jq .
  thalweg stream ls --long --prefix ev
  thalweg stream bench                        throughput and latency from here

NAME is the part of the stream's URL behind /v1/stream/, or the whole URL; characters that no URL holds are encoded. A server elsewhere:
  export THALWEG_SERVER=https://streams.example.org THALWEG_TOKEN=…
  thalweg context add prod --server https://streams.example.org --token -

Exit codes: 0 done; 1 something else failed; 2 wrong usage; 3 there is no such stream; 4 the stream's state refuses it (closed, exists \
differently, …); 5 the request is refused as it is; 6 the server cannot be reached or is overloaded, and retrying did not help; 7 not \
allowed, or no valid token.
";

#[derive(Subcommand)]
enum Command {
    /// Create a stream. Succeeds if a stream with the same configuration exists.
    Create(create::CreateArgs),
    /// Append standard input or a file: as one message, or line by line.
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
    /// Show the properties of a stream.
    Info(info::InfoArgs),
    /// Measure appends and reads, on streams that the command creates and deletes.
    Bench(bench::BenchArgs),
}

/// Runs one command on streams.
pub(crate) fn run_stream(args: StreamArgs) -> Result<(), Failure> {
    let patience = if matches!(args.command, Command::Tail(_)) { None } else { Some(PATIENCE) };
    let server = Server::new(&args.target, patience)?;
    match args.command {
        Command::Create(args) => create::run(&server, &args),
        Command::Append(args) => append::run(&server, &args),
        Command::Read(args) => read::run(&server, &args),
        Command::Tail(args) => tail::run(&server, &args),
        Command::Close(args) => close::run(&server, &args),
        Command::Delete(args) => delete::run(&server, &args),
        Command::Fork(args) => fork::run(&server, &args),
        Command::Ls(args) => list::run(&server, &args),
        Command::Info(args) => info::run(&server, &args),
        Command::Bench(bench) => bench::run(&args.target, &server, &bench),
    }
}

/// Says on standard error why a command failed; its exit code.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Failure>() {
        // The reader of our output has closed it.
        Some(Failure::ReaderGone) => ExitCode::SUCCESS,
        known => {
            crate::logs::say(&format!("thalweg: {error:#}"));
            known.map_or(ExitCode::FAILURE, |failure| ExitCode::from(failure.exit_code()))
        }
    }
}

/// Reports success to a person at a terminal. Scripts have the exit code.
fn report(message: impl FnOnce() -> String) {
    if std::io::stderr().is_terminal() {
        eprintln!("{}", message());
    }
}

/// Prompts a person, if standard input is a terminal.
fn ask_on_terminal(words: &str) {
    if std::io::stdin().is_terminal() {
        crate::say::note(format_args!("{words}"));
    }
}

/// An offset as people write it.
fn offset(text: &str) -> &str {
    if text == "start" { "-1" } else { text }
}
