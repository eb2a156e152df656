//! The form `postgres://user:password@host:port,host:port/database?name=value&…`; this begins after the scheme.

use super::ConfigError;
use super::parameter::Parameters;

pub(super) fn parameters(rest: &str) -> Result<Parameters, ConfigError> {
    let mut parameters = Parameters::default();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = match authority.rsplit_once('@') {
        Some((login, hosts)) => {
            let (user, password) =
                login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
            parameters.set("user", percent("the user", user)?)?;
            if let Some(password) = password {
                parameters.set("password", percent("the password", password)?)?;
            }
            hosts
        }
        None => authority,
    };
    if !hosts.is_empty() {
        let (mut names, mut ports) = (Vec::new(), Vec::new());
        for part in hosts.split(',') {
            let (name, port) = split_port(part)?;
            names.push(percent("the host", name)?);
            ports.push(port);
        }
        parameters.set("host", names.join(","))?;
        parameters.set("port", ports.join(","))?;
    }
    if !database.is_empty() {
        parameters.set("dbname", percent("the database", database)?)?;
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| ConfigError::Unknown(pair.chars().take(64).collect()))?;
        // The two names that other clients have for the same.
        let name = match name {
            "ssl" if value == "true" => {
                parameters.set("sslmode", "require".to_owned())?;
                continue;
            }
            "database" => "dbname",
            name => name,
        };
        parameters.set(&percent("the name of a parameter", name)?, percent("the value of a parameter", value)?)?;
    }
    Ok(parameters)
}

/// An IPv6 address is in brackets.
fn split_port(part: &str) -> Result<(&str, &str), ConfigError> {
    let wrong = || ConfigError::Host(part.to_owned());
    if let Some(rest) = part.strip_prefix('[') {
        let (name, after) = rest.split_once(']').ok_or_else(wrong)?;
        name.split('%').next().and_then(|ip| ip.parse::<std::net::Ipv6Addr>().ok()).ok_or_else(wrong)?;
        let port = if after.is_empty() { "" } else { after.strip_prefix(':').ok_or_else(wrong)? };
        return Ok((name, port));
    }
    match part.split_once(':') {
        // Perhaps not a host at all, but a user and a password with colons.
        Some((name, port)) if port.contains(':') => Err(ConfigError::Host(format!("{name}:…"))),
        Some(split) => Ok(split),
        None => Ok((part, "")),
    }
}

/// `part` is for the error, which must not hold the text: it may be a password.
fn percent(part: &'static str, text: &str) -> Result<String, ConfigError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(ConfigError::Percent(part)) };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| ConfigError::Percent(part))
}
