//! This server as one of several that share a bucket (`--node`): its units of streams, where requests go, and the pages
//! for operators and for other nodes.

mod keeper;
mod list;
mod route;

use crate::engines::streams::ServedStreams;
use anyhow::Context as _;
use keeper::UnitKeeper;
use serde_json::json;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thalweg_host::background::Background;
use thalweg_host::bucket_unit::Prefix;
use thalweg_host::config::Config;
use thalweg_host::metrics::{Kind, Page};
use thalweg_host::nodes::{self, Forwarder, Node, NodeOptions, Place};
use thalweg_host::{Boot, Engine, Guard, Paths, Route, auth, plain};
use thalweg_http::{Context, Method, Reply, Request, Response};
use thalweg_object::Bucket;
use thalweg_rounds::Rounds;

/// The path of operators' requests.
const ADMIN: &str = "/v1/admin/nodes";
/// How long an SSE answer is silent at most, about.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a stop waits for other nodes to take over what it gives up.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(8);

/// The bucket of a node, and the units in it.
pub(crate) struct Share {
    pub(crate) bucket: Bucket,
    pub(crate) prefix: Prefix,
}

impl Share {
    /// Asks the bucket which units there are; a new prefix gets as many as the settings say.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Option<Self>> {
        let Some(location) = config.store.0.as_ref().filter(|_| config.is_node()) else { return Ok(None) };
        let bucket = Bucket::open(location, thalweg_object::BucketOptions::default())?;
        bucket.check().with_context(|| format!("--store {location} cannot be used"))?;
        let prefix = Prefix::settle(&bucket, config.units, true).with_context(|| format!("--store {location}"))?;
        if prefix.units != config.units {
            tracing::info!(units = prefix.units, "the prefix was made with another number of units, which counts");
        }
        Ok(Some(Self { bucket, prefix }))
    }
}

/// The engine of a node; of a server that is none, it does nothing.
pub(crate) struct ServedNode(Option<Arc<Served>>);

/// A node and its streams.
pub(crate) struct Served {
    streams: Arc<ServedStreams>,
    keeper: Arc<UnitKeeper>,
    config: Config,
    /// Once it takes units.
    node: OnceLock<Node>,
}

pub(crate) fn open(boot: Boot<'_>, streams: &Arc<ServedStreams>) -> anyhow::Result<ServedNode> {
    let Some(share) = &streams.share else { return Ok(ServedNode(None)) };
    let keeper = Arc::new(UnitKeeper::new(boot, share, &streams.streams)?);
    let (streams, config) = (Arc::clone(streams), boot.config.clone());
    let served = Arc::new(Served { streams: Arc::clone(&streams), keeper, config, node: OnceLock::new() });
    streams.route_by(Arc::clone(&served));
    Ok(ServedNode(Some(served)))
}

impl Served {
    fn start(&self, rounds: &Arc<Rounds>) -> anyhow::Result<()> {
        let Some(share) = &self.streams.share else { return Ok(()) };
        self.keeper.use_rounds(Arc::clone(rounds));
        let options = NodeOptions {
            name: self.config.node.clone(),
            address: self.config.advertised(),
            every: self.config.node_beacon.0,
            units: share.prefix.units,
            secret: share.prefix.secret().to_owned(),
        };
        let keeper: Arc<dyn nodes::Keeper> = Arc::clone(&self.keeper) as _;
        let node = Node::start(
            share.bucket.clone(),
            keeper,
            Arc::new(Forwarder::new(2 * self.config.long_poll_timeout.0.max(KEEP_ALIVE))?),
            options,
        )?;
        let _ = self.node.set(node);
        Ok(())
    }

    /// Whether another node of this prefix has sent the request.
    fn is_from_node(&self, request: &Request<'_>) -> bool {
        let given = request.headers.get(nodes::SECRET);
        given.zip(self.node.get()).is_some_and(|(given, node)| node.is_secret(given))
    }

    fn described(&self) -> serde_json::Value {
        let Some(node) = self.node.get() else { return json!({ "nodes": [], "units": [] }) };
        let seen = node.seen();
        let nodes: Vec<_> = seen
            .iter()
            .enumerate()
            .map(|(at, seen)| {
                let said = &seen.announcement;
                json!({
                    "name": said.name,
                    "instance": said.instance,
                    "address": said.address,
                    "this": at == 0,
                    "live": seen.is_live,
                    "draining": said.is_draining,
                    "units": said.units.iter().map(|(unit, _)| unit).collect::<Vec<_>>(),
                    "heard_ms_ago": u64::try_from(seen.age.as_millis()).unwrap_or(u64::MAX),
                    "started_ms": said.started_ms,
                })
            })
            .collect();
        let units: Vec<_> = (0..node.units())
            .map(|unit| {
                let owner = match node.place(unit) {
                    Place::Here => seen.first().map(|me| me.announcement.instance.clone()),
                    Place::There { instance, .. } => Some(instance),
                    Place::Nowhere => None,
                };
                json!({ "unit": unit, "owner": owner })
            })
            .collect();
        json!({ "nodes": nodes, "units": units })
    }

    fn admin(&self, request: &Request<'_>) -> Response {
        match (request.method, request.path.strip_prefix(ADMIN).unwrap_or_default()) {
            (Method::Get | Method::Head, "" | "/") => {
                plain(200, "application/json").header("cache-control", "no-store").body(self.described().to_string())
            }
            (Method::Post, "/drain") | (Method::Delete, "/drain") => match self.node.get() {
                Some(node) => {
                    node.drain(matches!(request.method, Method::Post));
                    plain(202, "application/json").body(self.described().to_string())
                }
                None => refused(503, "node_starting", "the node has not started yet; retry in a second"),
            },
            (_, "" | "/" | "/drain") => {
                refused(405, "method_not_allowed", "GET lists nodes; POST on /drain drains this one, DELETE ends that")
                    .header("allow", "GET, HEAD, POST, DELETE")
            }
            _ => refused(404, "not_found", "nodes are at /v1/admin/nodes, and /v1/admin/nodes/drain"),
        }
    }
}

/// A refusal of a node.
fn refused(status: u16, code: &str, message: &str) -> Response {
    let body = json!({ "error": { "code": code, "message": message } });
    let response = plain(status, "application/json").header("cache-control", "no-store").body(body.to_string());
    if status == 503 { response.header("retry-after", "1") } else { response }
}

impl Engine for ServedNode {
    fn routes(&self) -> Vec<Route> {
        let is_served = self.0.is_some();
        vec![
            Route { paths: Paths::Exactly(nodes::PATH), guard: Guard::Own { asks: true }, is_served, shown: ("", "") },
            Route {
                paths: Paths::Below(ADMIN),
                guard: Guard::Token(auth::need_of_admin),
                is_served,
                shown: if is_served { (ADMIN, "used by `thalweg node ls` and `drain`") } else { ("", "") },
            },
        ]
    }

    fn handle(&self, request: &Request<'_>, _: &mut Context<'_>) -> Reply {
        let Some(served) = &self.0 else { return Reply::Now(plain(404, "text/plain")) };
        if request.path != nodes::PATH {
            return Reply::Now(served.admin(request));
        }
        let said = served.node.get().filter(|_| served.is_from_node(request)).map(Node::announcement);
        Reply::Now(match said {
            Some(said) => plain(200, "application/json").body(serde_json::to_vec(&said).unwrap_or_default()),
            None => refused(403, "not_a_node", "only nodes of the same bucket and prefix ask here"),
        })
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    fn metrics(&self, page: &mut Page) {
        let Some((served, node)) = self.0.as_ref().and_then(|served| Some((served, served.node.get()?))) else {
            return;
        };
        let places: Vec<Place> = (0..node.units()).map(|unit| node.place(unit)).collect();
        let count = |is: fn(&Place) -> bool| places.iter().filter(|place| is(place)).count() as f64;
        page.add([
            ("node_units", Kind::Gauge, "Units of streams in the bucket, of all nodes.", node.units() as f64),
            ("node_units_served", Kind::Gauge, "Units that this node serves.", count(|place| *place == Place::Here)),
            (
                "node_units_unserved",
                Kind::Gauge,
                "Units that no live node is known to own. Alert if it stays above 0.",
                count(|place| *place == Place::Nowhere),
            ),
            ("node_peers", Kind::Gauge, "Other nodes that live.", node.peers().len() as f64),
        ]);
        served.keeper.metrics(page);
    }

    fn work(&self, _: &mut Background, rounds: &Arc<Rounds>) -> std::io::Result<()> {
        let Some(served) = &self.0 else { return Ok(()) };
        served.start(rounds).map_err(|error| std::io::Error::other(format!("{error:#}")))
    }

    fn retire(&self) {
        let Some(node) = self.0.as_ref().and_then(|served| served.node.get()) else { return };
        let has_heirs = || node.peers().iter().any(|peer| !peer.is_draining);
        if !has_heirs() {
            return;
        }
        node.drain(true);
        let until = Instant::now() + HAND_OVER_WITHIN;
        let is_handed_over = || {
            let has_none = node.announcement().units.is_empty();
            has_none && (0..node.units()).all(|unit| matches!(node.place(unit), Place::There { .. }))
        };
        while !is_handed_over() && has_heirs() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn stop(&self) {
        if let Some(node) = self.0.as_ref().and_then(|served| served.node.get()) {
            node.stop();
        }
    }
}
