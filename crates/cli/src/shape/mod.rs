//! `thalweg shape …`: shapes of a running server from a shell. `create` and `tail` speak the public API, the rest
//! `/v1/admin/shapes`.

mod create;
mod definition;
mod drop;
mod explain;
mod list;
mod tail;
mod turns;

use crate::failure::Failure;
use crate::server::Server;
use crate::{PATIENCE, Target};
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ShapeArgs {
    #[command(flatten)]
    target: Target,
    /// The server's shape secret, sent as `secret`. Other users of the machine can see command lines: prefer a context,
    /// or the variable [env: THALWEG_SHAPE_SECRET].
    #[arg(long, global = true, help_heading = "Server", value_name = "TEXT")]
    secret: Option<String>,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  thalweg shape create items                  rows are copied now, not when the
                                              first client comes
  thalweg shape tail items                    changes from now on, one JSON
                                              message per line
  thalweg shape tail items --from start | jq .value
                                              the rows, then their changes
  thalweg shape ls
  thalweg shape drop 1234-5678                its clients fetch it again

A table is written as in SQL: items, app.items, 'app.\"Items\"'. ls, drop and explain are for operators: on a server with tokens they need one \
with admin over everything (--token). create and tail need the secret of the shapes, if there is one (--secret).

Exit codes: 0 done; 1 something else failed; 2 wrong usage; 3 there is no such shape; 4 the shape's state refuses it; 5 the request is \
refused as it is; 6 the server or its database cannot be reached, and retrying did not help; 7 not allowed, or a wrong secret.
";

#[derive(Subcommand)]
enum Command {
    /// Create a shape if it does not exist, and wait until all of its rows are there.
    Create(create::CreateArgs),
    /// Follow a shape: its changes, one JSON message per line. Ends by Ctrl-C.
    Tail(tail::TailArgs),
    /// List the server's shapes.
    Ls(list::ListArgs),
    /// Drop a shape: its clients must fetch it again.
    Drop(drop::DropArgs),
    /// Show how changes find the shapes of a where clause: by which index, or why by none.
    Explain(explain::ExplainArgs),
}

/// Runs one command on shapes.
pub fn run(args: ShapeArgs) -> Result<(), Failure> {
    let patience = if matches!(args.command, Command::Tail(_)) { None } else { Some(PATIENCE) };
    let server = Server::of_shapes(&args.target, args.secret.as_deref(), patience)?;
    match args.command {
        Command::Create(args) => create::run(&server, &args),
        Command::Tail(args) => tail::run(&server, &args),
        Command::Ls(args) => list::run(&server, &args),
        Command::Drop(args) => drop::run(&server, &args),
        Command::Explain(args) => explain::run(&server, &args),
    }
}

/// The path of operators' requests.
const ADMIN: &str = "/v1/admin/shapes";

/// A server without shapes answers 404 to unknown paths.
fn is_no_server_of_shapes(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(mut refusal) if refusal.status == 404 && refusal.code.is_none() => {
            refusal.message = "there are no shapes here: is it a thalweg with --database-url?".to_owned();
            Failure::Refused(refusal)
        }
        failure => failure,
    }
}
