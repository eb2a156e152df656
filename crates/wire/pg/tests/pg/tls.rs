use crate::support::config;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};
use thalweg_pg::replication::{self, Event};
use thalweg_pg::{
    AuthError, ChannelBinding, Config, Conn, Error, Password, PgLsn, RootCert, SslMode, TlsError, TrustError,
};
use thalweg_pgtest::{Cluster, Installation, Options, installations};

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

const ACCESS: &str = "\
hostnossl all plain 127.0.0.1/32 trust
hostssl all,replication postgres 127.0.0.1/32 trust
hostssl all scram 127.0.0.1/32 scram-sha-256
hostssl all known 127.0.0.1/32 cert
";

fn start(installation: &Installation, authority: &Authority, (cert, key): (String, String)) -> Option<Cluster> {
    let linked = std::process::Command::new(installation.bin.join("pg_config")).arg("--configure").output();
    if linked.is_ok_and(|said| !String::from_utf8_lossy(&said.stdout).contains("ssl")) {
        eprintln!("skipped: Postgres {} was built without TLS", installation.major);
        return None;
    }
    let options = Options::default().access(ACCESS).set("ssl", "on").set("ssl_ca_file", "ca.crt");
    let options = options.file("server.crt", cert).file("server.key", key).file("ca.crt", authority.pem.clone());
    Some(Cluster::start(installation, &options))
}

fn named(cluster: &Cluster, host: &str, user: &str) -> Config {
    config(&format!("postgres://{user}@{host}:{}/postgres", cluster.port()))
}

fn file(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn trust_is_as_sslmode_says() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let (ours, theirs) = (file(folder.path(), "ours", &authority.pem), file(folder.path(), "theirs", &other.pem));
    for installation in installations() {
        let Some(cluster) = start(&installation, &authority, authority.issue("localhost")) else { continue };
        let attempt = |host: &str, mode: SslMode, root: Option<&PathBuf>| {
            let mut config = named(&cluster, host, "postgres");
            config.ssl_mode = mode;
            config.ssl_root_cert = root.cloned().map(RootCert::File);
            Conn::connect(&config)
        };
        attempt("127.0.0.1", SslMode::Require, None).unwrap().simple("CREATE ROLE plain LOGIN").unwrap();
        let refused = |attempt: Result<Conn, Error>| matches!(attempt, Err(Error::Tls(TlsError::Session(_))));
        assert!(attempt("localhost", SslMode::VerifyFull, Some(&ours)).unwrap().is_tls());
        assert!(refused(attempt("127.0.0.1", SslMode::VerifyFull, Some(&ours))), "for another host");
        assert!(attempt("127.0.0.1", SslMode::VerifyCa, Some(&ours)).unwrap().is_tls());
        assert!(refused(attempt("localhost", SslMode::VerifyFull, Some(&theirs))), "by another authority");
        assert!(refused(attempt("localhost", SslMode::VerifyCa, Some(&theirs))), "by another authority");
        assert!(refused(attempt("localhost", SslMode::Require, Some(&theirs))), "an authority that is named counts");
        assert!(attempt("127.0.0.1", SslMode::Require, None).unwrap().is_tls());
        assert!(attempt("127.0.0.1", SslMode::Prefer, None).unwrap().is_tls());
        let untrusted = attempt("localhost", SslMode::VerifyFull, None);
        assert!(matches!(untrusted, Err(Error::Tls(TlsError::Session(_) | TlsError::NoSystemRoots))));
        let missing = attempt("localhost", SslMode::VerifyFull, Some(&folder.path().join("none")));
        assert!(matches!(missing, Err(Error::Tls(TlsError::File { .. }))));
        // The server lets this user in with TLS only, and another one without only.
        assert_eq!(attempt("127.0.0.1", SslMode::Disable, None).unwrap_err().code(), Some("28000"));
        assert!(!Conn::connect(&named(&cluster, "127.0.0.1", "plain")).unwrap().is_tls());
    }
}

#[test]
fn a_session_under_tls_does_everything() {
    let authority = Authority::new();
    for installation in installations() {
        let Some(cluster) = start(&installation, &authority, authority.issue("localhost")) else { continue };
        let mut config = named(&cluster, "127.0.0.1", "postgres");
        config.ssl_mode = SslMode::Require;
        let mut conn = Conn::connect(&config).unwrap();
        let big = "y".repeat(3_000_000);
        assert_eq!(conn.query("SELECT $1::text", &[Some(&big)]).unwrap().value(), Some(big.as_str()));
        let mut copy = conn.copy_out("COPY (SELECT i FROM generate_series(1, 200000) i) TO STDOUT").unwrap();
        let mut rows = 0;
        while let Some(row) = copy.next().unwrap() {
            rows += 1;
            assert_eq!(row, format!("{rows}\n").as_bytes());
        }
        assert_eq!(rows, 200_000);
        drop(copy);

        let token = conn.cancel_token().unwrap();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            token.cancel().unwrap();
        });
        assert_eq!(conn.simple("SELECT pg_sleep(25)").unwrap_err().code(), Some("57014"));
        canceller.join().unwrap();

        conn.simple("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
        let mut stream = crate::support::stream_of(&config, &crate::support::everything());
        let acker = stream.acker();
        let acking = std::thread::spawn(move || {
            for lsn in 1..2000 {
                acker.ack(PgLsn(lsn), PgLsn(lsn), PgLsn(lsn), lsn % 100 == 0).unwrap();
            }
        });
        conn.simple("INSERT INTO t SELECT generate_series(1, 20000)").unwrap();
        let (mut inserts, mut keepalives) = (0, 0);
        while inserts < 20_000 || keepalives < 10 {
            match stream.next(Some(std::time::Instant::now() + std::time::Duration::from_secs(20))).unwrap() {
                Event::XLogData { body, .. } => inserts += usize::from(body[0] == b'I'),
                Event::Keepalive { .. } => keepalives += 1,
                Event::Idle => panic!("{inserts} inserts, {keepalives} keepalives"),
            }
        }
        acking.join().unwrap();
        drop(replication::Conn::connect(&config).unwrap());
    }
}

#[test]
fn scram_is_bound_to_the_session() {
    let authority = Authority::new();
    for installation in installations() {
        let Some(cluster) = start(&installation, &authority, authority.issue("localhost")) else { continue };
        Conn::connect(&named(&cluster, "127.0.0.1", "postgres"))
            .unwrap()
            .simple("CREATE ROLE scram LOGIN PASSWORD 'secret'; CREATE ROLE plain LOGIN")
            .unwrap();
        let mut config = named(&cluster, "127.0.0.1", "scram");
        config.password = Some(Password("secret".to_owned()));
        for binding in [ChannelBinding::Require, ChannelBinding::Prefer, ChannelBinding::Disable] {
            config.channel_binding = binding;
            assert!(Conn::connect(&config).unwrap().is_tls(), "{binding:?}");
        }
        config.channel_binding = ChannelBinding::Require;
        config.ssl_mode = SslMode::Disable;
        config.user = "plain".to_owned();
        assert!(matches!(Conn::connect(&config), Err(Error::Auth(AuthError::NotBound))));
    }
}

#[test]
fn our_own_certificate_is_a_proof() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (cert, key) = authority.issue("known");
    for installation in installations() {
        let Some(cluster) = start(&installation, &authority, authority.issue("localhost")) else { continue };
        Conn::connect(&named(&cluster, "127.0.0.1", "postgres")).unwrap().simple("CREATE ROLE known LOGIN").unwrap();
        let mut config = named(&cluster, "127.0.0.1", "known");
        assert_eq!(Conn::connect(&config).unwrap_err().code(), Some("28000"));
        config.ssl_cert = Some(file(folder.path(), "cert", &cert));
        assert!(matches!(Conn::connect(&config), Err(Error::Tls(TlsError::File { .. }))));
        config.ssl_key = Some(file(folder.path(), "key", &key));
        assert_eq!(Conn::connect(&config).unwrap().simple("SELECT current_user").unwrap()[0].value(), Some("known"));
    }
}

#[test]
fn a_self_signed_certificate_is_trusted_if_it_is_the_one_that_was_named() {
    let folder = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for installation in installations() {
        let identity = (own.cert.pem(), own.signing_key.serialize_pem());
        let Some(cluster) = start(&installation, &Authority::new(), identity) else { continue };
        let mut config = named(&cluster, "localhost", "postgres");
        config.ssl_mode = SslMode::VerifyFull;
        config.ssl_root_cert = Some(RootCert::File(file(folder.path(), "own", &own.cert.pem())));
        assert!(Conn::connect(&config).unwrap().is_tls());
        config.hosts = named(&cluster, "127.0.0.1", "postgres").hosts;
        assert!(matches!(Conn::connect(&config), Err(Error::Tls(TlsError::Session(_)))));
        config.ssl_mode = SslMode::VerifyCa;
        assert!(Conn::connect(&config).unwrap().is_tls());
        config.ssl_root_cert = Some(RootCert::File(file(folder.path(), "other", &other.cert.pem())));
        assert!(matches!(Conn::connect(&config), Err(Error::Tls(TlsError::Session(_)))));
    }
}

#[test]
fn a_server_without_tls_is_refused_if_there_must_be_some() {
    crate::support::each_cluster(|cluster| {
        let mut config = named(cluster, "127.0.0.1", "postgres");
        for mode in [SslMode::Require, SslMode::VerifyCa] {
            config.ssl_mode = mode;
            let root = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
            let folder = tempfile::tempdir().unwrap();
            config.ssl_root_cert = Some(RootCert::File(file(folder.path(), "root", &root)));
            assert!(matches!(Conn::connect(&config), Err(Error::Tls(TlsError::NotOffered))));
        }
    });
}

#[test]
fn a_file_to_trust_demands_a_certificate_for_the_host_whatever_the_address_leaves_open() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let (ours, theirs) = (file(folder.path(), "ours", &authority.pem), file(folder.path(), "theirs", &other.pem));
    for installation in installations() {
        let Some(cluster) = start(&installation, &authority, authority.issue("localhost")) else { continue };
        for mode in [SslMode::Prefer, SslMode::Require, SslMode::VerifyFull] {
            let attempt = |host: &str, root: &Path| {
                let config = Config { ssl_mode: mode, ..named(&cluster, host, "postgres") };
                Conn::connect(&config.trusting(root).unwrap())
            };
            attempt("localhost", &ours).unwrap();
            assert!(matches!(attempt("localhost", &theirs), Err(Error::Tls(_))), "{mode:?}: another authority");
            assert!(matches!(attempt("127.0.0.1", &ours), Err(Error::Tls(_))), "{mode:?}: another host");
        }
        let plain = Config { ssl_mode: SslMode::VerifyCa, ..named(&cluster, "127.0.0.1", "postgres") };
        Conn::connect(&plain.trusting(&ours).unwrap()).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_trusted_is_refused_before_anything_connects() {
    let folder = tempfile::tempdir().unwrap();
    let good = file(folder.path(), "good", &Authority::new().pem);
    let address = || config("postgres://u@localhost/d");
    assert!(matches!(address().trusting(&folder.path().join("missing")), Err(TrustError::Tls(TlsError::File { .. }))));
    let empty = file(folder.path(), "empty", "no certificate\n");
    assert!(matches!(address().trusting(&empty), Err(TrustError::Tls(TlsError::File { .. }))));
    let disabled = Config { ssl_mode: SslMode::Disable, ..address() };
    assert!(matches!(disabled.trusting(&good), Err(TrustError::Disabled)));
    let twice = Config { ssl_root_cert: Some(RootCert::System), ..address() };
    assert!(matches!(twice.trusting(&good), Err(TrustError::Twice)));
    address().trusting(&good).unwrap();
}
