//! A cluster of each version, shared by the tests that do nothing to it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use thalweg_pg::pgoutput::{Decoder, Message, OldTuple, Tuple, Value};
use thalweg_pg::replication::{self, Event, SlotOptions, StartOptions, Stream};
use thalweg_pg::{Config, Conn, PgLsn};
use thalweg_pgtest::{Cluster, Installation, Options, installations};

pub(crate) fn each_cluster(test: impl Fn(&Cluster)) {
    static ALL: OnceLock<Vec<Cluster>> = OnceLock::new();
    let start = |installation: &Installation| Cluster::start(installation, &Options::default());
    for cluster in ALL.get_or_init(|| installations().iter().map(start).collect()) {
        test(cluster);
    }
}

pub(crate) fn config(url: &str) -> Config {
    let mut config: Config = url.parse().unwrap();
    config.read_timeout = Some(Duration::from_secs(30));
    config
}

pub(crate) fn connect(url: &str) -> Conn {
    Conn::connect(&config(url)).unwrap()
}

/// A database of the test's own, and a session in it.
pub(crate) fn database(cluster: &Cluster) -> (String, Conn) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    connect(&cluster.url("postgres")).simple(&format!("CREATE DATABASE {name}")).unwrap();
    let url = cluster.url(&name);
    let conn = connect(&url);
    (url, conn)
}

/// Makes a temporary slot named after the database and streams everything that is published.
pub(crate) fn stream(url: &str, options: &StartOptions) -> Stream {
    stream_of(&config(url), options)
}

pub(crate) fn stream_of(config: &Config, options: &StartOptions) -> Stream {
    let slot = format!("slot_{}", config.database);
    let mut conn = replication::Conn::connect(config).unwrap();
    conn.create_slot(&slot, &SlotOptions { temporary: true, ..SlotOptions::default() }).unwrap();
    conn.start(&slot, PgLsn::ZERO, options).unwrap()
}

pub(crate) fn everything() -> StartOptions {
    StartOptions { publications: vec!["everything".to_owned()], ..StartOptions::default() }
}

/// The messages up to the first for which `last` is true, as texts.
pub(crate) fn read_until(
    stream: &mut Stream,
    decoder: &mut Decoder,
    last: impl Fn(&Message<'_>) -> bool,
) -> Vec<String> {
    let (mut seen, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    loop {
        match stream.next(Some(deadline)).unwrap() {
            Event::XLogData { body, .. } => {
                let message = decoder.decode(body).unwrap();
                seen.push(brief(&message));
                if last(&message) {
                    return seen;
                }
            }
            Event::Keepalive { .. } => {}
            Event::Idle => panic!("nothing more came after {seen:#?}"),
        }
    }
}

/// A message without numbers that differ from run to run.
pub(crate) fn brief(message: &Message<'_>) -> String {
    let x = |xid: &Option<u32>| if xid.is_some() { "streamed " } else { "" };
    match message {
        Message::Begin { .. } => "begin".into(),
        Message::Commit { .. } => "commit".into(),
        Message::Origin { name, .. } => format!("origin {name}"),
        Message::Relation { xid, namespace, name, replica_identity, columns, .. } => {
            let columns: Vec<_> =
                columns.iter().map(|c| format!("{}{}:{}", if c.key { "*" } else { "" }, c.name, c.type_oid)).collect();
            format!("{}relation {namespace}.{name} {replica_identity:?} {}", x(xid), columns.join(" "))
        }
        Message::Type { xid, namespace, name, .. } => format!("{}type {namespace}.{name}", x(xid)),
        Message::Insert { xid, new, .. } => format!("{}insert {}", x(xid), row(new)),
        Message::Update { xid, old, new, .. } => format!("{}update {}-> {}", x(xid), old_row(old), row(new)),
        Message::Delete { xid, old, .. } => format!("{}delete {}", x(xid), old_row(old).trim()),
        Message::Truncate { xid, cascade, restart_identity, relations } => {
            format!("{}truncate {} cascade={cascade} restart={restart_identity}", x(xid), relations.len())
        }
        Message::Message { xid, transactional, prefix, content, .. } => {
            format!("{}message {transactional} {prefix} {}", x(xid), String::from_utf8_lossy(content))
        }
        Message::StreamStart { first_segment, .. } => format!("block {first_segment}"),
        Message::StreamStop => "block end".into(),
        Message::StreamCommit { .. } => "stream commit".into(),
        Message::StreamAbort { xid, subxid } => format!("stream abort {}", if xid == subxid { "all" } else { "part" }),
    }
}

fn old_row(old: &OldTuple<'_>) -> String {
    match old {
        OldTuple::None => String::new(),
        OldTuple::Key(tuple) => format!("key {} ", row(tuple)),
        OldTuple::Full(tuple) => format!("full {} ", row(tuple)),
    }
}

pub(crate) fn row(tuple: &Tuple<'_>) -> String {
    let value = |value| match value {
        Value::Null => "-".to_owned(),
        Value::UnchangedToast => "toast".to_owned(),
        Value::Text(text) if text.len() > 100 => format!("{} bytes", text.len()),
        Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        Value::Binary(bytes) => format!("{bytes:?}"),
    };
    tuple.values().map(value).collect::<Vec<_>>().join(",")
}
