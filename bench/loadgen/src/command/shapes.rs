//! Loads of shapes: over HTTP and SQL only, so that they fit any server of this API. Beside them the yardsticks of the
//! same sitting.

mod drain;
mod fetch;
mod follow;
mod yard;

use crate::cli::Target;
use crate::cost::{Cost, forget_peak, peak_bytes, resident_bytes};
use crate::pg::Url;
use crate::work::shape::Definition;
use clap::Subcommand;
use std::fmt::Write;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Clients that fetch shapes until they are up to date: all at once, or one after another on fewer connections.
    Fetch {
        #[command(flatten)]
        definition: Definition,
        /// Number of fetches, in turn over the shapes; by default one for each shape.
        #[arg(long)]
        clients: Option<u64>,
        /// Rows that each fetch has to give.
        #[arg(long)]
        rows: Option<u64>,
        /// Seconds until memory is read.
        #[arg(long, default_value_t = 0.0)]
        settle: f64,
    },
    /// Live clients, taken in turn over the shapes, and a writer that waits until all of them have its transaction.
    Follow {
        #[command(flatten)]
        definition: Definition,
        #[command(flatten)]
        writes: follow::Writes,
    },
    /// Live clients without changes to receive, and the server's memory for them.
    Idle {
        #[command(flatten)]
        definition: Definition,
        /// Clients before the ones that are counted.
        #[arg(long, default_value_t = 1000)]
        beyond: usize,
        #[arg(long, default_value_t = 3.0)]
        settle: f64,
    },
    /// Commits transactions while the server's walsender is stopped, resumes it, and waits until the server confirms
    /// all to Postgres.
    Drain {
        #[command(flatten)]
        backlog: drain::Backlog,
    },
    /// From the commit's acknowledgement to its pgoutput message at a plain replication client.
    YardLatency {
        #[command(flatten)]
        writes: follow::Writes,
    },
    /// Measures how fast transactions are committed, asynchronously.
    YardWrite {
        #[command(flatten)]
        backlog: drain::Backlog,
    },
    /// Plain connections that run COPY TO STDOUT; `{i}` in it is the number of the run.
    YardCopy {
        #[arg(long)]
        pg: Url,
        #[arg(long)]
        copy: String,
        #[arg(long, default_value_t = 1)]
        runs: u64,
    },
}

pub(crate) fn run(target: &Target, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Fetch { definition, clients, rows, settle } => {
            fetch::fetch(target, &definition, clients, rows, settle)
        }
        Command::Follow { definition, writes } => follow::follow(target, &definition, &writes),
        Command::Idle { definition, beyond, settle } => follow::idle(target, &definition, beyond, settle),
        Command::Drain { backlog } => drain::drain(target, &backlog),
        Command::YardLatency { writes } => yard::latency(&writes),
        Command::YardWrite { backlog } => yard::write(&backlog),
        Command::YardCopy { pg, copy, runs } => yard::copy(target, &pg, &copy, runs),
    }
}

/// Memory and CPU of the server around something.
struct Memory {
    server: Option<u32>,
    before: Option<u64>,
}

impl Memory {
    fn begin(server: Option<u32>) -> Self {
        if let Some(pid) = server {
            forget_peak(pid);
        }
        Self { server, before: server.and_then(resident_bytes) }
    }

    /// ` rss_before=… rss=… peak=…`
    fn end(&self) -> String {
        let values = [
            ("rss_before", self.before),
            ("rss", self.server.and_then(resident_bytes)),
            ("peak", self.server.and_then(peak_bytes)),
        ];
        values.iter().filter_map(|(name, value)| Some(format!(" {name}={}", (*value)?))).collect()
    }
}

/// ` cpu_us=… client_us=…`, per operation of `ops`, and how busy both were.
fn spent(cost: &Cost, ops: u64) -> String {
    let mut text = String::new();
    let (ops, seconds) = (ops.max(1) as f64, cost.seconds.max(1e-9));
    for (name, cores, us) in [("cpu_us", "cores", cost.server_us), ("client_us", "client_cores", cost.client_us)] {
        if let Some(us) = us {
            // Writing to a string cannot fail.
            let _ = write!(text, " {name}={:.2} {cores}={:.2}", us / ops, us / 1e6 / seconds);
        }
    }
    text
}
