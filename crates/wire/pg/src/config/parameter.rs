//! Parameters by name, from either form of a connection string.

use super::{ChannelBinding, Config, ConfigError, Host, Password, RootCert, SslMode, TargetSession};
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 5432;

/// Parameters of a connection string, before validation of the whole. A later value of a name replaces an earlier one.
#[derive(Default)]
pub(super) struct Parameters {
    hosts: Vec<String>,
    ports: Vec<String>,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
    /// Changes of defaults.
    changes: Vec<Change>,
}

type Change = Box<dyn FnOnce(&mut Config)>;

impl Parameters {
    pub(super) fn set(&mut self, name: &str, value: String) -> Result<(), ConfigError> {
        let list = |value: &str| value.split(',').map(str::to_owned).collect();
        match name {
            "host" => self.hosts = list(&value),
            "port" => self.ports = list(&value),
            "user" => self.user = Some(plain("user", value)?),
            "password" => self.password = Some(plain("password", value)?),
            "dbname" => self.database = Some(plain("dbname", value)?),
            _ => {
                let change = setting(name, value)?;
                self.changes.push(change);
            }
        }
        Ok(())
    }

    /// Hosts and ports pair up as libpq has it: as many of both, or one port for all.
    pub(super) fn config(self) -> Result<Config, ConfigError> {
        let user = self.user.filter(|user| !user.is_empty()).ok_or(ConfigError::UserMissing)?;
        let database = self.database.filter(|name| !name.is_empty()).unwrap_or_else(|| user.clone());
        if self.ports.len() > 1 && self.ports.len() != self.hosts.len() {
            return Err(ConfigError::Ports { hosts: self.hosts.len(), ports: self.ports.len() });
        }
        let mut hosts = Vec::new();
        for (i, name) in self.hosts.into_iter().enumerate() {
            let port = self.ports.get(i).or(self.ports.first().filter(|_| self.ports.len() == 1));
            hosts.push(host(name, port.map_or("", String::as_str))?);
        }
        let first = hosts.first().cloned().ok_or(ConfigError::HostMissing)?;
        let mut config = Config::new(first, user, database);
        config.hosts = hosts;
        config.password = self.password.map(Password);
        for change in self.changes {
            change(&mut config);
        }
        Ok(config)
    }
}

fn host(name: String, port: &str) -> Result<Host, ConfigError> {
    let port = match port {
        "" => PORT,
        text => match text.parse() {
            Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => port,
            // A port that is no number may be a password, in a URL without a user.
            _ if text.bytes().all(|b| b.is_ascii_digit()) => return Err(ConfigError::Port(text.to_owned())),
            _ => return Err(ConfigError::Port("…".to_owned())),
        },
    };
    if name.is_empty() {
        return Err(ConfigError::HostMissing);
    }
    if name.starts_with('/') {
        return Ok(Host::Unix { folder: PathBuf::from(plain("host", name)?), port });
    }
    if name.bytes().any(|b| b <= b' ' || b == 0x7f || matches!(b, b'/' | b'@' | b'[' | b']')) {
        return Err(ConfigError::Host(name));
    }
    Ok(Host::Tcp { name, port })
}

/// A text that goes into a message ends with a zero byte.
fn plain(name: &'static str, value: String) -> Result<String, ConfigError> {
    if value.contains('\0') { Err(ConfigError::Nul(name)) } else { Ok(value) }
}

fn setting(name: &str, value: String) -> Result<Change, ConfigError> {
    let wrong = |name, value, expected| Err(ConfigError::Value { name, value, expected });
    let file = |value: &str| if value.is_empty() { None } else { Some(PathBuf::from(value)) };
    Ok(match name {
        "sslmode" => {
            let mode = match value.as_str() {
                "disable" => SslMode::Disable,
                "allow" | "prefer" => SslMode::Prefer,
                "require" => SslMode::Require,
                "verify-ca" => SslMode::VerifyCa,
                "verify-full" => SslMode::VerifyFull,
                _ => return wrong("sslmode", value, "disable, allow, prefer, require, verify-ca or verify-full"),
            };
            Box::new(move |config| config.ssl_mode = mode)
        }
        "sslrootcert" => {
            let root = if value == "system" { Some(RootCert::System) } else { file(&value).map(RootCert::File) };
            Box::new(move |config| config.ssl_root_cert = root)
        }
        "sslcert" => Box::new(move |config| config.ssl_cert = file(&value)),
        "sslkey" => Box::new(move |config| config.ssl_key = file(&value)),
        "channel_binding" => {
            let binding = match value.as_str() {
                "disable" => ChannelBinding::Disable,
                "prefer" => ChannelBinding::Prefer,
                "require" => ChannelBinding::Require,
                _ => return wrong("channel_binding", value, "disable, prefer or require"),
            };
            Box::new(move |config| config.channel_binding = binding)
        }
        "target_session_attrs" => {
            let target = match value.as_str() {
                "any" => TargetSession::Any,
                "read-write" | "primary" => TargetSession::ReadWrite,
                _ => return wrong("target_session_attrs", value, "any, read-write or primary"),
            };
            Box::new(move |config| config.target_session = target)
        }
        "application_name" => {
            let name = plain("application_name", value)?;
            Box::new(move |config| config.application_name = Some(name))
        }
        "fallback_application_name" => {
            let name = plain("fallback_application_name", value)?;
            Box::new(move |config| {
                config.application_name.get_or_insert(name);
            })
        }
        "options" => {
            let options = plain("options", value)?;
            Box::new(move |config| config.options = Some(options))
        }
        "connect_timeout" => match value.parse::<u32>() {
            // As with libpq, zero means no limit.
            Ok(seconds) => {
                let timeout = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
                Box::new(move |config| config.connect_timeout = timeout)
            }
            Err(_) => return wrong("connect_timeout", value, "a number of seconds"),
        },
        "keepalives" => match value.as_str() {
            "1" => Box::new(|_| {}),
            "0" => Box::new(|config| config.keepalive = None),
            _ => return wrong("keepalives", value, "0 or 1"),
        },
        "keepalives_idle" => match value.parse::<u16>() {
            Ok(seconds @ 1..) => {
                let idle = Duration::from_secs(u64::from(seconds));
                Box::new(move |config| config.keepalive = config.keepalive.map(|_| idle))
            }
            _ => return wrong("keepalives_idle", value, "a number of seconds from 1 to 65535"),
        },
        "client_encoding" => match value.to_ascii_lowercase().as_str() {
            "utf8" | "utf-8" | "auto" => Box::new(|_| {}),
            _ => return wrong("client_encoding", value, "UTF8, the only one that is spoken here"),
        },
        "gssencmode" => match value.as_str() {
            "disable" | "prefer" => Box::new(|_| {}),
            _ => return wrong("gssencmode", value, "disable or prefer: GSSAPI is not spoken here"),
        },
        "sslnegotiation" => match value.as_str() {
            "postgres" => Box::new(|_| {}),
            _ => return wrong("sslnegotiation", value, "postgres"),
        },
        _ => return Err(ConfigError::Unknown(name.chars().take(64).collect())),
    })
}
