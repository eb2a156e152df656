//! Checks URLs when a subscription is made. The address behind a name is checked at every connection: names change
//! hands.

use super::address::{is_loopback, is_public};
use super::{Targets, URL_BYTES_MAX};
use std::net::IpAddr;
use ureq::http::Uri;

/// Why a URL may not be a webhook's.
pub(crate) fn check(text: &str, targets: Targets) -> Result<(), &'static str> {
    if text.len() > URL_BYTES_MAX {
        return Err("it is longer than 2,048 bytes");
    }
    // The client's own parser, so that both read the same host.
    let uri: Uri = text.parse().map_err(|_| "it is no URL")?;
    let authority = uri.authority().ok_or("it has no host")?;
    if authority.as_str().contains('@') {
        return Err("it holds a user name");
    }
    let host = host(&uri);
    if host.is_empty() {
        return Err("it has no host");
    }
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err("its port is not a number from 1 to 65535");
    }
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err("it must be https"),
    };
    if targets == Targets::Any {
        return Ok(());
    }
    if targets == Targets::Local && is_local(&uri) {
        return Ok(());
    }
    if !secure {
        return Err("it must be https; http is for localhost, where the server allows it");
    }
    match host.parse::<IpAddr>() {
        Ok(address) if !is_public(address) => Err("it does not lead to a public address"),
        Ok(_) => Ok(()),
        Err(_) if is_local_name(host) || looks_numeric(host) => Err("it does not lead to a public address"),
        Err(_) => Ok(()),
    }
}

/// The host without the brackets of IPv6.
fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// The exception for development: `http` to this machine by one of its well-known names.
fn is_local(uri: &Uri) -> bool {
    let host = host(uri);
    uri.scheme_str() == Some("http")
        && (host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(is_loopback))
}

fn is_local_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// `0x7f.1` or `2130706433`: spellings of addresses that resolvers understand.
fn looks_numeric(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    last.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a connection for this URL may go to this address.
pub(super) fn may_connect(uri: &Uri, address: IpAddr, targets: Targets) -> bool {
    match targets {
        Targets::Any => true,
        Targets::Local if is_local(uri) => is_loopback(address),
        Targets::Local | Targets::Public => uri.scheme_str() == Some("https") && is_public(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_to_a_public_name_is_taken() {
        for url in [
            "https://worker.example/hooks",
            "https://worker.example:8443/x?y=z",
            "https://worker.example:65535/",
            "https://1.1.1.1/",
            "https://[2606:4700::1111]/",
        ] {
            assert_eq!(check(url, Targets::Public), Ok(()), "{url}");
        }
    }

    #[test]
    fn unsafe_urls_are_refused() {
        for url in [
            "",
            "x",
            "/path",
            "ftp://a.example/",
            "http://worker.example/",
            "http://10.0.0.1/hook",
            "https://10.0.0.1/",
            "https://localhost/",
            "https://a.localhost/",
            "https://localhost./",
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://169.254.169.254/latest",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://worker.example:99999/",
            "https://worker.example:65536/",
            "https://worker.example:0/",
            "https://worker.example:/",
            "https://[2606:4700::1111]:99999/",
            "https://user@worker.example/",
            "https://user:pass@127.0.0.1/",
            "http://localhost/",
            "http://127.0.0.1:1/",
        ] {
            assert!(check(url, Targets::Public).is_err(), "{url}");
        }
        for url in ["https://a.example:99999/", "https://a.example:0/", "https://a.example:/", "http://[::1]:70000/"] {
            assert!(check(url, Targets::Any).is_err_and(|why| why.contains("port") || why.contains("URL")), "{url}");
        }
        assert_eq!(check("http://[::1]:65535/", Targets::Any), Ok(()));
        assert!(check(&format!("https://a.example/{}", "x".repeat(URL_BYTES_MAX)), Targets::Public).is_err());
    }

    #[test]
    fn development_may_use_this_machine_and_nothing_else() {
        for url in ["http://localhost:1/", "http://127.0.0.1/", "http://127.0.0.9:1/x", "https://a.example/"] {
            assert_eq!(check(url, Targets::Local), Ok(()), "{url}");
        }
        for url in ["http://10.0.0.1/hook", "http://a.example/", "https://127.0.0.1/", "http://localhost.example/"] {
            assert!(check(url, Targets::Local).is_err(), "{url}");
        }
        assert_eq!(check("http://10.0.0.1/hook", Targets::Any), Ok(()));
    }

    #[test]
    fn a_name_that_leads_inside_is_not_connected_to() {
        let uri: Uri = "https://rebound.example/".parse().unwrap();
        let inside: IpAddr = "10.0.0.1".parse().unwrap();
        assert!(!may_connect(&uri, inside, Targets::Public));
        assert!(!may_connect(&uri, "127.0.0.1".parse().unwrap(), Targets::Local));
        assert!(may_connect(&uri, "1.1.1.1".parse().unwrap(), Targets::Public));
        let local: Uri = "http://localhost/".parse().unwrap();
        assert!(may_connect(&local, "::1".parse().unwrap(), Targets::Local));
        assert!(!may_connect(&local, inside, Targets::Local));
        assert!(!may_connect(&local, "127.0.0.1".parse().unwrap(), Targets::Public));
    }
}
