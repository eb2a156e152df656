//! The whole server in one process, without sockets and background work: routes, the door, metrics and health.

use crate::backup::Backups;
use crate::engines::{self, streams::ServedStreams};
use crate::http::{Front, Health, Vitals};
use crate::vitals::ServerVitals;
use std::sync::Arc;
use std::time::Duration;
use thalweg_host::auth::Auth;
use thalweg_host::config::{Settings, load};
use thalweg_host::door::Door;
use thalweg_host::folder::Folder;
use thalweg_host::scrub::{Scrubber, Scrubs};
use thalweg_host::{Boot, Engine, Engines, Routes};
use thalweg_http::{Body, Context, Gate, Headers, Method, Reply, Request, Service, SharedPages, Waker};
use thalweg_rounds::{Done, Next, Rounds};
use thalweg_streams::Streams;

/// A server without sockets and background work, on a folder of its own.
pub(crate) struct Rig {
    engines: Arc<Engines>,
    streams: Arc<ServedStreams>,
    scrubs: Arc<Scrubs>,
    vitals: Arc<ServerVitals>,
    front: Front<Streams, Arc<ServerVitals>>,
    backups: Arc<Backups>,
    _folder: Folder,
    _dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = load(Settings { data: Some(dir.path().join("data")), ..settings }, None).unwrap();
        let folder = Folder::take(&config.data).unwrap();
        let auth = Auth::of(&config).unwrap().map(Arc::new);
        let gate = Arc::new(Gate::default());
        let pages = SharedPages::default();
        let boot = Boot { config: &config, folder: &folder, auth: auth.as_ref(), gate: &gate, pages: &pages };
        let (engines, streams) = engines::open(boot).unwrap();
        let engines = Arc::new(engines);
        let scrubs = Arc::new(Scrubs::of(engines.units()));
        // For its figures alone.
        let rounds = Arc::new(Rounds::start(thalweg_rounds::Options::default()).unwrap());
        rounds.stop();
        let vitals = ServerVitals::new(Arc::clone(&engines), auth.clone(), Arc::clone(&scrubs), rounds);
        let vitals = Arc::new(vitals);
        let backups =
            Backups::start(&streams.kernel, config.data.clone(), folder.lineage(), config.backup_idle.0).unwrap();
        let backups = Arc::new(backups);
        let front = Front {
            routes: Routes::of(engines.all()),
            gated: Arc::clone(&streams.streams),
            vitals: Arc::clone(&vitals),
            node: None,
            backups: Arc::clone(&backups),
            scrubs: Arc::clone(&scrubs),
            door: Arc::new(Door::new(&config, auth, 4437)),
        };
        Self { engines, streams, scrubs, vitals, front, backups, _folder: folder, _dir: dir }
    }

    /// With a database that cannot be reached.
    pub(crate) fn with_shapes() -> Self {
        Self::new(Settings {
            database_url: Some("postgres://nobody@127.0.0.1:1/none".to_owned()),
            shape_secret: Some("secret".to_owned()),
            ..Settings::default()
        })
    }

    /// The page of metrics.
    pub(crate) fn page(&self) -> String {
        self.vitals.metrics(&self.front.door.stats())
    }

    fn ask(&self, method: Method<'_>, path: &str) -> (u16, String) {
        let headers: [(&str, &[u8]); 1] = [("host", b"127.0.0.1:4437")];
        let request = Request { method, path, query: None, headers: Headers(&headers), body: b"" };
        let waker = || -> Waker { unreachable!("the answer is there at once") };
        match self.front.handle(&request, &mut Context::detached(0, &waker)) {
            Reply::Now(response) | Reply::Held(_, response) => match response.body {
                Body::Bytes(bytes) => (response.status, String::from_utf8(bytes.to_vec()).unwrap()),
                _ => (response.status, String::new()),
            },
            Reply::Later(_) => panic!("{path} is answered later"),
        }
    }

    /// Which engine answers a path, as the position in the list of engines.
    fn engine_of(&self, path: &str) -> Option<usize> {
        let (_, engine) = self.front.routes.find(path);
        let is_it = |one: &Arc<dyn Engine>| engine.is_some_and(|found| std::ptr::addr_eq(found, Arc::as_ptr(one)));
        self.engines.all().iter().position(is_it)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.engines.stop();
        self.backups.stop();
        self.engines.close().unwrap();
    }
}

#[test]
fn each_path_has_the_engine_whose_route_says_most_of_it() {
    let rig = Rig::with_shapes();
    let [streams, shapes, subscriptions] = [Some(0), Some(3), Some(4)];
    for (path, engine) in [
        ("/v1/stream", streams),
        ("/v1/stream/", streams),
        ("/v1/stream/a/b", streams),
        ("/v1/stream/__ds/streams", streams),
        ("/v1/stream/__ds/subscriptionsx", streams),
        ("/v1/stream/__ds/jwks.json/x", streams),
        ("/v1/stream/__ds/%73ubscriptions", streams),
        ("/v1/stream/__ds/jwks.json", subscriptions),
        ("/v1/stream/__ds/subscriptions", subscriptions),
        ("/v1/stream/__ds/subscriptions/s/ack", subscriptions),
        ("/v1/shape", shapes),
        ("/v1//%73hape/", shapes),
        ("/v1/health", shapes),
        ("/v1/admin/shapes", shapes),
        ("/v1/admin/shapes/1-1", shapes),
        ("/v1/admin/shapesx", None),
        ("/v1//admin/shapes", None),
        ("/v1/admin", None),
        ("/v1/admin/backup", None),
        ("/v1/admin/check", None),
        ("/v1/streams", None),
        ("/v1/stream%2Fa", None),
        ("/health", None),
        ("/metrics", None),
        ("/", None),
        ("", None),
    ] {
        assert_eq!(rig.engine_of(path), engine, "{path}");
    }
}

#[test]
fn an_engine_that_is_not_running_answers_as_if_it_were_not_there() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    let settings = Settings { tokens: Some(tokens.path().to_owned()), ..Settings::default() };
    let (open, closed) = (Rig::new(Settings::default()), Rig::new(settings));
    for path in ["/v1/shape", "/v1//shape", "/v1/health"] {
        for rig in [&open, &closed] {
            let (status, text) = rig.ask(Method::Get, path);
            assert!(status == 404 && text.starts_with("This path does not exist. Known paths:\n"), "{path}: {text}");
        }
    }
    let (status, text) = open.ask(Method::Get, "/v1/admin/shapes");
    assert!(status == 404 && text.contains("no_shapes"), "{text}");
    assert_eq!(closed.ask(Method::Get, "/v1/admin/shapes").0, 401, "a client without a right learns nothing");
    assert_eq!(closed.ask(Method::Get, "/v1/stream/a").0, 401);
    assert!(!open.page().contains("thalweg_shape"), "an alert on the source must not fire without one");
    assert!(!open.page().contains("unit="), "a server with one unit has metrics without the label");
    assert_eq!(open.engines.units().len(), 1);
}

#[test]
fn engines_that_run_are_behind_the_same_door() {
    let rig = Rig::with_shapes();
    assert_eq!(rig.ask(Method::Get, "/v1/shape").0, 401, "shapes ask for their secret");
    assert_eq!(rig.ask(Method::Get, "/v1/stream/a").0, 404);
    assert_eq!(rig.ask(Method::Get, "/v1/stream/__ds/jwks.json").0, 200);
    assert_eq!(rig.ask(Method::Get, "/v1/admin/check").0, 200);
    assert_eq!(rig.ask(Method::Get, "/health"), (200, "ok\n".to_owned()));
}

#[test]
fn the_page_at_the_root_lists_every_route() {
    let rig = Rig::new(Settings::default());
    let (_, text) = rig.ask(Method::Get, "/");
    let listed = [
        "  /v1/stream/NAME   streams: PUT creates, POST appends, GET reads, HEAD asks, DELETE removes",
        "  /v1/stream/__ds/subscriptions/ID",
        "                    subscriptions: PUT creates, GET asks, DELETE removes; workers are woken when streams change",
        "  /v1/shape         shapes of a Postgres database, if one is configured: GET reads and waits for changes",
        "  /v1/admin/backup  used by `thalweg backup`",
        "  /v1/admin/check   used by `thalweg check --server`: lists damage",
        "  /v1/admin/shapes  used by `thalweg shape ls`, `drop` and `explain`",
        "  /health           200 while requests can be served",
        "  /metrics          counters, in the Prometheus text format",
        "  /                 the same live, for a browser",
    ];
    assert_eq!(text.split_once("\n\n").unwrap().1.lines().collect::<Vec<_>>(), listed);
}

#[test]
fn every_kernel_unit_has_metrics_of_its_journal_settling_and_scrub() {
    let rig = Rig::with_shapes();
    let units: Vec<_> = rig.engines.units().iter().map(|unit| (&*unit.name, unit.label())).collect();
    assert_eq!(units, [("streams", None), ("shapes", Some("shapes"))]);
    let page = rig.page();
    let scrubbed = ["scrub_bytes_total", "scrub_passes_total", "scrub_last_pass_timestamp_seconds"];
    for unit in rig.engines.units() {
        let label = unit.label().map(|name| format!("{{unit=\"{name}\"}}")).unwrap_or_default();
        for name in unit.families().into_iter().map(|family| family.0).chain(scrubbed) {
            assert!(page.contains(&format!("\nthalweg_{name}{label} ")), "{name}{label}");
        }
        let label = unit.label().map(|name| format!(",unit=\"{name}\"")).unwrap_or_default();
        for kind in ["manifest", "journal", "directory", "object", "left_out"] {
            assert!(page.contains(&format!("\nthalweg_damage{{kind=\"{kind}\"{label}}} 0\n")), "{kind}{label}");
        }
    }
    let heads = page.lines().filter(|line| line.starts_with("# TYPE "));
    let mut names: Vec<_> = heads.map(|line| line.split(' ').nth(2).unwrap()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a metric has one head, whichever units have it");
}

#[test]
fn a_pass_of_the_scrub_is_counted_for_every_unit() {
    let rig = Rig::with_shapes();
    let mut scrubber = Scrubber::new(Arc::clone(&rig.scrubs), 1 << 30, Duration::from_secs(3600));
    while scrubber.step().is_some() {}
    let page = rig.page();
    for label in ["", "{unit=\"shapes\"}"] {
        assert!(page.contains(&format!("\nthalweg_scrub_passes_total{label} 1\n")), "{label}");
        assert!(!page.contains(&format!("\nthalweg_scrub_last_pass_timestamp_seconds{label} 0\n")), "{label}");
    }
}

#[test]
fn the_scrub_rests_until_a_pass_is_due_or_asked_for() {
    let rig = Rig::new(Settings::default());
    let mut idle = Scrubber::new(Arc::clone(&rig.scrubs), 0, Duration::from_secs(3600));
    assert_eq!(idle.turn(), Done::IDLE, "with a rate of zero nothing is read");
    assert_eq!(rig.ask(Method::Post, "/v1/admin/check").0, 202);
    assert_eq!(rig.ask(Method::Post, "/v1/admin/check").0, 202);
    let turns = std::iter::from_fn(|| Some(idle.turn())).take_while(|turn| turn.next == Next::Now);
    assert!(turns.count() > 1, "a pass that was asked for reads without pauses");
    assert_eq!(idle.turn(), Done::IDLE);
    assert!(rig.ask(Method::Get, "/v1/admin/check").1.contains("\"finished\":2"));
    let mut daily = Scrubber::new(Arc::clone(&rig.scrubs), 1 << 40, Duration::from_secs(3600));
    let pauses = std::iter::from_fn(|| match daily.turn().next {
        Next::In(pause) => Some(pause),
        other => (other == Next::Now).then_some(Duration::ZERO),
    });
    let pause = pauses.take(10_000).find(|pause| *pause > Duration::from_secs(60));
    assert!(
        pause.is_some_and(|pause| pause <= Duration::from_secs(3600)),
        "the next pass is not waited for: {pause:?}"
    );
}

#[test]
fn the_documentation_lists_every_metric() {
    let documented = include_str!("../../../docs/ops/metrics.md");
    let page = Rig::with_shapes().page();
    let names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 80, "{names:?}");
    for name in names {
        assert!(documented.contains(&format!("`{name}`")), "docs/ops/metrics.md does not mention {name}");
    }
}

#[test]
fn health_says_what_an_engine_cannot_do() {
    let rig = Rig::new(Settings::default());
    assert_eq!(rig.vitals.health(), Health::Whole);
    rig.streams.kernel.logs.set_low_on_space(true);
    let Health::Down(why) = rig.vitals.health() else { panic!("it is well") };
    assert_eq!(why, "the disk is full: appends are refused, reads and deletes work");
}

#[test]
fn every_figure_of_the_status_command_is_a_metric_of_the_server() {
    let sample = thalweg_cli::Sample::read(&Rig::with_shapes().page());
    assert_eq!(sample.version(), Some(env!("CARGO_PKG_VERSION")));
    assert!(sample.has_shapes() && sample.damage().is_some_and(|damage| damage.is_empty()));
    let source = include_str!("../../cli/src/status.rs").split("#[cfg(test)]").next().unwrap();
    let asked = ["rates.of(\"", "now.bytes(\"", "now.seconds(\"", "now.get(\"", " n(\""];
    let names = asked.iter().flat_map(|call| source.split(call).skip(1)).filter_map(|rest| rest.split('"').next());
    let unknown: Vec<_> = names.filter(|name| !sample.has(&format!("thalweg_{name}"))).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
