//! What a server says when it is ready, and where.

use crate::config::{AuthMode, Config, Durability, Switch};
use crate::logs;
use anyhow::Context;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use thalweg_wire::pg;

/// The announcement of a serving address; withdrawn when dropped.
#[derive(Debug)]
pub(crate) struct Announcement {
    ready_file: Option<PathBuf>,
}

/// Says on standard output that requests are served at `address`, and writes it to the ready file, if one is asked for.
pub(crate) fn ready(config: &Config, address: SocketAddr) -> anyhow::Result<Announcement> {
    logs::tell(&banner(config, address));
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

/// Under another name first, so that nobody reads half an address.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let unfinished = PathBuf::from(name);
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, path)
}

fn asks_for_tokens(config: &Config) -> bool {
    config.auth != AuthMode::Off && !config.tokens.as_os_str().is_empty()
}

fn banner(config: &Config, address: SocketAddr) -> String {
    let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
    let promise = match config.durability {
        Durability::Durable => "durable: an append is answered when it is on the disk",
        Durability::Buffered => {
            "buffered: an append is answered when it is written; a crash of the machine may lose the newest"
        }
    };
    // Any address is reachable under the loopback one, and a person cannot type `0.0.0.0` into every client.
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let database = database(config).map(|line| format!("\n  database    {line}")).unwrap_or_default();
    format!(
        "thalweg {version} listens on {scheme}://{address}\n  \
           data        {data}\n  \
           durability  {promise}{database}\n  \
           watch       {scheme}://{reachable}/ in a browser
  \
           try         curl {options}-X PUT {scheme}://{reachable}/v1/stream/hello -H 'content-type: text/plain' -d 'first words'
              \
                       curl {options}'{scheme}://{reachable}/v1/stream/hello?offset=-1'",
        version = env!("CARGO_PKG_VERSION"),
        scheme = if config.speaks_tls() { "https" } else { "http" },
        options = if asks_for_tokens(config) { "-H \"authorization: Bearer $TOKEN\" " } else { "" },
        data = data.display(),
    )
}

/// Which database is served, and what this server does there: settings may come from an environment that was meant for something else.
fn database(config: &Config) -> Option<String> {
    if !config.serves_shapes() {
        return None;
    }
    // An address that cannot be read has stopped the start already.
    let address: pg::Config = config.database_url.parse().ok()?;
    let host = match address.hosts.first()? {
        pg::Host::Tcp { name, port } => format!("{name}:{port}"),
        pg::Host::Unix { folder, .. } => folder.display().to_string(),
    };
    let whom = match config.shape_insecure {
        Switch::On => "anybody who reaches this address may read it",
        Switch::Off => "requests need the secret or a token",
    };
    let slot = match config.dev {
        true => "; the replication slot is dropped at the end",
        false => "",
    };
    Some(format!("{} on {host} as {}: {whom}{slot}", address.database, address.user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Settings, load};

    #[test]
    fn the_banner_names_address_folder_durability_and_a_line_to_try() {
        let config = load(Settings::default(), None).unwrap();
        let text = banner(&config, "0.0.0.0:4437".parse().unwrap());
        for part in [
            "http://0.0.0.0:4437",
            "/data",
            "durable:",
            "http://127.0.0.1:4437/ in a browser",
            "curl -X PUT http://127.0.0.1:4437/v1/stream/hello",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn the_banner_names_the_database_and_keeps_its_password() {
        let mut config = load(Settings::default(), None).unwrap();
        let text = |config: &Config| banner(config, "127.0.0.1:4437".parse().unwrap());
        assert!(!text(&config).contains("database "));
        config.database_url = "postgres://me:hidden@db.internal:5433/shop".to_owned();
        let said = text(&config);
        assert!(said.contains("database    shop on db.internal:5433 as me: requests need"), "{said}");
        (config.dev, config.shape_insecure) = (true, Switch::On);
        let said = text(&config);
        assert!(said.contains("anybody who reaches") && said.contains("is dropped at the end"), "{said}");
        assert!(!said.contains("hidden"), "{said}");
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
