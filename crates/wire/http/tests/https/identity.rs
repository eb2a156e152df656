//! Certificates made for the test, and clients that trust them.

#![allow(dead_code, reason = "plain HTTP needs none of it")]

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::{Arc, OnceLock};
use thalweg_http::TlsIdentity;

#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
    client: Arc<ClientConfig>,
}

/// The identity that all servers and clients of this process share.
pub(crate) fn own() -> Identity {
    static OWN: OnceLock<Identity> = OnceLock::new();
    OWN.get_or_init(Identity::new).clone()
}

impl Identity {
    pub(crate) fn new() -> Self {
        let CertifiedKey { cert, signing_key }: CertifiedKey<KeyPair> =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = Self::client(roots, rustls::DEFAULT_VERSIONS);
        Self { certificate: cert.pem(), key: signing_key.serialize_pem(), client }
    }

    fn client(roots: RootCertStore, versions: &[&'static rustls::SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(crypto).with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// Whether a client speaks an older version, or another protocol.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut ClientConfig)) -> Self {
        let mut client = (*self.client).clone();
        change(&mut client);
        Self { client: Arc::new(client), ..self.clone() }
    }

    pub(crate) fn speaking(&self, version: &'static rustls::SupportedProtocolVersion) -> Self {
        let mut roots = RootCertStore::empty();
        let pem = rustls::pki_types::pem::PemObject::from_pem_slice(self.certificate.as_bytes());
        let der: rustls::pki_types::CertificateDer<'static> = pem.unwrap();
        roots.add(der).unwrap();
        Self { client: Self::client(roots, &[version]), ..self.clone() }
    }

    pub(crate) fn server(&self) -> Arc<TlsIdentity> {
        Arc::new(TlsIdentity::from_pem(self.certificate.as_bytes(), self.key.as_bytes()).unwrap())
    }

    pub(crate) fn session(&self) -> ClientConnection {
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::clone(&self.client), name).unwrap()
    }
}
