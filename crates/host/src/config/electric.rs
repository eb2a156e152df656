//! Settings by the names that Electric gives them, so that a move is a change of the image.
//!
//! They win over the file and lose against our own names. Variables without a meaning here are ignored.

use super::Settings;
use super::values::{Listen, Switch};
use anyhow::Context;
use std::str::FromStr;
use std::time::Duration;
use thalweg_base::{Size, Span};

/// The variables that are read.
pub(super) const NAMES: &[&str] = &[
    "CLEANUP_REPLICATION_SLOTS_ON_SHUTDOWN",
    "ELECTRIC_CACHE_MAX_AGE",
    "ELECTRIC_CACHE_STALE_AGE",
    "ELECTRIC_DATABASE_CA_CERTIFICATE_FILE",
    "ELECTRIC_DATABASE_URL",
    "ELECTRIC_DB_POOL_SIZE",
    "ELECTRIC_ENABLE_INTEGRATION_TESTING",
    "ELECTRIC_INSECURE",
    "ELECTRIC_LONG_POLL_TIMEOUT",
    "ELECTRIC_MANUAL_TABLE_PUBLISHING",
    "ELECTRIC_MAX_CONCURRENT_REQUESTS",
    "ELECTRIC_MAX_SHAPES",
    "ELECTRIC_POOLED_DATABASE_URL",
    "ELECTRIC_PORT",
    "ELECTRIC_QUERY_DATABASE_URL",
    "ELECTRIC_REPLICATION_IDLE_TIMEOUT",
    "ELECTRIC_REPLICATION_STREAM_ID",
    "ELECTRIC_SECRET",
    "ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD",
    "ELECTRIC_STORAGE_DIR",
];

/// Reads the variables.
pub(super) fn read(env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Settings> {
    let requests = env("ELECTRIC_MAX_CONCURRENT_REQUESTS").map(|text| requests(&text)).transpose()?;
    Ok(Settings {
        database_url: env("DATABASE_URL").or_else(|| env("ELECTRIC_DATABASE_URL")),
        query_database_url: env("ELECTRIC_POOLED_DATABASE_URL").or_else(|| env("ELECTRIC_QUERY_DATABASE_URL")),
        database_ca_file: env("ELECTRIC_DATABASE_CA_CERTIFICATE_FILE").filter(|file| !file.is_empty()).map(Into::into),
        database_idle: time(env, "ELECTRIC_REPLICATION_IDLE_TIMEOUT", Duration::from_millis)?,
        shape_secret: env("ELECTRIC_SECRET"),
        shape_insecure: switch(env, "ELECTRIC_INSECURE")?,
        shape_chunk_bytes: parsed::<Size>(env, "ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD")?,
        shape_long_poll_timeout: time(env, "ELECTRIC_LONG_POLL_TIMEOUT", Duration::from_millis)?,
        shape_max_age: time(env, "ELECTRIC_CACHE_MAX_AGE", Duration::from_secs)?,
        shape_stale_age: time(env, "ELECTRIC_CACHE_STALE_AGE", Duration::from_secs)?,
        shape_delete: switch(env, "ELECTRIC_ENABLE_INTEGRATION_TESTING")?,
        max_shapes: parsed(env, "ELECTRIC_MAX_SHAPES")?,
        max_initial_requests: requests.map(|(initial, _)| initial),
        max_shape_requests: requests.map(|(_, existing)| existing),
        shape_database_connections: parsed(env, "ELECTRIC_DB_POOL_SIZE")?,
        replication_stream_id: env("ELECTRIC_REPLICATION_STREAM_ID"),
        manual_publishing: switch(env, "ELECTRIC_MANUAL_TABLE_PUBLISHING")?,
        replication_temporary_slot: switch(env, "CLEANUP_REPLICATION_SLOTS_ON_SHUTDOWN")?,
        data: env("ELECTRIC_STORAGE_DIR").map(Into::into),
        listen: env("ELECTRIC_PORT")
            .map(|port| format!("0.0.0.0:{port}").parse::<Listen>())
            .transpose()
            .map_err(|error| anyhow::anyhow!("ELECTRIC_PORT: {error}"))?,
        ..Settings::default()
    })
}

fn parsed<T: FromStr>(env: &dyn Fn(&str) -> Option<String>, name: &str) -> anyhow::Result<Option<T>>
where
    T::Err: std::fmt::Display,
{
    let value = env(name)
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().map_err(|error| anyhow::anyhow!("{name}: {error}")));
    value.transpose()
}

fn switch(env: &dyn Fn(&str) -> Option<String>, name: &str) -> anyhow::Result<Option<Switch>> {
    match env(name).as_deref() {
        None | Some("") => Ok(None),
        Some("true" | "1") => Ok(Some(Switch::On)),
        Some("false" | "0") => Ok(Some(Switch::Off)),
        Some(other) => anyhow::bail!("{name} is `{other}`; write true or false"),
    }
}

/// A plain number has Electric's unit; one with a unit is used unchanged.
fn time(env: &dyn Fn(&str) -> Option<String>, name: &str, unit: fn(u64) -> Duration) -> anyhow::Result<Option<Span>> {
    match env(name).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(number) => Ok(Some(Span(unit(number)))),
            Err(_) => text.parse().map(Some).map_err(|error: String| anyhow::anyhow!("{name}: {error}")),
        },
    }
}

/// `{"initial": 300, "existing": 10000}`.
fn requests(text: &str) -> anyhow::Result<(usize, usize)> {
    #[derive(serde::Deserialize)]
    struct Requests {
        initial: usize,
        existing: usize,
    }
    let found: Requests = serde_json::from_str(text)
        .context("ELECTRIC_MAX_CONCURRENT_REQUESTS must be like {\"initial\": 300, \"existing\": 10000}")?;
    Ok((found.initial, found.existing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(pairs: &[(&str, &str)]) -> anyhow::Result<Settings> {
        read(&|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn electrics_names_are_understood() {
        let settings = read_from(&[
            ("DATABASE_URL", "postgres://h/d"),
            ("ELECTRIC_INSECURE", "true"),
            ("ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD", "10000"),
            ("ELECTRIC_CACHE_MAX_AGE", "1"),
            ("ELECTRIC_LONG_POLL_TIMEOUT", "20000"),
            ("ELECTRIC_MAX_CONCURRENT_REQUESTS", "{\"initial\": 3, \"existing\": 4}"),
            ("ELECTRIC_PORT", "3000"),
            ("ELECTRIC_DATABASE_CA_CERTIFICATE_FILE", "/ca.pem"),
            ("ELECTRIC_REPLICATION_IDLE_TIMEOUT", "10m"),
            ("CLEANUP_REPLICATION_SLOTS_ON_SHUTDOWN", "true"),
        ])
        .unwrap();
        assert_eq!(settings.database_url.as_deref(), Some("postgres://h/d"));
        assert_eq!(settings.shape_insecure, Some(Switch::On));
        assert_eq!(settings.shape_chunk_bytes, Some(Size(10_000)));
        assert_eq!(settings.shape_max_age, Some(Span(Duration::from_secs(1))));
        assert_eq!(settings.shape_long_poll_timeout, Some(Span(Duration::from_secs(20))));
        assert_eq!(settings.database_ca_file.as_deref(), Some(std::path::Path::new("/ca.pem")));
        assert_eq!(settings.database_idle, Some(Span(Duration::from_secs(600))));
        assert_eq!(settings.replication_temporary_slot, Some(Switch::On));
        assert_eq!((settings.max_initial_requests, settings.max_shape_requests), (Some(3), Some(4)));
        assert_eq!(settings.listen.map(|listen| listen.to_string()).as_deref(), Some("0.0.0.0:3000"));
    }

    #[test]
    fn every_variable_that_is_read_is_listed() {
        let asked = std::cell::RefCell::new(Vec::new());
        let _ = read(&|name| {
            asked.borrow_mut().push(name.to_owned());
            None
        });
        let mut asked: Vec<String> = asked.into_inner().into_iter().filter(|name| name != "DATABASE_URL").collect();
        asked.sort_unstable();
        assert_eq!(asked, NAMES);
    }

    #[test]
    fn what_cannot_be_read_names_the_variable() {
        for (name, value) in [
            ("ELECTRIC_INSECURE", "maybe"),
            ("ELECTRIC_DB_POOL_SIZE", "many"),
            ("ELECTRIC_MAX_CONCURRENT_REQUESTS", "[]"),
            ("ELECTRIC_CACHE_MAX_AGE", "soon"),
        ] {
            let error = format!("{:#}", read_from(&[(name, value)]).err().unwrap());
            assert!(error.contains(name), "{error}");
        }
    }
}
