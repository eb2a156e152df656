//! Where a bucket is: `s3://bucket/prefix`, with the settings of its client.

use crate::error::LocationError;
use crate::folder::FolderStore;
use crate::profile;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// The location of a bucket and of a prefix in it.
///
/// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///path` for trying things out on one
/// machine, or `memory:`, which ends with the process. Credentials, region and endpoint come from where the providers'
/// own tools have them: the environment (`AWS_ENDPOINT_URL` names another S3-compatible store), a profile in `~/.aws`,
/// the machine's role. Settings of the client may follow as a query, by the names that `object_store` gives them:
/// `?endpoint=http://127.0.0.1:7070&region=us-east-1`.
#[derive(Clone, PartialEq, Eq)]
pub struct Location {
    scheme: Scheme,
    bucket: String,
    prefix: String,
    settings: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    S3,
    Google,
    Azure,
    Memory,
    Folder,
}

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
            Self::Memory => "memory",
            Self::Folder => "file",
        }
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let form = |why: &str| LocationError::Form { text: text.chars().take(200).collect(), why: why.to_owned() };
        let url = Url::parse(text).map_err(|error| form(&error.to_string()))?;
        let scheme = match url.scheme() {
            "s3" => Scheme::S3,
            "gs" => Scheme::Google,
            "az" => Scheme::Azure,
            "memory" => Scheme::Memory,
            "file" => Scheme::Folder,
            other => return Err(form(&format!("{other} is no kind of bucket"))),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(form("credentials do not belong here, but into the environment"));
        }
        let bucket = url.host_str().unwrap_or_default().to_owned();
        if !bucket.is_empty() && scheme == Scheme::Folder {
            return Err(form("a folder is named by its whole path: file:///path"));
        }
        if bucket.is_empty() && !matches!(scheme, Scheme::Memory | Scheme::Folder) {
            return Err(form("it names no bucket"));
        }
        let prefix = url.path().trim_matches('/').to_owned();
        Path::parse(&prefix).map_err(|error| form(&format!("its prefix is no path: {error}")))?;
        let settings = url.query_pairs().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        Ok(Self { scheme, bucket, prefix, settings })
    }
}

/// Without the settings, which may be secret.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Location {
    /// The location with its settings, as it was written, but for the values of secret ones.
    #[must_use]
    pub fn described(&self) -> String {
        const SECRET: [&str; 4] = ["secret", "token", "password", "key"];
        let is_secret = |key: &str| SECRET.iter().any(|word| key.to_ascii_lowercase().contains(word));
        let value = |key: &str, value: &str| if is_secret(key) { "***".to_owned() } else { value.to_owned() };
        let settings: Vec<String> = self.settings.iter().map(|(key, of)| format!("{key}={}", value(key, of))).collect();
        if settings.is_empty() { self.to_string() } else { format!("{self}?{}", settings.join("&")) }
    }

    /// Whether what is put there is still there when the process has ended.
    #[must_use]
    pub fn outlives_the_process(&self) -> bool {
        self.scheme != Scheme::Memory
    }

    /// The folder of this machine that is the bucket, if it is one.
    #[must_use]
    pub fn folder(&self) -> Option<PathBuf> {
        (self.scheme == Scheme::Folder).then(|| format!("/{}", self.prefix).into())
    }

    pub(crate) fn prefix(&self) -> Path {
        // A folder is the bucket itself.
        if self.scheme == Scheme::Folder { Path::default() } else { Path::from(self.prefix.as_str()) }
    }

    /// The client. It sends each request once, and waits `timeout` for its answer: repetitions are the caller's.
    pub(crate) fn client(&self, timeout: Duration) -> Result<Arc<dyn ObjectStore>, LocationError> {
        // The process may have chosen a provider of TLS already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let wrong = |cause: String| LocationError::Settings { location: self.to_string(), cause };
        let cause = |error: object_store::Error| wrong(error.to_string());
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let is_plain = |value: Option<String>| value.is_some_and(|endpoint| endpoint.starts_with("http://"));
        let options =
            || ClientOptions::new().with_timeout(timeout).with_connect_timeout(timeout.min(Duration::from_secs(5)));
        Ok(match self.scheme {
            Scheme::Memory => Arc::new(InMemory::new()),
            Scheme::Folder => Arc::new(FolderStore::open(format!("/{}", self.prefix).into()).map_err(cause)?),
            Scheme::S3 => {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.bucket).with_retry(once);
                let has_keys = builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_some();
                for (key, value) in profile::settings() {
                    let key = AmazonS3ConfigKey::from_str(key).map_err(cause)?;
                    let is_key = !matches!(key, AmazonS3ConfigKey::Region | AmazonS3ConfigKey::Endpoint);
                    if builder.get_config_value(&key).is_none() && !(is_key && has_keys) {
                        builder = builder.with_config(key, value);
                    }
                }
                for (key, value) in &self.settings {
                    builder = builder.with_config(AmazonS3ConfigKey::from_str(key).map_err(cause)?, value);
                }
                let is_plain = is_plain(builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
                Arc::new(builder.with_client_options(options().with_allow_http(is_plain)).build().map_err(cause)?)
            }
            Scheme::Google => {
                let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&self.bucket).with_retry(once);
                for (key, value) in &self.settings {
                    builder = builder.with_config(GoogleConfigKey::from_str(key).map_err(cause)?, value);
                }
                Arc::new(builder.with_client_options(options()).build().map_err(cause)?)
            }
            Scheme::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(&self.bucket).with_retry(once);
                for (key, value) in &self.settings {
                    builder = builder.with_config(AzureConfigKey::from_str(key).map_err(cause)?, value);
                }
                let is_plain = is_plain(builder.get_config_value(&AzureConfigKey::Endpoint));
                Arc::new(builder.with_client_options(options().with_allow_http(is_plain)).build().map_err(cause)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_and_printed_without_their_settings() {
        let text = "s3://data/some/prefix/?endpoint=http://127.0.0.1:7070&secret_access_key=hush";
        let location: Location = text.parse().unwrap();
        assert_eq!(location.to_string(), "s3://data/some/prefix");
        assert_eq!(format!("{location:?}"), "s3://data/some/prefix");
        assert_eq!(location.described(), "s3://data/some/prefix?endpoint=http://127.0.0.1:7070&secret_access_key=***");
        assert_eq!(location.settings.len(), 2);
        for text in ["s3://data", "gs://data/a", "az://box/a/b", "memory:", "memory://x/y"] {
            assert!(text.parse::<Location>().is_ok(), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, why) in [
            ("data", "relative"),
            ("http://data/x", "http is no kind of bucket"),
            ("s3:///x", "names no bucket"),
            ("s3://key:secret@data/x", "credentials do not belong here"),
            ("s3://data/a//b", "no path"),
        ] {
            let error = text.parse::<Location>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("s3://bucket/prefix"), "{text}: {error}");
        }
    }

    #[test]
    fn a_setting_that_the_client_does_not_know_is_refused() {
        let location: Location = "s3://data?shoe_size=46".parse().unwrap();
        let error = location.client(Duration::from_secs(1)).unwrap_err().to_string();
        assert!(error.contains("shoe_size"), "{error}");
    }
}
