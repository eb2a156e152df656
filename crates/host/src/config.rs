//! Settings: flags win over the environment, the environment over the file, the file over the defaults.
//!
//! One table of settings, below, is the source of flags, `THALWEG_…` variables, keys of the file, `--help` and the
//! defaults.

mod check;
mod electric;
pub mod environment;
mod file;
mod show;
mod values;

pub use show::{Source, described, example, without_password};

pub use values::{AuthMode, Listen, LogFormat, Names, Store, Switch, WebhookTargets};

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use thalweg_base::{Level, Size, Span};

/// A setting, as the command line, the example file and the documentation show it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Key in the file; the flag has dashes for its underscores.
    pub key: &'static str,
    /// The group that it is shown in.
    pub heading: &'static str,
    /// The default in the form of the command line; empty if the setting has no default.
    pub default: &'static str,
    /// The variable, `THALWEG_…`.
    pub env: &'static str,
    /// The placeholder of a value in the help, such as `TIME`.
    pub value: &'static str,
    /// Its meaning, in one line.
    pub help: &'static str,
}

/// The help of a flag: its meaning, and its default if it has one.
macro_rules! help {
    ("", $help:literal) => {
        $help
    };
    ($default:literal, $help:literal) => {
        concat!($help, " [default: ", $default, "]")
    };
}

macro_rules! settings {
    ($($heading:literal { $($key:ident: $type:ty = $default:tt, $env:literal, $value:literal, $help:literal;)+ })+) => {
        /// One layer of settings: an unset one is left to the layer below.
        #[derive(Clone, Debug, Default, clap::Args, serde::Deserialize)]
        #[serde(default)]
        pub struct Settings {
            $($(
                #[doc = $help]
                #[arg(long, env = $env, value_name = $value, help_heading = $heading, hide_env = true,
                      help = help!($default, $help))]
                #[serde(deserialize_with = "file::value")]
                pub $key: Option<$type>,
            )+)+
        }

        impl Settings {
            /// The keys of the file.
            const KEYS: &'static [&'static str] = &[$($(stringify!($key)),+),+];

            /// All settings, in the order in which they are shown.
            pub const ALL: &'static [Setting] = &[$($(Setting {
                key: stringify!($key), heading: $heading, default: $default, env: $env, value: $value, help: $help,
            }),+),+];

            /// These settings, with those of `below` for unset ones.
            fn over(self, below: Self) -> Self {
                Self { $($($key: self.$key.or(below.$key)),+),+ }
            }

            /// Whether this layer says something of a key.
            fn has(&self, key: &str) -> bool {
                match key { $($(stringify!($key) => self.$key.is_some(),)+)+ _ => false }
            }

            fn resolve(self) -> anyhow::Result<Config> {
                Ok(Config {
                    $($($key: match self.$key {
                        Some(value) => value,
                        None => match $default.parse() {
                            Ok(value) => value,
                            Err(error) => bail!("the default of {} is wrong: {error}", stringify!($key)),
                        },
                    },)+)+
                    dev: false,
                })
            }
        }

        /// Every setting, with its value.
        #[derive(Clone, Debug)]
        pub struct Config {
            $($(#[doc = $help] pub $key: $type,)+)+
            /// The command is `thalweg dev`: its objects in a database are removed when it ends.
            pub dev: bool,
        }

        impl Config {
            /// Every value as the file has it, in the order of [`Settings::ALL`].
            fn written(&self) -> Vec<String> {
                vec![$($(show::Written::written(&self.$key),)+)+]
            }
        }
    };
}

settings! {
    "Serving" {
        listen: Listen = "127.0.0.1:4437", "THALWEG_LISTEN", "HOST:PORT",
            "Where to listen; port 0 takes a free one";
        data: PathBuf = "./data", "THALWEG_DATA", "DIR",
            "The data folder; one server at a time may use it";
        durability: Level = "durable", "THALWEG_DURABILITY", "LEVEL",
            "When streams that do not say so acknowledge an append: `durable` once it is on the disk, `buffered` once it is written, \
             `replicated` once it is in --store";
        long_poll_timeout: Span = "30s", "THALWEG_LONG_POLL_TIMEOUT", "TIME",
            "How long a long-poll waits for data before it answers 204";
        sse_lifetime: Span = "60s", "THALWEG_SSE_LIFETIME", "TIME",
            "How long one SSE connection lives before the client is asked to reconnect";
        chunk_max_age: Span = "60s", "THALWEG_CHUNK_MAX_AGE", "TIME",
            "How long caches may keep a chunk behind which its stream goes on; its bytes never change, but may be removed";
        ready_file: PathBuf = "", "THALWEG_READY_FILE", "PATH",
            "Write the address to this file once requests are served; removed on a graceful stop";
    }
    "Bucket" {
        store: Store = "", "THALWEG_STORE", "s3://BUCKET/PREFIX",
            "Copy the data to this bucket as it settles, and keep only part of it on this disk; also gs:// and az://";
        commit_interval: Span = "50ms", "THALWEG_COMMIT_INTERVAL", "TIME",
            "The shortest time between two batches of replicated appends, unless one is full: longer is fewer requests, and later answers";
        cache_bytes: Size = "16GiB", "THALWEG_CACHE_BYTES", "SIZE",
            "How much of the data in --store stays on this disk: half for the newest objects, half for what is read of the others";
        offload_every: Span = "10s", "THALWEG_OFFLOAD_EVERY", "TIME",
            "How often what is new is copied to --store: a machine that is lost takes at most about this, and settle_after, with it";
        store_beacon: Span = "10s", "THALWEG_STORE_BEACON", "TIME",
            "How often a server shows in --store that it lives; a start on an empty folder waits for three times as long";
    }
    "Nodes" {
        node: String = "", "THALWEG_NODE", "NAME",
            "Share --store with other nodes under this name: all streams are in the bucket, and every node takes every request";
        advertise: String = "", "THALWEG_ADVERTISE", "URL",
            "Where other nodes reach this one, such as http://10.0.0.7:4437; unset: at the address of --listen";
        units: u64 = "6", "THALWEG_UNITS", "N",
            "How many units the streams of a new prefix of --store are spread over, for good: at most so many nodes have a share";
        node_beacon: Span = "1s", "THALWEG_NODE_BEACON", "TIME",
            "How often a node shows in --store that it lives; after a little more than twice this others take over its units";
    }
    "Security" {
        auth: AuthMode = "auto", "THALWEG_AUTH", "auto|on|off",
            "Whether requests need a token; `auto`: not on a loopback address without --tokens";
        tokens: PathBuf = "", "THALWEG_TOKENS", "FILE",
            "The TOML file of tokens, which `thalweg token new` writes lines for; read again when it changes";
        allow_host: Names = "", "THALWEG_ALLOW_HOST", "NAME,NAME",
            "Names that requests may ask for, with a port or without, beside 127.0.0.1, localhost and `[::1]`; `*`: any. Unset: any if the \
             server asks for tokens or listens on another address";
        allow_origin: Names = "", "THALWEG_ALLOW_ORIGIN", "ORIGIN,ORIGIN",
            "Origins whose pages may use the server, such as `https://app.example`, beside pages of this machine; `*`: all. Unset: as \
             --allow-host";
        tls_cert: PathBuf = "", "THALWEG_TLS_CERT", "FILE",
            "The certificate and its chain, in PEM; with --tls-key, only HTTPS is served";
        tls_key: PathBuf = "", "THALWEG_TLS_KEY", "FILE",
            "The private key of --tls-cert, in PEM; both are read again when they change";
    }
    "Limits" {
        max_body: Size = "32MiB", "THALWEG_MAX_BODY", "SIZE",
            "The largest request body; a larger one is refused with 413";
        max_connections: usize = "10000", "THALWEG_MAX_CONNECTIONS", "N",
            "Connections at a time; one more is refused with 503";
        max_connections_per_peer: usize = "0", "THALWEG_MAX_CONNECTIONS_PER_PEER", "N",
            "Connections of one address, or network of IPv6, at a time; 0: as many as in all. Not behind a proxy, which is one address";
        max_streams: u64 = "10000000", "THALWEG_MAX_STREAMS", "N",
            "Streams at a time; one more is refused with 507";
        reactors: usize = "0", "THALWEG_REACTORS", "N",
            "Threads that serve requests; 0 is one per core";
        backup_idle: Span = "60s", "THALWEG_BACKUP_IDLE", "TIME",
            "A backup whose client asks for nothing for this long is dropped, and the space that it held is freed";
        io_threads: usize = "4", "THALWEG_IO_THREADS", "N",
            "Threads that wait for the disk on behalf of reads";
        max_unsent: Size = "1GiB", "THALWEG_MAX_UNSENT", "SIZE",
            "Memory for answers that clients do not take; beyond it reads are refused with 503";
        write_timeout: Span = "30s", "THALWEG_WRITE_TIMEOUT", "TIME",
            "A connection whose client accepts no byte of a pending answer for this long is closed";
        gzip_level: u32 = "1", "THALWEG_GZIP_LEVEL", "N",
            "How hard large reads are compressed for clients that ask for gzip: 1 (fast) to 9; 0 for never";
    }
    "Retention" {
        retention_bytes: Size = "0", "THALWEG_RETENTION_BYTES", "SIZE",
            "Streams without Stream-Retention-Bytes keep at least this much of their newest content; 0 is all";
        retention_age: Span = "0", "THALWEG_RETENTION_AGE", "TIME",
            "Streams without Stream-Retention-Seconds keep content younger than this; 0 is for ever";
    }
    "Subscriptions" {
        public_url: String = "", "THALWEG_PUBLIC_URL", "URL",
            "Where clients and webhook receivers reach this server; unset: as the request says that made the subscription";
        webhook_targets: WebhookTargets = "public", "THALWEG_WEBHOOK_TARGETS", "public|local|any",
            "Where webhooks may go: https to public addresses, also http to this machine (`dev` does), or anywhere";
        webhook_timeout: Span = "30s", "THALWEG_WEBHOOK_TIMEOUT", "TIME",
            "How long one webhook delivery may take; never longer than the subscription's lease";
        webhook_threads: usize = "16", "THALWEG_WEBHOOK_THREADS", "N",
            "Webhook deliveries at a time";
        max_subscriptions: usize = "1000", "THALWEG_MAX_SUBSCRIPTIONS", "N",
            "Subscriptions at a time; one more is refused with 429";
        max_subscription_streams: usize = "100000", "THALWEG_MAX_SUBSCRIPTION_STREAMS", "N",
            "Streams that one subscription may be linked to";
    }
    "Shapes" {
        database_url: String = "", "THALWEG_DATABASE_URL", "URL",
            "The Postgres database whose shapes are served, as postgres://USER:PASSWORD@HOST/DATABASE; unset: none";
        query_database_url: String = "", "THALWEG_QUERY_DATABASE_URL", "URL",
            "The same database for queries, if they should go through a pooler; unset: as --database-url";
        database_ca_file: PathBuf = "", "THALWEG_DATABASE_CA_FILE", "FILE",
            "Certificates in PEM: one of them must have signed that of Postgres, which must be for its host; unset: as the address says";
        database_idle: Span = "0", "THALWEG_DATABASE_IDLE", "TIME",
            "All connections to Postgres are closed after this time without a request for a shape and without a change; 0 is never";
        shape_secret: String = "", "THALWEG_SHAPE_SECRET", "TEXT",
            "The secret that requests for shapes must send as `secret`; required unless --shape-insecure is on";
        shape_insecure: Switch = "off", "THALWEG_SHAPE_INSECURE", "on|off",
            "Serve shapes without a secret; `dev` does on a loopback address, if there is no secret";
        shape_chunk_bytes: Size = "10MiB", "THALWEG_SHAPE_CHUNK_BYTES", "SIZE",
            "An answer ends with the change that brings it to this size";
        shape_long_poll_timeout: Span = "20s", "THALWEG_SHAPE_LONG_POLL_TIMEOUT", "TIME",
            "How long a live request waits for a change";
        shape_sse_lifetime: Span = "60s", "THALWEG_SHAPE_SSE_LIFETIME", "TIME",
            "How long one live SSE connection lasts";
        shape_max_age: Span = "60s", "THALWEG_SHAPE_MAX_AGE", "TIME",
            "How long caches may keep an answer that is not live";
        shape_stale_age: Span = "5min", "THALWEG_SHAPE_STALE_AGE", "TIME",
            "How long after that they may give it while they ask again";
        shape_delete: Switch = "off", "THALWEG_SHAPE_DELETE", "on|off",
            "Whether DELETE /v1/shape is allowed";
        max_shapes: usize = "1000000", "THALWEG_MAX_SHAPES", "N",
            "Shapes at a time; the least recently requested ones are dropped first";
        shape_log_bytes: Size = "8GiB", "THALWEG_SHAPE_LOG_BYTES", "SIZE",
            "Changes that are kept for shapes; a shape that needs older ones is dropped and made again when it is asked for";
        shape_log_keep: Span = "2h", "THALWEG_SHAPE_LOG_KEEP", "TIME",
            "How long a client may have been away, or an answer in a cache: merged changes are kept this long for its next request";
        shape_compact_bytes: Size = "1MiB", "THALWEG_SHAPE_COMPACT_BYTES", "SIZE",
            "A shape's changes are merged into its rows when they are more than its rows, and more than this";
        max_initial_requests: usize = "10000", "THALWEG_MAX_INITIAL_REQUESTS", "N",
            "Requests at a time for shapes from their beginning that must be made first; one more is refused with 503";
        max_shape_requests: usize = "10000", "THALWEG_MAX_SHAPE_REQUESTS", "N",
            "All other requests for shapes at a time";
        shape_database_connections: usize = "20", "THALWEG_SHAPE_DATABASE_CONNECTIONS", "N",
            "Connections to Postgres for queries, beside the one for changes; one stays open when nothing is asked";
        replication_stream_id: String = "default", "THALWEG_REPLICATION_STREAM_ID", "ID",
            "Names the replication slot and the publication; servers of one database need different ones";
        manual_publishing: Switch = "off", "THALWEG_MANUAL_PUBLISHING", "on|off",
            "Another program or a person adds tables to the publication; otherwise the server does it";
        replication_temporary_slot: Switch = "off", "THALWEG_REPLICATION_TEMPORARY_SLOT", "on|off",
            "The replication slot goes with the connection, so that Postgres keeps no log for a stopped server; shapes are made again then";
        replication_failover_slot: Switch = "off", "THALWEG_REPLICATION_FAILOVER_SLOT", "on|off",
            "Standbys keep a copy of the replication slot, so that shapes outlive a failover; Postgres 17 and newer";
    }
    "Journal and settling" {
        journal_segment_bytes: Size = "64MiB", "THALWEG_JOURNAL_SEGMENT_BYTES", "SIZE",
            "Largest size of a journal file; the first ones are smaller";
        journal_bound_bytes: Size = "1GiB", "THALWEG_JOURNAL_BOUND_BYTES", "SIZE",
            "How much may wait in the journal to be settled before writers are refused";
        window_bytes: Size = "64MiB", "THALWEG_WINDOW_BYTES", "SIZE",
            "How much of the journal's end is kept in memory for readers; of the shapes' journal 8 MiB at most";
        chunk_cache_bytes: Size = "32MiB", "THALWEG_CHUNK_CACHE_BYTES", "SIZE",
            "How much memory holds chunks that are read again and again, such as the start of a stream with many new clients";
        settle: Switch = "on", "THALWEG_SETTLE", "on|off",
            "Move data from the journal into objects; off is for measurements only";
        settle_bytes: Size = "64MiB", "THALWEG_SETTLE_BYTES", "SIZE",
            "Settle when this much has gathered in the journal";
        settle_after: Span = "10s", "THALWEG_SETTLE_AFTER", "TIME",
            "Settle data that has been in the journal for this long";
        merge_fan_in: usize = "8", "THALWEG_MERGE_FAN_IN", "N",
            "How many runs of one size are merged into one of the next";
        purge_after: Span = "5min", "THALWEG_PURGE_AFTER", "TIME",
            "Deleted data is physically gone after this long";
        scrub_rate: Size = "8MiB", "THALWEG_SCRUB_RATE", "SIZE",
            "The most that the scrub reads back each second; 0: it runs only when `thalweg check --server` asks";
        scrub_every: Span = "1d", "THALWEG_SCRUB_EVERY", "TIME",
            "How long after all was read back this begins again";
        background_threads: usize = "4", "THALWEG_BACKGROUND_THREADS", "N",
            "Threads that settle, merge, make journal segments and scrub, for all kernel units together";
        background_rate: Size = "128MiB", "THALWEG_BACKGROUND_RATE", "SIZE",
            "How much merging and scrubbing may read and write each second; 0 is no limit";
        reserve_bytes: Size = "64MiB", "THALWEG_RESERVE_BYTES", "SIZE",
            "Disk space held back so that deletes and settling work on a full disk";
    }
    "Logging" {
        log: String = "info", "THALWEG_LOG", "FILTER",
            "Log filter: error, warn, info, debug or trace, also per module, such as info,thalweg_log=debug";
        log_format: LogFormat = "text", "THALWEG_LOG_FORMAT", "text|json",
            "How log lines on standard error are written";
    }
}

/// The settings of a server: the flags and the environment, then the file, then the defaults; checked.
pub fn load(flags: Settings, file: Option<&Path>) -> anyhow::Result<Config> {
    Layers::gather(flags, file, false)?.resolve()
}

/// The settings of `thalweg dev`, whose defaults suit a machine with one developer.
pub fn load_for_dev(flags: Settings, file: Option<&Path>) -> anyhow::Result<Config> {
    Layers::gather(flags, file, true)?.resolve()
}

/// Where settings come from; each layer wins over those below it.
#[derive(Clone, Debug)]
pub struct Layers {
    /// Flags and variables of our own.
    given: Settings,
    /// Electric's variables.
    electric: Settings,
    file: Settings,
    /// Defaults of `thalweg dev`.
    dev: Option<Settings>,
}

impl Layers {
    /// Reads all layers. `given`: flags and variables; `dev`: with the defaults of `thalweg dev`.
    pub fn gather(given: Settings, file: Option<&Path>, dev: bool) -> anyhow::Result<Self> {
        let file = match file {
            Some(path) => file::read(path)?,
            None => Settings::default(),
        };
        let electric = electric::read(&|name| std::env::var(name).ok()).context("in the environment")?;
        let dev = dev.then(|| Settings {
            webhook_targets: Some(WebhookTargets::Local),
            // The slot and the publication of a server that is only down for a moment are not taken over.
            replication_stream_id: Some("dev".to_owned()),
            ..Settings::default()
        });
        Ok(Self { given, electric, file, dev })
    }

    /// The settings in force, if they fit together.
    pub fn resolve(&self) -> anyhow::Result<Config> {
        let Self { given, electric, file, dev } = self.clone();
        let is_dev = dev.is_some();
        let all = given.over(electric).over(file).over(dev.unwrap_or_default());
        let undecided = all.shape_insecure.is_none();
        let mut config = all.resolve()?;
        config.dev = is_dev;
        if is_dev && undecided && config.shape_secret.is_empty() && config.is_local() {
            config.shape_insecure = Switch::On;
        }
        check::check(&config).context("these settings do not fit together")?;
        Ok(config)
    }
}

impl Config {
    /// Whether clients are served over TLS.
    /// Whether the server is one of several nodes that share a bucket.
    #[must_use]
    pub fn is_node(&self) -> bool {
        !self.node.is_empty()
    }

    /// The URL at which other nodes reach this one.
    #[must_use]
    pub fn advertised(&self) -> String {
        let scheme = if self.speaks_tls() { "https" } else { "http" };
        if self.advertise.is_empty() { format!("{scheme}://{}", self.listen) } else { self.advertise.clone() }
    }

    pub fn speaks_tls(&self) -> bool {
        !self.tls_cert.as_os_str().is_empty()
    }

    /// Whether only this machine can reach the server.
    pub fn is_local(&self) -> bool {
        self.listen.0.ip().to_canonical().is_loopback()
    }

    /// Whether only programs of this machine are meant to read from the server: it has no tokens, and no origins are
    /// allowed.
    pub fn is_for_this_machine(&self) -> bool {
        self.is_local() && self.tokens.as_os_str().is_empty() && self.allow_origin.0.is_empty()
    }

    /// Whether the replication slot goes with its connection: as set, and always of `thalweg dev`, which leaves nothing
    /// behind.
    pub fn has_temporary_slot(&self) -> bool {
        self.dev || self.replication_temporary_slot == Switch::On
    }

    /// Whether there is a database whose shapes are served.
    pub fn serves_shapes(&self) -> bool {
        !self.database_url.is_empty()
    }

    /// Where to announce readiness, if anywhere.
    pub fn ready_file(&self) -> Option<&Path> {
        (!self.ready_file.as_os_str().is_empty()).then_some(self.ready_file.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        settings: Settings,
    }

    fn flags(line: &str) -> Settings {
        Flags::parse_from(std::iter::once("test").chain(line.split_whitespace())).settings
    }

    #[test]
    fn every_default_is_a_value_that_is_shown_as_written() {
        let config = Settings::default().resolve().unwrap();
        check::check(&config).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:4437");
        assert_eq!(config.long_poll_timeout.to_string(), "30s");
        assert_eq!(config.journal_segment_bytes.to_string(), "64MiB");
        assert_eq!(config.durability, Level::Durable);
        assert!(config.ready_file().is_none());
    }

    #[test]
    fn a_server_is_for_this_machine_without_tokens_origins_and_other_addresses() {
        let is = |line: &str| flags(line).resolve().unwrap().is_for_this_machine();
        assert!(is("") && is("--listen [::1]:0"));
        assert!(!is("--listen 0.0.0.0:0") && !is("--tokens t.toml") && !is("--allow-origin https://a.example"));
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_the_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("thalweg.toml");
        std::fs::write(&path, "data = \"/from/file\"\nlong_poll_timeout = \"7s\"\n").unwrap();
        let config = load(flags("--long-poll-timeout 500ms"), Some(&path)).unwrap();
        assert_eq!(config.long_poll_timeout.0, Duration::from_millis(500));
        assert_eq!(config.data, PathBuf::from("/from/file"));
        assert_eq!(config.settle_after.0, Duration::from_secs(10));
    }

    #[test]
    fn webhooks_reach_this_machine_only_in_dev_or_when_told_to() {
        assert_eq!(load(flags(""), None).unwrap().webhook_targets, WebhookTargets::Public);
        assert_eq!(load_for_dev(flags(""), None).unwrap().webhook_targets, WebhookTargets::Local);
        let told = load_for_dev(flags("--webhook-targets public"), None).unwrap();
        assert_eq!(told.webhook_targets, WebhookTargets::Public);
    }

    #[test]
    fn shapes_are_open_only_in_dev_to_this_machine_and_without_a_secret() {
        let open = |line| load_for_dev(flags(line), None).map(|config| config.shape_insecure == Switch::On);
        assert!(open("--database-url postgres://h/d").unwrap());
        assert!(!open("--database-url postgres://h/d --shape-secret x").unwrap());
        assert!(open("--database-url postgres://h/d --listen 0.0.0.0:1").is_err());
        assert!(open("--database-url postgres://h/d --shape-insecure off").is_err());
        let said = format!("{:#}", load(flags("--database-url postgres://h/d"), None).unwrap_err());
        assert!(said.contains("ELECTRIC_SECRET") && said.contains("--shape-secret"), "{said}");
        assert_eq!(load(flags("--database-url="), None).unwrap().database_url, "");
    }

    #[test]
    fn an_address_of_another_database_is_told_from_a_slip() {
        let said =
            format!("{:#}", load(flags("--database-url mysql://u:p@h/d --shape-insecure on"), None).unwrap_err());
        assert!(said.contains("mysql://") && said.contains("postgres://USER"), "{said}");
        assert!(!said.contains(":p@"), "no password in an error: {said}");
    }

    #[test]
    fn what_cannot_be_a_data_folder_is_said_to_be_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::os::unix::fs::symlink("/nowhere/at/all", &link).unwrap();
        std::fs::write(&file, "").unwrap();
        let refused =
            |path: &Path| format!("{:#}", load(flags(&format!("--data {}", path.display())), None).unwrap_err());
        assert!(refused(&link).contains("symbolic link to /nowhere/at/all"), "{}", refused(&link));
        assert!(refused(&file).contains("is a file"), "{}", refused(&file));
        assert!(load(flags(&format!("--data {}", folder.path().join("new").display())), None).is_ok());
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for line in [
            "--journal-segment-bytes 1KiB",
            "--journal-segment-bytes 64MiB --journal-bound-bytes 64MiB",
            "--merge-fan-in 1",
            "--io-threads 0",
            "--long-poll-timeout 0",
            "--retention-age 500ms",
            "--gzip-level 10",
            "--database-url postgres://h/d",
            "--database-url postgres://h/d --shape-insecure on --shape-secret x",
            "--database-url postgres://h/d --shape-insecure on --replication-stream-id a-b",
            "--tls-cert cert.pem",
            "--allow-origin app.example",
            "--allow-origin https://app.example/",
            "--allow-origin https://*.example",
        ] {
            assert!(load(flags(line), None).is_err(), "{line}");
        }
    }

    #[test]
    fn the_list_of_settings_in_the_documentation_is_complete_and_has_the_defaults() {
        let page = include_str!("../../../docs/ops/configuration.md");
        for Setting { key, default, .. } in Settings::ALL {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{key}` | ")));
            let row = row.unwrap_or_else(|| panic!("docs/ops/configuration.md does not list `{key}`"));
            let cell = row.split(" | ").nth(1).unwrap().trim_matches('`');
            let default = if default.is_empty() { "none" } else { default };
            assert_eq!(cell, default, "docs/ops/configuration.md has another default for `{key}`");
        }
    }

    /// Numbers as people write them: `10,000`, `32 MiB`, `5 min`.
    fn bare(text: &str) -> String {
        text.chars().filter(|c| !matches!(c, ' ' | ',' | '"')).collect()
    }

    #[test]
    fn no_page_says_another_default_in_passing() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let mut folders = vec![PathBuf::from(folder)];
        let mut pages = vec![PathBuf::from(folder).join("../README.md")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ext| ext == "md") {
                    pages.push(path);
                }
            }
        }
        let mut seen = 0;
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            for Setting { key, default, .. } in Settings::ALL {
                // `max_body` (32 MiB): a number in the brackets is the default.
                for rest in text.split(&format!("`{key}` (")).skip(1) {
                    let said = bare(rest.split([')', ';']).next().unwrap());
                    if said.starts_with(|c: char| c.is_ascii_digit()) {
                        assert_eq!(said, bare(default), "{} has another default for `{key}`", page.display());
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 20, "only {seen} were found");
    }
}
