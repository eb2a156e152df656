//! The command line.

use crate::command::shapes;
use crate::floor::Effort;
use crate::names::Names;
use crate::work::append::Body;
use crate::work::idle::Kind;
use crate::work::live::Live;
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Parser)]
#[command(
    about = "Load for measurements, with its cost to the server. Every command ends with one line of key=value pairs; \
                   bench/README.md says what the keys mean."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Clone)]
pub(crate) struct Target {
    /// The server, as HOST:PORT.
    #[arg(long, global = true, default_value = "127.0.0.1:4437")]
    pub(crate) server: SocketAddr,
    /// The server's process: its CPU time and memory are reported.
    #[arg(long, global = true)]
    pub(crate) server_pid: Option<u32>,
    #[arg(long, global = true, default_value_t = 32)]
    pub(crate) connections: usize,
    /// Concurrent requests on one connection.
    #[arg(long, global = true, default_value_t = 1)]
    pub(crate) depth: usize,
    /// Threads that share the connections.
    #[arg(long, global = true, default_value_t = 1)]
    pub(crate) threads: usize,
}

/// Length and rate of a run.
#[derive(Args, Clone)]
pub(crate) struct Window {
    /// Seconds that are counted.
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Seconds before these that are not.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) warm: f64,
    /// Operations per second, over all connections; latencies then count from each operation's due time. By default a
    /// closed loop.
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Seconds between two lines of output; 0 prints the last line only.
    #[arg(long, default_value_t = 0)]
    pub(crate) every: u64,
}

/// Streams that are read from beginning to end.
#[derive(Args, Clone)]
pub(crate) struct Whole {
    /// Messages that each stream has; with --verify.
    #[arg(long, default_value_t = 2000)]
    pub(crate) messages: u64,
    /// Bytes of each; with --verify.
    #[arg(long, default_value_t = 1024)]
    pub(crate) message_size: usize,
    /// Compare content with the output of `fill --binary`. Costs the client a checksum.
    #[arg(long)]
    pub(crate) verify: bool,
    /// A folder whose files are kept out of the page cache during the run.
    #[arg(long)]
    pub(crate) evict: Option<PathBuf>,
    /// Milliseconds between two evictions.
    #[arg(long, default_value_t = 100)]
    pub(crate) evict_every: u64,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Creates streams, empty.
    Create {
        #[command(flatten)]
        names: Names,
        #[arg(long)]
        json: bool,
        /// Seconds to live; 0 is for ever.
        #[arg(long, default_value_t = 0)]
        ttl: u64,
    },
    /// Creates streams and fills each with messages: JSON of one producer, or binary content that `replay --verify`
    /// knows.
    Fill {
        #[command(flatten)]
        names: Names,
        #[arg(long, default_value_t = 10)]
        messages: u64,
        #[arg(long, alias = "bytes", default_value_t = 100)]
        size: usize,
        /// Messages in one request.
        #[arg(long, default_value_t = 1)]
        per_post: u64,
        /// Seconds to live; 0 is for ever.
        #[arg(long, default_value_t = 0)]
        ttl: u64,
        /// Binary streams instead of JSON.
        #[arg(long)]
        binary: bool,
        /// One message to every stream of a connection before the next message to any.
        #[arg(long)]
        interleave: bool,
    },
    /// Fills binary streams while others grow between their messages, in a fixed order, so that no stream's content
    /// lies together.
    Weave {
        #[command(flatten)]
        names: Names,
        #[arg(long, default_value_t = 2000)]
        messages: u64,
        #[arg(long, alias = "bytes", default_value_t = 1024)]
        size: usize,
        /// Number of the other streams.
        #[arg(long, default_value_t = 10_000)]
        others: u64,
        /// Messages to others, in turn, between two messages of one connection's stream.
        #[arg(long, default_value_t = 10)]
        between: u64,
    },
    /// Deletes streams.
    Delete {
        #[command(flatten)]
        names: Names,
    },
    /// Appends to streams, in a closed loop or at a rate.
    Append {
        #[command(flatten)]
        names: Names,
        #[command(flatten)]
        body: Body,
        #[command(flatten)]
        window: Window,
        /// Create the streams first.
        #[arg(long)]
        create: bool,
    },
    /// Reads small streams as a whole; creates them first, with `size` bytes in one message.
    Read {
        #[command(flatten)]
        names: Names,
        #[arg(long, default_value_t = 1024)]
        size: usize,
        #[command(flatten)]
        window: Window,
    },
    /// Reads streams from the beginning to the end, page by page; an operation is a whole stream.
    Replay {
        #[command(flatten)]
        names: Names,
        #[command(flatten)]
        whole: Whole,
        #[command(flatten)]
        window: Window,
    },
    /// Appends, while some connections replay other streams.
    Mixed {
        #[command(flatten)]
        names: Names,
        #[command(flatten)]
        body: Body,
        #[command(flatten)]
        whole: Whole,
        #[command(flatten)]
        window: Window,
        /// Connections that replay.
        #[arg(long, default_value_t = 8)]
        replayers: usize,
        /// Replays per second, over all connections; by default as many as possible.
        #[arg(long)]
        replay_rate: Option<f64>,
        #[arg(long, default_value = "replay-")]
        replay_prefix: String,
        #[arg(long, default_value_t = 8)]
        replay_streams: u64,
    },
    /// Reads some streams, in turn, and counts their JSON messages; fails on unexpected content.
    Verify {
        #[command(flatten)]
        names: Names,
        #[arg(long, default_value_t = 1000)]
        sample: u64,
        #[arg(long, default_value_t = 10)]
        messages: u64,
    },
    /// One writer, many live readers of one stream.
    Fanout {
        #[arg(long, default_value_t = 100)]
        readers: usize,
        #[arg(long, value_enum, default_value_t = Live::Sse)]
        live: Live,
        #[arg(long, default_value = "fanout")]
        stream: String,
        /// Events per second.
        #[arg(long, default_value_t = 50.0)]
        rate: f64,
        #[arg(long, alias = "bytes", default_value_t = 256)]
        size: usize,
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        #[arg(long, default_value_t = 1.0)]
        warm: f64,
        /// The writer's server, if the readers go through a proxy.
        #[arg(long)]
        origin: Option<SocketAddr>,
    },
    /// Opens idle connections, and measures the server's memory for them.
    Idle {
        #[arg(long, value_enum, default_value_t = Kind::KeepAlive)]
        kind: Kind,
        #[arg(long, default_value = "idle")]
        stream: String,
        /// Seconds until the server's memory is read, once all wait.
        #[arg(long, default_value_t = 2.0)]
        settle: f64,
        /// Seconds to hold them after that.
        #[arg(long, default_value_t = 0.0)]
        hold: f64,
    },
    /// Shapes of a Postgres database, and yardsticks of that database itself.
    Shapes {
        #[command(subcommand)]
        command: shapes::Command,
    },
    /// Is a server itself: the cheapest that could answer appends on this machine.
    Floor {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        #[arg(long)]
        log: PathBuf,
        #[arg(long, value_enum, default_value_t = Effort::Sync)]
        effort: Effort,
    },
}
