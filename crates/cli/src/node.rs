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
use std::time::{Duration, Instant};
use thalweg_base::Span;
use ureq::http::Method;

/// The path of operators' requests.
const ADMIN: &str = "/v1/admin/nodes";

/// How often a drain looks whether it is done.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg node ls --server http://10.0.0.1:4437
  thalweg node owner chat/42 --server http://10.0.0.1:4437
  thalweg node drain node-2 --server http://10.0.0.1:4437
                                              before it is stopped for good; a
                                              stop does it by itself
  thalweg node drain node-2 --undo --server http://10.0.0.1:4437

Any live node can be asked. Where there are tokens this needs one with admin
over everything. Exit codes: 3 no such node, or the server is no node; 4 the
last node cannot be drained; 6 no answer, or not done in time.")]
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
    /// Print the name of the node that owns a stream.
    Owner {
        /// The stream, as in its URL.
        stream: String,
        /// Print the server's answer, as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Have a node give its units to the others, and take none any more; wait until it has none.
    Drain {
        /// The node; the one that is asked, if none is named.
        name: Option<String>,
        /// Let it take its share again.
        #[arg(long)]
        undo: bool,
        /// How long to wait until the other nodes have its units; 0s does not wait.
        #[arg(long, value_name = "TIME", default_value = "30s", conflicts_with = "undo")]
        wait: Span,
    },
}

#[derive(Deserialize)]
struct Listed {
    nodes: Vec<Node>,
    units: Vec<Unit>,
    /// The unit of shapes, if the prefix has one.
    #[serde(default)]
    shapes: Option<Shapes>,
}

#[derive(Deserialize)]
struct Shapes {
    owner: Option<String>,
}

#[derive(Deserialize)]
struct Node {
    name: String,
    address: String,
    live: bool,
    draining: bool,
    this: bool,
    units: Vec<u64>,
    #[serde(default)]
    has_shapes: bool,
    heard_ms_ago: u64,
}

#[derive(Deserialize)]
struct Unit {
    unit: u64,
    owner: Option<String>,
}

#[derive(Deserialize)]
struct Drained {
    was_draining: bool,
}

#[derive(Deserialize)]
struct Owned {
    exists: bool,
    unit: u64,
    owner: Option<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    name: String,
    address: String,
}

/// Runs one command on nodes.
pub fn run(args: NodeArgs) -> Result<(), Failure> {
    let server = Server::new(&args.target, Some(PATIENCE))?;
    match args.command {
        Command::Ls { json } => list(&server, json),
        Command::Owner { stream, json } => owner(&server, &stream, json),
        Command::Drain { name, undo: true, .. } => {
            let told = tell(&server, Method::DELETE, name.as_deref())?;
            report(|| if told.was_draining { "it takes its share again" } else { "it was not draining" }.to_owned());
            Ok(())
        }
        Command::Drain { name, wait, .. } => {
            let told = tell(&server, Method::POST, name.as_deref())?;
            if told.was_draining {
                report(|| "it was draining already".to_owned());
            }
            wait_until_drained(&server, name.as_deref(), wait.0)
        }
    }
}

/// Has a node begin to drain, or end it.
fn tell(server: &Server, method: Method, name: Option<&str>) -> Result<Drained, Failure> {
    let named = name.map(|name| format!("?node={name}")).unwrap_or_default();
    if name.is_some_and(|name| !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))) {
        return Err(Failure::Local("a node's name has letters, digits and -._ only".to_owned()));
    }
    let call = Call::new(method, server.at(&format!("{ADMIN}/drain{named}")));
    let mut answer = server.ask(&call).map_err(is_no_node)?;
    serde_json::from_reader(answer.body()).map_err(|error| strange(&error))
}

fn look(server: &Server) -> Result<Listed, Failure> {
    let mut answer = server.ask(&Call::new(Method::GET, server.at(ADMIN))).map_err(is_no_node)?;
    serde_json::from_reader(answer.body()).map_err(|error| strange(&error))
}

fn strange(error: &serde_json::Error) -> Failure {
    Failure::Strange(format!("of nodes: {error}"))
}

fn wait_until_drained(server: &Server, name: Option<&str>, wait: Duration) -> Result<(), Failure> {
    if wait.is_zero() {
        report(|| "it gives its units to the other nodes".to_owned());
        return Ok(());
    }
    let until = Instant::now() + wait;
    loop {
        let listed = look(server)?;
        let is_it = |node: &&Node| node.live && name.map_or(node.this, |name| node.name == name);
        let left: usize = listed.nodes.iter().filter(is_it).map(|node| node.units.len()).sum();
        let free = listed.units.iter().filter(|unit| unit.owner.is_none()).count();
        if left + free == 0 {
            report(|| "the other nodes have its units".to_owned());
            return Ok(());
        }
        if Instant::now() >= until {
            let why =
                format!("{left} units are still with it, and {free} without an owner, after {wait:?}; it goes on");
            return Err(Failure::Unreachable { server: server.base().to_owned(), why });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn owner(server: &Server, stream: &str, json: bool) -> Result<(), Failure> {
    let url = server.stream(stream);
    let Some((_, name)) = url.split_once("/v1/stream/") else {
        return Err(Failure::Local(format!("{stream} is no stream")));
    };
    let call = Call::new(Method::GET, server.at(&format!("{ADMIN}/owner?stream={name}")));
    let mut answer = server.ask(&call).map_err(is_no_node)?;
    let said: serde_json::Value = serde_json::from_reader(answer.body()).map_err(|error| strange(&error))?;
    let mut out = std::io::stdout().lock();
    if json {
        return Ok(writeln!(out, "{said}")?);
    }
    let owned: Owned = serde_json::from_value(said).map_err(|error| strange(&error))?;
    let state = if owned.exists { "" } else { "; there is no such stream yet" };
    let Some(owner) = owned.owner else {
        let why = format!("unit {} has no owner just now; ask again in a second", owned.unit);
        return Err(Failure::Unreachable { server: server.base().to_owned(), why });
    };
    writeln!(out, "{}", owner.name)?;
    report(|| format!("unit {}, at {}{state}", owned.unit, owner.address));
    Ok(())
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
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if json {
        let mut answer = server.ask(&Call::new(Method::GET, server.at(ADMIN))).map_err(is_no_node)?;
        let value: serde_json::Value = serde_json::from_reader(answer.body()).map_err(|error| strange(&error))?;
        writeln!(out, "{value}")?;
        return Ok(out.flush()?);
    }
    let listed = look(server)?;
    let mut table = Table::new(["NODE", "ADDRESS", "STATE", "HEARD", "UNITS"]);
    for node in &listed.nodes {
        let state = match (node.live, node.draining) {
            (false, _) => "gone",
            (true, true) => "draining",
            (true, false) => "live",
        };
        let heard = if node.this { "this one".to_owned() } else { format!("{} ago", time(node.heard_ms_ago)) };
        let shapes = node.has_shapes.then(|| "shapes".to_owned());
        let units = node.units.iter().map(u64::to_string).chain(shapes).collect::<Vec<_>>().join(" ");
        table.row([node.name.clone(), node.address.clone(), state.to_owned(), heard, units]);
    }
    table.write(&mut out)?;
    out.flush()?;
    let free = listed.units.iter().filter(|unit| unit.owner.is_none()).map(|unit| unit.unit.to_string());
    let shapes = listed.shapes.iter().filter(|shapes| shapes.owner.is_none()).map(|_| "shapes".to_owned());
    let free: Vec<String> = free.chain(shapes).collect();
    let and_shapes = if listed.shapes.is_some() { " and that of shapes" } else { "" };
    match free.is_empty() {
        true => eprintln!("{} units{and_shapes}, each with an owner", listed.units.len()),
        false => eprintln!("{} units{and_shapes}; without an owner: {}", listed.units.len(), free.join(" ")),
    }
    Ok(())
}
