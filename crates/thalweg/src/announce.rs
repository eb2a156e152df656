//! Announces a ready server and its address: a banner for people on standard output, a log line, and the ready file.

use crate::logs;
use anyhow::Context;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use thalweg_base::Level;
use thalweg_host::config::{AuthMode, Config, LogFormat, Switch, without_password};

/// The announcement of a serving address; withdrawn when dropped.
#[derive(Debug)]
pub(crate) struct Announcement {
    ready_file: Option<PathBuf>,
}

/// Announces that requests are served at `address`, and writes the address to the ready file, if one is configured.
/// With a log format for programs there is no banner: standard output may be the same file.
pub(crate) fn ready(config: &Config, address: SocketAddr) -> anyhow::Result<Announcement> {
    let facts = Facts::of(config, address);
    if config.log_format == LogFormat::Text {
        logs::print(&facts.banner());
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        data = %facts.data.display(),
        access = facts.access.0,
        database = facts.database.0,
        "listening on {}://{address}",
        facts.scheme
    );
    if let Some(path) = config.ready_file() {
        write_whole(path, &format!("{address}\n"))
            .with_context(|| format!("cannot write the ready file {}", path.display()))?;
    }
    Ok(Announcement { ready_file: config.ready_file().map(Path::to_owned) })
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if let Some(path) = &self.ready_file
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "the ready file could not be removed");
        }
    }
}

/// Under another name first, so that no reader sees half an address.
pub(crate) fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let unfinished = PathBuf::from(name);
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, path)
}

/// Facts about a server before the first request.
struct Facts {
    scheme: &'static str,
    address: SocketAddr,
    data: PathBuf,
    durability: &'static str,
    /// A short form for the log, and a sentence for the banner.
    access: (String, &'static str),
    transport: &'static str,
    database: (String, &'static str),
    asks_for_tokens: bool,
}

impl Facts {
    fn of(config: &Config, address: SocketAddr) -> Self {
        let tls = config.speaks_tls();
        Self {
            scheme: if tls { "https" } else { "http" },
            address,
            data: std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone()),
            durability: match config.durability {
                _ if config.is_node() => "replicated: an append is answered when it is in the bucket",
                Level::Durable => "durable: an append is answered when it is on the disk",
                Level::Buffered => {
                    "buffered: an append is answered when it is written; a crash of the machine may lose the newest"
                }
                Level::Replicated => "replicated: an append is answered when it is in the bucket",
            },
            access: access(config),
            transport: if tls { "TLS" } else { "plain HTTP, not encrypted" },
            database: database(config),
            asks_for_tokens: config.auth != AuthMode::Off && !config.tokens.as_os_str().is_empty(),
        }
    }

    fn banner(&self) -> String {
        let Self { scheme, address, .. } = self;
        // Any address is reachable under the loopback one, and a person cannot type `0.0.0.0` into every client.
        let mut reachable = *address;
        if address.ip().is_unspecified() {
            reachable.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        let url = format!("{scheme}://{reachable}");
        let token = if self.asks_for_tokens { "-H \"authorization: Bearer $TOKEN\" " } else { "" };
        let lines = [
            ("data", self.data.display().to_string()),
            ("durability", self.durability.to_owned()),
            ("access", explained(&self.access)),
            ("transport", self.transport.to_owned()),
            ("database", explained(&self.database)),
            ("watch", format!("{url}/ in a browser")),
            (
                "try",
                format!("curl -i {token}-X PUT {url}/v1/stream/hello -H 'content-type: text/plain' -d 'first words'"),
            ),
            ("", format!("curl {token}'{url}/v1/stream/hello?offset=-1'")),
        ];
        let first = format!("thalweg {} listens on {scheme}://{address}", env!("CARGO_PKG_VERSION"));
        lines.iter().fold(first, |text, (name, value)| format!("{text}\n  {name:<10}  {value}"))
    }
}

fn explained((words, meaning): &(String, &str)) -> String {
    format!("{words}{}{meaning}", if meaning.is_empty() { "" } else { ": " })
}

/// Access to the server, in words.
fn access(config: &Config) -> (String, &'static str) {
    let tokens = !config.tokens.as_os_str().is_empty();
    match (config.auth, config.is_local()) {
        (AuthMode::Off, false) => {
            ("open".to_owned(), "every machine that reaches this address may read, write and delete everything")
        }
        (AuthMode::On | AuthMode::Auto, _) if tokens => (format!("tokens of {}", config.tokens.display()), ""),
        (AuthMode::Off | AuthMode::Auto, true) => {
            ("no tokens".to_owned(), "every program of this machine may read, write and delete everything")
        }
        _ => ("closed but for shapes".to_owned(), "there are no --tokens"),
    }
}

fn database(config: &Config) -> (String, &'static str) {
    if !config.serves_shapes() {
        return ("none".to_owned(), "");
    }
    let meaning = match (config.shape_insecure, config.dev) {
        (Switch::On, false) => "its tables are served as shapes, to every client and without a secret",
        (Switch::On, true) => {
            "its tables are served as shapes, to every client and without a secret; the replication slot is dropped at the end"
        }
        (Switch::Off, false) => "its tables are served as shapes, to clients that have the secret or a token",
        (Switch::Off, true) => {
            "its tables are served as shapes, to clients that have the secret or a token; the replication slot is dropped at the end"
        }
    };
    (without_password(&config.database_url), meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_host::config::{Settings, load, load_for_dev};

    fn banner(settings: Settings) -> String {
        Facts::of(&load(settings, None).unwrap(), "0.0.0.0:4437".parse().unwrap()).banner()
    }

    #[test]
    fn the_banner_names_address_folder_promises_and_a_line_to_try() {
        let text = banner(Settings::default());
        for part in [
            "http://0.0.0.0:4437",
            "/data",
            "durable:",
            "no tokens: every program of this machine",
            "plain HTTP",
            "database    none",
            "http://127.0.0.1:4437/ in a browser",
            "curl -i -X PUT http://127.0.0.1:4437/v1/stream/hello",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn the_banner_says_who_may_do_what() {
        let open = Settings {
            listen: Some("0.0.0.0:4437".parse().unwrap()),
            auth: Some(AuthMode::Off),
            ..Settings::default()
        };
        assert!(banner(open).contains("open: every machine"));
        let guarded = Settings { tokens: Some("/etc/tokens.toml".into()), ..Settings::default() };
        let text = banner(guarded);
        assert!(text.contains("tokens of /etc/tokens.toml") && text.contains("Bearer $TOKEN"), "{text}");
        let database = Settings {
            database_url: Some("postgres://me:secret@db/app".to_owned()),
            shape_insecure: Some(Switch::On),
            ..Settings::default()
        };
        let text = banner(database);
        assert!(text.contains("postgres://me:***@db/app: its tables are served as shapes, to every client"), "{text}");
        assert!(!text.contains(":secret@"));
    }

    #[test]
    fn the_banner_of_dev_names_the_database_and_says_what_becomes_of_its_slot() {
        let settings =
            Settings { database_url: Some("postgres://me:hidden@db/shop".to_owned()), ..Settings::default() };
        let config = load_for_dev(settings, None).unwrap();
        let text = Facts::of(&config, "127.0.0.1:4437".parse().unwrap()).banner();
        assert!(text.contains("postgres://me:***@db/shop") && text.contains("slot is dropped at the end"), "{text}");
        assert!(!text.contains("hidden"), "{text}");
    }

    #[test]
    fn the_ready_file_holds_the_address_while_it_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        let mut config = load(Settings::default(), None).unwrap();
        config.ready_file.clone_from(&path);
        let announcement = ready(&config, "127.0.0.1:4437".parse().unwrap()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "127.0.0.1:4437\n");
        drop(announcement);
        assert!(!path.exists());
    }
}
