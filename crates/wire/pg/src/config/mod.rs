//! Connection parameters.

mod keyword;
mod parameter;
#[cfg(test)]
mod tests;
mod url;

use super::error::TlsError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Everything about one server and how to talk to it. Parsed from
/// `postgres://user:password@host:port/database?parameter=value` or from libpq's `parameter=value …` form (Postgres
/// documentation, section "Connection Strings"); environment variables play no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Tried in this order; never empty.
    pub hosts: Vec<Host>,
    /// The role.
    pub user: String,
    /// The role's password, for servers that ask for one.
    pub password: Option<Password>,
    /// The database; by default that of the role's name.
    pub database: String,
    /// `sslmode`.
    pub ssl_mode: SslMode,
    /// `sslrootcert`.
    pub ssl_root_cert: Option<RootCert>,
    /// PEM files of our certificate and its key.
    pub ssl_cert: Option<PathBuf>,
    /// The key of `ssl_cert`.
    pub ssl_key: Option<PathBuf>,
    /// `channel_binding`.
    pub channel_binding: ChannelBinding,
    /// `target_session_attrs`.
    pub target_session: TargetSession,
    /// The session's name in `pg_stat_activity`.
    pub application_name: Option<String>,
    /// Command-line options for the server's process: `-c name=value …`.
    pub options: Option<String>,
    /// Until a host is connected and has let us in; `None`: as long as the system waits.
    pub connect_timeout: Option<Duration>,
    /// Between two things that come from the server while an answer is awaited; `None`: for ever.
    pub read_timeout: Option<Duration>,
    /// How long a send may wait for the system to accept bytes.
    pub write_timeout: Duration,
    /// Silence after which TCP probes the other side; `None`: no probes.
    pub keepalive: Option<Duration>,
    /// The largest message that is read (bytes).
    pub message_bytes_max: usize,
    /// The largest result that is held in memory (bytes); `COPY` and replication hold one message only.
    pub result_bytes_max: usize,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name or an address; a name may have several addresses, which are tried in the resolver's order.
    Tcp { name: String, port: u16 },
    /// The folder with the socket `.s.PGSQL.<port>`.
    Unix { folder: PathBuf, port: u16 },
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Required TLS. `allow` is read as `prefer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslMode {
    /// No TLS.
    Disable,
    /// TLS if the server has it; its certificate is not verified.
    #[default]
    Prefer,
    /// TLS always; the certificate is verified only if `sslrootcert` is given (then as `verify-ca`, as libpq does).
    Require,
    /// A trusted certificate must have signed the server's.
    VerifyCa,
    /// In addition, it must be for the requested host.
    VerifyFull,
}

/// Trusted certificates; by default the system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootCert {
    /// The certificates of the operating system.
    System,
    /// PEM, one or more certificates. A server certificate among them is trusted directly.
    File(PathBuf),
}

/// Whether SCRAM is bound to the TLS session, so that no proxy can pass it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If the server supports it.
    #[default]
    Prefer,
    /// Always; a server that does not support it is refused.
    Require,
}

/// The kind of server that is acceptable, of several hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetSession {
    /// Any server.
    #[default]
    Any,
    /// A server that accepts writes (`read-write` and `primary`); servers before 14 do not report this, and are
    /// accepted.
    ReadWrite,
}

/// Why certificates cannot be trusted for an address.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the address says sslmode=disable, by which no certificate is verified: leave that out")]
    Disabled,
    #[error("the address names certificates to trust too, with sslrootcert: leave that out")]
    Twice,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a text is no [`Config`]. Never holds a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("the address has no user")]
    UserMissing,
    #[error("the address has no host")]
    HostMissing,
    #[error("{0}: a % is not followed by two hexadecimal digits, or the result is not UTF-8")]
    Percent(&'static str),
    #[error("{0:?} is not a port")]
    Port(String),
    #[error("{0:?} is not a host")]
    Host(String),
    #[error("{hosts} hosts and {ports} ports: there must be one port, or one for each host")]
    Ports { hosts: usize, ports: usize },
    #[error("unknown parameter {0:?}")]
    Unknown(String),
    #[error("{name}: {value:?} is not {expected}")]
    Value { name: &'static str, value: String, expected: &'static str },
    #[error("no value, or a quote that does not end, after byte {0}")]
    Syntax(usize),
    #[error("{0} holds a zero byte")]
    Nul(&'static str),
}

impl Config {
    /// One host, with everything else as it is by default.
    pub fn new(host: Host, user: impl Into<String>, database: impl Into<String>) -> Self {
        Self {
            hosts: vec![host],
            user: user.into(),
            password: None,
            database: database.into(),
            ssl_mode: SslMode::default(),
            ssl_root_cert: None,
            ssl_cert: None,
            ssl_key: None,
            channel_binding: ChannelBinding::default(),
            target_session: TargetSession::default(),
            application_name: None,
            options: None,
            connect_timeout: Some(Duration::from_secs(10)),
            read_timeout: Some(Duration::from_secs(60)),
            write_timeout: Duration::from_secs(30),
            keepalive: Some(Duration::from_secs(15)),
            message_bytes_max: 1 << 30,
            result_bytes_max: 256 << 20,
        }
    }

    /// The same server, whose certificate must be for its host and signed by one of this file (PEM); `verify-ca` in the
    /// address waives the former. The file is read here, so that an unusable one is refused before anything connects.
    pub fn trusting(mut self, file: &Path) -> Result<Self, TrustError> {
        if self.ssl_mode == SslMode::Disable {
            return Err(TrustError::Disabled);
        }
        if self.ssl_root_cert.is_some() {
            return Err(TrustError::Twice);
        }
        if self.ssl_mode != SslMode::VerifyCa {
            self.ssl_mode = SslMode::VerifyFull;
        }
        self.ssl_root_cert = Some(RootCert::File(file.to_owned()));
        super::tls::client(&self)?;
        Ok(self)
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let parameters = match rest {
            Some(rest) => url::parameters(rest)?,
            None => keyword::parameters(text)?,
        };
        parameters.config()
    }
}

/// The address for logs: `user@host:port/database`.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.user)?;
        for (i, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if i == 0 { "" } else { "," })?;
        }
        write!(f, "/{}", self.database)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
            Self::Unix { folder, port } => write!(f, "{}:{port}", folder.display()),
        }
    }
}
