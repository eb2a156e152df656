//! Trust, from `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.

use super::address::Address;
use super::config::{Config, Host, RootCert, SslMode};
use super::error::{Error, TlsError};
use super::link::{Wait, handshake, recv_until, send_all};
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The client's side of every session of one [`Config`]; `None` if TLS is disabled.
pub(super) fn client(config: &Config) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    let check = match config.ssl_mode {
        SslMode::Disable => return Ok(None),
        SslMode::Require if config.ssl_root_cert.is_some() => Check::Authority,
        SslMode::Prefer | SslMode::Require => Check::Nothing,
        SslMode::VerifyCa => Check::Authority,
        SslMode::VerifyFull => Check::Name,
    };
    let provider = Arc::new(ring::default_provider());
    let (mut roots, mut pinned) = (RootCertStore::empty(), Vec::new());
    if check != Check::Nothing {
        pinned = match &config.ssl_root_cert {
            Some(RootCert::File(path)) => certificates(path)?,
            Some(RootCert::System) | None => rustls_native_certs::load_native_certs().certs,
        };
        if roots.add_parsable_certificates(pinned.iter().cloned()).0 == 0 {
            return Err(match &config.ssl_root_cert {
                Some(RootCert::File(path)) => file(path, "holds no certificate"),
                _ => TlsError::NoSystemRoots,
            });
        }
        if !matches!(config.ssl_root_cert, Some(RootCert::File(_))) {
            pinned.clear();
        }
    }
    let verifier = Verifier { check, roots, pinned, provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    Ok(Some(Arc::new(match (&config.ssl_cert, &config.ssl_key) {
        (Some(cert), Some(key)) => {
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, error))?;
            builder.with_client_auth_cert(certificates(cert)?, private)?
        }
        (Some(cert), None) => return Err(file(cert, "has no key: set sslkey too")),
        _ => builder.with_no_client_auth(),
    })))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| file(path, error))
}

fn file(path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { file: path.display().to_string(), why: why.to_string() }
}

/// Asks the server for TLS and does the handshake; `None`: it has none, and that is allowed.
pub(super) fn start(
    socket: &OwnedFd,
    tls: &Arc<ClientConfig>,
    config: &Config,
    host: &Host,
    address: &Address,
    wait: Wait,
) -> Result<Option<ClientConnection>, Error> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    send_all(socket, &request, config.write_timeout)?;
    // Exactly one byte: plaintext behind it would be taken for bytes of the TLS session.
    let mut answer = [0];
    match recv_until(socket, &mut answer, wait).map_err(super::link::broke)? {
        Some(1) => {}
        Some(_) => return Err(Error::Closed(None)),
        None => return Err(Error::Timeout(Duration::ZERO)),
    }
    match answer[0] {
        b'S' => {}
        b'N' if config.ssl_mode == SslMode::Prefer => return Ok(None),
        b'N' => return Err(TlsError::NotOffered.into()),
        _ => return Err(Error::Protocol("no answer to whether there is TLS")),
    }
    let name = server_name(config, host, address)?;
    let mut session = ClientConnection::new(tls.clone(), name).map_err(TlsError::Session)?;
    session.set_buffer_limit(None);
    handshake(socket, &mut session, wait, config.write_timeout)?;
    Ok(Some(session))
}

fn server_name(config: &Config, host: &Host, address: &Address) -> Result<ServerName<'static>, TlsError> {
    let name = match host {
        Host::Tcp { name, .. } => name.split('%').next().unwrap_or(name).to_owned(),
        Host::Unix { folder, .. } => folder.display().to_string(),
    };
    match (ServerName::try_from(name.clone()), address) {
        (Ok(name), _) => Ok(name),
        // The name is not verified.
        (Err(_), Address::Tcp(address)) if config.ssl_mode != SslMode::VerifyFull => {
            Ok(ServerName::IpAddress(address.ip().into()))
        }
        (Err(_), _) => Err(TlsError::Name(name)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Nothing,
    /// Verify the signer.
    Authority,
    /// Verify the signer and the host name.
    Name,
}

#[derive(Debug)]
struct Verifier {
    check: Check,
    roots: RootCertStore,
    /// Trusted as they are: the self-signed certificate of a server, which signs nothing else.
    pinned: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.check == Check::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if !self.pinned.contains(end_entity) {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        }
        if self.check == Check::Name {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
