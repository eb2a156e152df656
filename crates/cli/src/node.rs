//! `thalweg node …`: the nodes that share a bucket, as one of them sees it.

use crate::failure::Failure;
use crate::human::time;
use crate::say::report;
use crate::server::{Call, Server};
use crate::table::Table;
use crate::{PATIENCE, Target};
use clap::{Args, Subcommand};
use serde::Deserialize;
use std::io::Write;
use ureq::http::Method;

/// The path of operators' requests.
const ADMIN: &str = "/v1/admin/nodes";

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg node ls --server http://127.0.0.1:4437
  thalweg node drain --server http://10.0.0.7:4437
                                              before the node is stopped for
                                              good; a stop does it by itself
  thalweg node drain --undo --server http://10.0.0.7:4437")]
pub struct NodeArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the nodes, and the units that each of them owns.
    Ls {
        /// Print the server's answer, as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Have the node that is asked give its units to the others, and take none any more.
    Drain {
        /// Let it take its share again.
        #[arg(long)]
        undo: bool,
    },
}

#[derive(Deserialize)]
struct Listed {
    nodes: Vec<Node>,
    units: Vec<Unit>,
}

#[derive(Deserialize)]
struct Node {
    name: String,
    address: String,
    live: bool,
    draining: bool,
    this: bool,
    units: Vec<u64>,
    heard_ms_ago: u64,
}

#[derive(Deserialize)]
struct Unit {
    unit: u64,
    owner: Option<String>,
}

/// Runs one command on nodes.
pub fn run(args: NodeArgs) -> Result<(), Failure> {
    let server = Server::new(&args.target, Some(PATIENCE))?;
    match args.command {
        Command::Ls { json } => list(&server, json),
        Command::Drain { undo } => {
            let method = if undo { Method::DELETE } else { Method::POST };
            server.ask(&Call::new(method, server.at(&format!("{ADMIN}/drain")))).map_err(is_no_node)?;
            report(|| {
                if undo { "it takes its share again" } else { "it gives its units to the other nodes" }.to_owned()
            });
            Ok(())
        }
    }
}

fn is_no_node(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(mut refusal) if refusal.status == 404 && refusal.code.is_none() => {
            refusal.message = "this server is no node: was it started with --node?".to_owned();
            Failure::Refused(refusal)
        }
        failure => failure,
    }
}

fn list(server: &Server, json: bool) -> Result<(), Failure> {
    let mut answer = server.ask(&Call::new(Method::GET, server.at(ADMIN))).map_err(is_no_node)?;
    let strange = |error: serde_json::Error| Failure::Strange(format!("a list of nodes: {error}"));
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if json {
        let value: serde_json::Value = serde_json::from_reader(answer.body()).map_err(strange)?;
        writeln!(out, "{value}")?;
        return Ok(out.flush()?);
    }
    let listed: Listed = serde_json::from_reader(answer.body()).map_err(strange)?;
    let mut table = Table::new(["NODE", "ADDRESS", "STATE", "HEARD", "UNITS"]);
    for node in &listed.nodes {
        let state = match (node.live, node.draining) {
            (false, _) => "gone",
            (true, true) => "draining",
            (true, false) => "live",
        };
        let heard = if node.this { "this one".to_owned() } else { format!("{} ago", time(node.heard_ms_ago)) };
        let units = node.units.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        table.row([node.name.clone(), node.address.clone(), state.to_owned(), heard, units]);
    }
    table.write(&mut out)?;
    out.flush()?;
    let free: Vec<String> =
        listed.units.iter().filter(|unit| unit.owner.is_none()).map(|unit| unit.unit.to_string()).collect();
    match free.is_empty() {
        true => eprintln!("{} units, each with an owner", listed.units.len()),
        false => eprintln!("{} units; without an owner: {}", listed.units.len(), free.join(" ")),
    }
    Ok(())
}
