//! The certificate that clients are shown: from files, which are read again when they change.

use crate::config::Config;
use crate::reload::Reload;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_http::TlsIdentity;

/// The certificate and key that the settings name, if any.
pub fn identity(config: &Config, reload: &mut Reload) -> anyhow::Result<Option<Arc<TlsIdentity>>> {
    if config.tls_cert.as_os_str().is_empty() {
        return Ok(None);
    }
    let (certificate, key) = (config.tls_cert.clone(), config.tls_key.clone());
    let named = named(&certificate, &key);
    let identity = TlsIdentity::from_pem(&read(&certificate)?, &read(&key)?).with_context(|| named.clone())?;
    let identity = Arc::new(identity);
    let kept = Arc::clone(&identity);
    reload.watch("certificate", vec![certificate.clone(), key.clone()], move || {
        kept.replace(&read(&certificate)?, &read(&key)?).with_context(|| named.clone())?;
        tracing::info!("reloaded the certificate");
        Ok(())
    });
    Ok(Some(identity))
}

/// Whether the certificate and its key can be used.
pub fn check(config: &Config) -> anyhow::Result<()> {
    if config.tls_cert.as_os_str().is_empty() {
        return Ok(());
    }
    let (certificate, key) = (&config.tls_cert, &config.tls_key);
    TlsIdentity::from_pem(&read(certificate)?, &read(key)?).with_context(|| named(certificate, key)).map(drop)
}

fn named(certificate: &Path, key: &Path) -> String {
    format!("--tls-cert {} and --tls-key {}", certificate.display(), key.display())
}

fn read(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
