use crate::support::{config, connect};
use thalweg_pg::replication;
use thalweg_pg::{AuthError, ChannelBinding, Conn, Error, Password};
use thalweg_pgtest::{Cluster, Options, installations};

const ACCESS: &str = "\
host all,replication postgres 127.0.0.1/32 trust
host all,replication scram 127.0.0.1/32 scram-sha-256
host all,replication md5 127.0.0.1/32 md5
host all,replication plain 127.0.0.1/32 password
host all,replication gone 127.0.0.1/32 reject
";
/// Nothing that a URL, SASLprep or a message could take for something else.
const PASSWORD: &str = "pä ss'\\%@:/?#\u{2126}";

#[test]
fn every_way_to_prove_who_we_are() {
    for installation in installations() {
        let cluster = Cluster::start(&installation, &Options::default().access(ACCESS));
        let mut admin = connect(&cluster.url("postgres"));
        for (user, encryption) in [("scram", "scram-sha-256"), ("md5", "md5"), ("plain", "scram-sha-256")] {
            admin.simple(&format!("SET password_encryption = '{encryption}'")).unwrap();
            admin.simple(&format!(r"CREATE ROLE {user} LOGIN REPLICATION PASSWORD 'pä ss''\%@:/?#Ω'")).unwrap();
        }
        admin.simple("CREATE ROLE gone LOGIN").unwrap();
        let attempt = |user: &str, password: Option<&str>| {
            let mut config = config(&format!("postgres://{user}@127.0.0.1:{}/postgres", cluster.port()));
            config.password = password.map(|password| Password(password.to_owned()));
            assert!(replication::Conn::connect(&config).is_ok() == Conn::connect(&config).is_ok());
            Conn::connect(&config)
        };
        for user in ["scram", "md5", "plain"] {
            // U+2126 is the omega that SASLprep makes of it; the others compare bytes.
            let password = if user == "scram" { PASSWORD.to_owned() } else { PASSWORD.replace('\u{2126}', "Ω") };
            let mut conn = attempt(user, Some(&password)).unwrap_or_else(|error| panic!("{user}: {error}"));
            assert_eq!(conn.simple("SELECT current_user").unwrap()[0].value(), Some(user));
            assert_eq!(attempt(user, Some("wrong")).unwrap_err().code(), Some("28P01"), "{user}");
            let none = attempt(user, None).unwrap_err();
            assert!(matches!(none, Error::Auth(AuthError::PasswordMissing)), "{user}: {none}");
            assert!(matches!(attempt(user, Some("\0")), Err(Error::Refused(_) | Error::Server(_) | Error::Auth(_))));
        }
        assert_eq!(attempt("gone", None).unwrap_err().code(), Some("28000"));
        assert!(attempt("postgres", None).is_ok());

        let mut bound = config(&format!("postgres://scram@127.0.0.1:{}/postgres", cluster.port()));
        bound.password = Some(Password(PASSWORD.to_owned()));
        bound.channel_binding = ChannelBinding::Require;
        assert!(matches!(Conn::connect(&bound), Err(Error::Auth(AuthError::NotBound))));
        for user in ["postgres", "plain", "md5"] {
            bound.user = user.to_owned();
            assert!(matches!(Conn::connect(&bound), Err(Error::Auth(AuthError::NotBound))), "{user}");
        }
    }
}
