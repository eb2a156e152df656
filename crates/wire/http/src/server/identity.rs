//! The server's certificate and key, which may be replaced while it serves.

use arc_swap::ArcSwap;
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, ServerConfig, ServerConnection};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Why a certificate cannot be served. Nothing of the key is in it.
#[derive(Debug, Error)]
pub enum IdentityError {
    #[error("the certificate file is not PEM: {0}")]
    NotPem(PemError),
    #[error("the certificate file holds no certificate; it must have `-----BEGIN CERTIFICATE-----`")]
    NoCertificate,
    #[error("the private key is encrypted; decrypt it first, such as with `openssl pkey -in key.pem -out plain.pem`")]
    Encrypted,
    #[error(
        "the key file holds no private key; it must have `-----BEGIN PRIVATE KEY-----`, or RSA or EC before PRIVATE"
    )]
    NoKey,
    #[error("the private key is not that of the certificate, which must be the first in its file")]
    Mismatch,
    #[error("the certificate or key cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// TLS configuration of a server: TLS 1.2 and 1.3, HTTP/1.1 by ALPN, resumption by stateless tickets.
pub struct TlsIdentity(ArcSwap<ServerConfig>);

impl TlsIdentity {
    /// The identity of a certificate with its chain, and its key, both PEM.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        read(certificates, key).map(|config| Self(ArcSwap::new(config)))
    }

    /// Takes others for the connections to come. If they are wrong, nothing changes.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), IdentityError> {
        self.0.store(read(certificates, key)?);
        Ok(())
    }

    pub(super) fn session(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(self.0.load_full())
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsIdentity")
    }
}

fn read(certificates: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, IdentityError> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificates).collect::<Result<_, _>>().map_err(IdentityError::NotPem)?;
    if chain.is_empty() {
        return Err(IdentityError::NoCertificate);
    }
    let says = |what: &[u8]| memchr::memmem::find(key, what).is_some();
    if says(b"ENCRYPTED") {
        return Err(IdentityError::Encrypted);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::NoKey)?;
    let crypto = Arc::new(provider::default_provider());
    let certified = CertifiedKey::from_der(chain, key, &crypto).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => IdentityError::Mismatch,
        other => IdentityError::Unusable(other),
    })?;
    let builder = ServerConfig::builder_with_provider(crypto);
    let builder = builder.with_safe_default_protocol_versions().map_err(IdentityError::Unusable)?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = provider::Ticketer::new().map_err(IdentityError::Unusable)?;
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}
