//! Load for measurements at a small cost to the machine: raw sockets on epoll, one thread by default.
//!
//! [`drive`] is the loop, [`work`] makes requests and judges answers, [`command`] prepares runs and prints results.

mod ask;
mod cli;
mod command;
mod content;
mod cost;
mod drive;
mod evict;
mod floor;
mod http;
mod latency;
mod names;
mod pg;
mod run;
mod socket;
mod work;

use clap::Parser;
use cli::{Cli, Command};
use command::{BINARY, Fanout, Replayers, each, shapes};
use names::Names;
use work::each::{Fill, Plan};
use work::weave::Pattern;

fn main() -> anyhow::Result<()> {
    let Cli { target, command } = Cli::parse();
    http::set_host(target.server);
    let path = |stream: &str| format!("/v1/stream/{stream}");
    match command {
        Command::Create { names, json, ttl } => {
            let content_type = if json { "application/json" } else { BINARY };
            each(&target, &names, "create", &Plan::Create { content_type, ttl, body: Vec::new() }, false)
        }
        Command::Fill { names, messages, size, per_post, ttl, binary, interleave } => {
            let fill = Fill { messages, size, per_post, ttl, json: !binary };
            each(&target, &names, "fill", &Plan::Fill(fill), interleave)
        }
        Command::Weave { names, messages, size, others, between } => {
            command::weave(&target, &names, &Pattern { messages, size, others, between })
        }
        Command::Delete { names } => each(&target, &names, "delete", &Plan::Delete, false),
        Command::Append { names, body, window, create } => command::append(&target, &names, &body, &window, create),
        Command::Read { names, size, window } => command::read(&target, &names, size, &window),
        Command::Replay { names, whole, window } => command::replay(&target, &names, &whole, &window),
        Command::Mixed { names, body, whole, window, replayers, replay_rate, replay_prefix, replay_streams } => {
            let read = Names { prefix: replay_prefix, streams: replay_streams, from: 0, step: 1, ..names.clone() };
            let replayers = Replayers { connections: replayers, rate: replay_rate, names: read };
            command::mixed(&target, &names, &body, &replayers, &whole, &window)
        }
        Command::Verify { names, sample, messages } => command::verify(&target, &names, sample, messages),
        Command::Fanout { readers, live, stream, rate, size, seconds, warm, origin } => {
            let origin = origin.unwrap_or(target.server);
            let path = path(&stream);
            command::fanout(&target, &Fanout { readers, live, path, rate, size, seconds, warm, origin })
        }
        Command::Idle { kind, stream, settle, hold } => command::idle(&target, kind, &path(&stream), settle, hold),
        Command::Shapes { command } => shapes::run(&target, command),
        Command::Floor { listen, log, effort } => floor::serve(listen, &log, effort),
    }
}
