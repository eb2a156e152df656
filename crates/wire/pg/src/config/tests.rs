use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Config {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn tcp(name: &str, port: u16) -> Host {
    Host::Tcp { name: name.to_owned(), port }
}

#[test]
fn a_url_says_everything() {
    let config = parse(
        "postgres://us%40er:p%3Aw%2F@db.example:6543/my%20db?sslmode=verify-full&sslrootcert=/ca.pem&application_name=a%26b\
         &connect_timeout=3&options=-c%20geqo%3Doff&channel_binding=require&target_session_attrs=read-write&keepalives_idle=9",
    );
    let mut expected = Config::new(tcp("db.example", 6543), "us@er", "my db");
    expected.password = Some(Password("p:w/".to_owned()));
    expected.ssl_mode = SslMode::VerifyFull;
    expected.ssl_root_cert = Some(RootCert::File("/ca.pem".into()));
    expected.application_name = Some("a&b".to_owned());
    expected.connect_timeout = Some(Duration::from_secs(3));
    expected.options = Some("-c geqo=off".to_owned());
    expected.channel_binding = ChannelBinding::Require;
    expected.target_session = TargetSession::ReadWrite;
    expected.keepalive = Some(Duration::from_secs(9));
    assert_eq!(config, expected);
    assert_eq!(config.to_string(), "us@er@db.example:6543/my db");
}

#[test]
fn both_forms_mean_the_same() {
    for (url, words) in [
        ("postgres://u@h", "host=h user=u"),
        ("postgresql://u:p@h:1/d", "user=u password=p host=h port=1 dbname=d"),
        ("postgres://u:it's%20%5C@h/d", r"user = u  password='it\'s \\' host=h dbname = d "),
        ("postgres://u@/d?host=/run/pg&port=7", "host=/run/pg port=7 user=u dbname=d"),
        ("postgres://u@%2Frun%2Fpg:7/d", "host=/run/pg port=7 user=u dbname=d"),
        ("postgres://u@a:1,b:2/d", "host=a,b port=1,2 user=u dbname=d"),
        ("postgres://u@a,b/d?port=3", "host=a,b port=3 user=u dbname=d"),
        ("postgres://u@[::1]:4/d?sslmode=allow", "host=::1 port=4 user=u dbname=d"),
        ("postgres:///d?user=u&host=h&connect_timeout=0", "host=h user=u dbname=d connect_timeout=0"),
    ] {
        assert_eq!(parse(url), parse(words), "{url}");
    }
}

#[test]
fn hosts_are_names_addresses_and_folders() {
    assert_eq!(parse("postgres://u@[fe80::1%25eth0]:1/").hosts, [tcp("fe80::1%eth0", 1)]);
    assert_eq!(parse("postgres://u@a,[::1]:7").hosts, [tcp("a", 5432), tcp("::1", 7)]);
    assert_eq!(parse("host=/run user=u").hosts, [Host::Unix { folder: "/run".into(), port: 5432 }]);
    assert_eq!(parse("postgres://u@h").database, "u");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let wrong = |text: &str| text.parse::<Config>().unwrap_err();
    assert_eq!(wrong("postgres://h"), ConfigError::UserMissing);
    assert_eq!(wrong("postgres://u@"), ConfigError::HostMissing);
    assert_eq!(wrong("postgres://u@a,,b"), ConfigError::HostMissing);
    assert_eq!(wrong("postgres://u@h:0"), ConfigError::Port("0".into()));
    assert_eq!(wrong("postgres://u@h:65536"), ConfigError::Port("65536".into()));
    assert_eq!(wrong("postgres://u@h:+1"), ConfigError::Port("…".into()));
    assert_eq!(wrong("postgres://u@::1"), ConfigError::Host(":…".into()));
    assert_eq!(wrong("postgres://u@[::1"), ConfigError::Host("[::1".into()));
    assert_eq!(wrong("postgres://u@[h]"), ConfigError::Host("[h]".into()));
    assert_eq!(wrong("postgres://u@h%20h"), ConfigError::Host("h h".into()));
    assert_eq!(wrong("postgres://u:%4@h"), ConfigError::Percent("the password"));
    assert_eq!(wrong("postgres://u:%ff@h"), ConfigError::Percent("the password"));
    assert_eq!(wrong("postgres://u%00@h"), ConfigError::Nul("user"));
    assert_eq!(wrong("postgres://u@h?what=1"), ConfigError::Unknown("what".into()));
    assert_eq!(wrong("host=a,b,c port=1,2 user=u"), ConfigError::Ports { hosts: 3, ports: 2 });
    assert_eq!(wrong("host=a user"), ConfigError::Syntax(7));
    assert_eq!(wrong("host=a user='u"), ConfigError::Syntax(7));
    assert_eq!(wrong("host=a b=c=d user=u"), ConfigError::Unknown("b".into()));
    assert!(matches!(wrong("postgres://u@h?sslmode=on"), ConfigError::Value { name: "sslmode", .. }));
    assert!(matches!(wrong("host=h user=u connect_timeout=1s"), ConfigError::Value { name: "connect_timeout", .. }));
    assert!(matches!(wrong("host=h user=u client_encoding=LATIN1"), ConfigError::Value { .. }));
}

#[test]
fn no_print_shows_the_password() {
    let config = parse("postgres://u:hunter2@h/d");
    assert_eq!(config.password, Some(Password("hunter2".into())));
    assert!(!format!("{config:?} {config}").contains("hunter2"));
    for text in [
        "postgres://u:hunter2%@h/d",
        "postgres://u:hunter2@h:x/d",
        "postgres://u:hunter2/d",
        "postgres://u:a:hunter2/d",
        "user=u password=hunter2 host='h",
    ] {
        let error = text.parse::<Config>().unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hunter2"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,80}", scheme: bool) {
        let text = if scheme { format!("postgres://{text}") } else { text };
        let _ = text.parse::<Config>();
    }

    #[test]
    fn every_password_survives_percent_encoding(password in "[^\0]{1,20}") {
        let encoded: String = password.bytes().map(|b| format!("%{b:02X}")).collect();
        prop_assert_eq!(parse(&format!("postgres://u:{encoded}@h")).password, Some(Password(password)));
    }
}
