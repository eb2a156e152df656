//! This server as one of several that share a bucket (`--node`): its units of streams, where requests go, and the pages
//! for operators and for other nodes.

mod keeper;
mod list;
pub(crate) mod news;
mod route;
mod shapes;

use crate::engines::shapes::Access;
use crate::engines::streams::ServedStreams;
use anyhow::Context as _;
use keeper::UnitKeeper;
pub(crate) use route::{Door, not_here};
use route::{OwnerOf, ToStreams};
use serde_json::json;
use shapes::{ShapesHome, ToShapes};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use thalweg_host::background::Background;
use thalweg_host::bucket_unit::{self, Prefix, Which};
use thalweg_host::config::Config;
use thalweg_host::folder::Folder;
use thalweg_host::metrics::{Kind, Page};
use thalweg_host::mirror;
use thalweg_host::nodes::{self, Budget, Forwarded, Forwarder, Forwarding, Node, NodeOptions, Place, Proofs};
use thalweg_host::{Boot, Engine, Guard, Paths, Route, auth, plain};
use thalweg_http::{Context, Method, Pending, Poll, Reply, Request, Response};
use thalweg_object::Bucket;
use thalweg_rounds::Rounds;
use thalweg_subscriptions::Subscriptions;
use thalweg_subscriptions::spread::Desk;

/// The path of operators' requests.
const ADMIN: &str = "/v1/admin/nodes";
/// How long an SSE answer is silent at most, about.
const KEEP_ALIVE: Duration = Duration::from_secs(25);
/// How long a stop waits for other nodes to take over what it gives up.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(8);

/// The bucket of a node, and the units in it.
pub(crate) struct Share {
    pub(crate) bucket: Bucket,
    pub(crate) prefix: Prefix,
    /// By which nodes know each other.
    pub(crate) proofs: Arc<Proofs>,
}

impl Share {
    /// Asks the bucket which units there are; a new prefix gets as many as the settings say.
    pub(crate) fn of(config: &Config, folder: &Folder) -> anyhow::Result<Option<Self>> {
        let Some(location) = config.store.0.as_ref().filter(|_| config.is_node()) else { return Ok(None) };
        let bucket = Bucket::open(location, thalweg_object::BucketOptions::default())?;
        bucket.check().with_context(|| format!("--store {location} cannot be used"))?;
        let named = format!("--store {location}");
        let remembered = (folder.path(), &*location.to_string());
        let prefix = Prefix::settle_for(&bucket, config.units, true, remembered).context(named)?;
        if prefix.units != config.units {
            tracing::info!(units = prefix.units, "the prefix was made with another number of units, which counts");
        }
        let instance = format!("{}-{:016x}", config.node, thalweg_host::folder::random()?);
        let proofs = Arc::new(Proofs::of(prefix.secret(), instance));
        Ok(Some(Self { bucket, prefix, proofs }))
    }

    /// The text under a key of the bucket: this one, if there is none yet.
    pub(crate) fn settle_once(&self, key: &str, text: String) -> anyhow::Result<String> {
        let settled = self.bucket.settle_once(key, text.into_bytes().into());
        let settled = settled.with_context(|| format!("the object `{key}` of the bucket"))?;
        Ok(String::from_utf8_lossy(&settled).into_owned())
    }
}

/// The engine of a node; of a server that is none, it does nothing.
pub(crate) struct ServedNode(Option<Arc<Served>>);

/// A node and its streams.
pub(crate) struct Served {
    streams: Arc<ServedStreams>,
    /// The way to streams.
    door: Arc<dyn Door>,
    /// Which of its streams have changed, for subscriptions of all nodes.
    desk: Arc<Desk>,
    keeper: Arc<UnitKeeper>,
    /// Its part in the shapes, if it reaches their database.
    shapes: Option<Arc<ShapesHome>>,
    /// Some node of the prefix has had shapes.
    has_had_shapes: AtomicBool,
    config: Config,
    /// The room for bodies that wait for other nodes.
    budget: Arc<Budget>,
    /// Once it takes units.
    node: OnceLock<Node>,
}

pub(crate) fn open(boot: Boot<'_>, streams: &Arc<ServedStreams>) -> anyhow::Result<ServedNode> {
    let Some(share) = &streams.share else { return Ok(ServedNode(None)) };
    let open_shapes = || ShapesHome::new(boot, &share.bucket, &share.prefix, Access::of_settings(boot));
    let shapes = boot.config.serves_shapes().then(open_shapes);
    let shapes = shapes.transpose()?.map(Arc::new);
    let has_had_shapes = AtomicBool::new(bucket_unit::exists(&share.bucket, &share.prefix, Which::Shapes)?);
    let keeper = Arc::new(UnitKeeper::new(boot, share, &streams.streams, shapes.clone())?);
    let (streams, config) = (Arc::clone(streams), boot.config.clone());
    let units: Arc<OnceLock<Weak<Served>>> = Arc::default();
    let of_node = Arc::clone(&units);
    let serves = move || of_node.get().and_then(Weak::upgrade).map(|served| served.leased()).unwrap_or_default();
    let name = share.proofs.instance().to_owned();
    let desk = Desk::new(Arc::clone(&streams.streams), name, Box::new(serves));
    let door = Arc::new(ToStreams(Arc::clone(&streams.streams)));
    let served = Arc::new(Served {
        streams: Arc::clone(&streams),
        door,
        desk,
        keeper,
        shapes,
        has_had_shapes,
        budget: Budget::new(thalweg_http::ServerConfig::default().max_buffered),
        config,
        node: OnceLock::new(),
    });
    let _ = units.set(Arc::downgrade(&served));
    streams.route_by(Arc::clone(&served));
    Ok(ServedNode(Some(served)))
}

impl ServedNode {
    /// The node, if this server is one.
    pub(crate) fn served(&self) -> Option<&Arc<Served>> {
        self.0.as_ref()
    }
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
            has_shapes: self.shapes.is_some(),
            proofs: Arc::clone(&share.proofs),
        };
        let keeper: Arc<dyn nodes::Keeper> = Arc::clone(&self.keeper) as _;
        let forwarder = Forwarder::new(2 * self.silence_max(), Arc::clone(&share.proofs))?;
        let node = Node::start(share.bucket.clone(), keeper, Arc::new(forwarder), options)?;
        let _ = self.node.set(node);
        Ok(())
    }

    /// The text that an object of the bucket has for all nodes: this one, if there is none yet.
    pub(crate) fn settle_once(&self, key: &str, text: String) -> anyhow::Result<String> {
        self.streams.share.as_ref().context("a node has a bucket")?.settle_once(key, text)
    }

    /// Has these subscriptions get those of each unit.
    pub(crate) fn use_subscriptions(&self, subscriptions: &Arc<Subscriptions>) {
        self.keeper.use_subscriptions(Arc::clone(subscriptions));
    }

    /// Call it every few seconds.
    pub(crate) fn tick_desk(&self) {
        self.desk.tick();
    }

    /// The units of streams that this node serves by a lease, each with the epoch of its ownership.
    fn leased(&self) -> Vec<(u64, u64)> {
        let Some(node) = self.node.get() else { return Vec::new() };
        let owned = node.announcement().units;
        owned.into_iter().filter(|(unit, _)| *unit < node.units() && node.serves(*unit)).collect()
    }

    /// How long a node may say nothing to a request that another one has sent on.
    fn silence_max(&self) -> Duration {
        self.config.long_poll_timeout.0.max(self.config.shape_long_poll_timeout.0).max(KEEP_ALIVE)
    }

    /// The way to shapes.
    pub(crate) fn door_of_shapes(self: &Arc<Self>) -> Arc<dyn Door> {
        Arc::new(ToShapes { home: self.shapes.clone(), served: Arc::clone(self) })
    }

    /// Its part in the shapes, if it reaches their database.
    pub(crate) fn shapes(&self) -> Option<&Arc<ShapesHome>> {
        self.shapes.as_ref()
    }

    /// The number of the unit of shapes.
    pub(crate) fn shapes_unit(&self) -> u64 {
        self.streams.units()
    }

    /// Where the unit of shapes is; `None` if no node of the prefix has ever had a database, as far as is known.
    pub(crate) fn place_of_shapes(&self) -> Option<Place> {
        let Some(node) = self.node.get() else { return Some(Place::Nowhere) };
        if !self.has_had_shapes.load(Ordering::Relaxed) {
            if !node.has_shapes() {
                return None;
            }
            self.has_had_shapes.store(true, Ordering::Relaxed);
        }
        Some(node.place(node.shapes_unit()))
    }

    /// Whether this node serves a unit, with a lease.
    fn serves(&self, unit: u64) -> bool {
        self.node.get().is_some_and(|node| node.serves(unit))
    }

    /// Whether another node of this prefix has sent the request.
    fn is_from_node(&self, request: &Request<'_>) -> bool {
        let given = request.headers.get(nodes::SECRET);
        given.zip(self.node.get()).is_some_and(|(given, node)| node.proofs().is_shown(given))
    }

    fn described(&self) -> serde_json::Value {
        let Some(node) = self.node.get() else { return json!({ "nodes": [], "units": [] }) };
        let seen = node.seen();
        let is_of_streams = |unit: &u64| *unit < node.units();
        let owner_at = |place| match place {
            Place::Here => seen.first().map(|me| me.announcement.instance.clone()),
            Place::There { instance, .. } => Some(instance),
            Place::Nowhere => None,
        };
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
                    "units": said.units.iter().map(|(unit, _)| *unit).filter(is_of_streams).collect::<Vec<_>>(),
                    "has_database": said.has_shapes,
                    "has_shapes": said.epoch_of(node.shapes_unit()).is_some(),
                    "heard_ms_ago": u64::try_from(seen.age.as_millis()).unwrap_or(u64::MAX),
                    "started_ms": said.started_ms,
                })
            })
            .collect();
        let units: Vec<_> =
            (0..node.units()).map(|unit| json!({ "unit": unit, "owner": owner_at(node.place(unit)) })).collect();
        let shapes = self.place_of_shapes().map(|place| json!({ "owner": owner_at(place) }));
        json!({ "nodes": nodes, "units": units, "shapes": shapes })
    }

    /// Answers a request for the path `below` that of administrators.
    fn admin(self: &Arc<Self>, below: &str, request: &Request<'_>) -> Reply {
        let answer =
            |status, said: String| plain(status, "application/json").header("cache-control", "no-store").body(said);
        Reply::Now(match (request.method, below) {
            (Method::Get | Method::Head, "" | "/") => answer(200, self.described().to_string()),
            (Method::Get, "/owner") => {
                let name = request.query.and_then(|query| query.strip_prefix("stream="));
                match name.and_then(|name| OwnerOf::new(self, name, request)) {
                    Some(asked) => return Reply::Later(Box::new(asked)),
                    None => refused(400, "bad_name", "ask with ?stream=NAME, the name as in the stream's URL"),
                }
            }
            (Method::Post | Method::Delete, "/drain") if self.is_for_another(request) => return self.pass_on(request),
            (Method::Post, "/drain") => match self.node.get() {
                Some(node) if node.peers().iter().all(|peer| peer.is_draining) => {
                    let why = "no other node takes units: each of them is gone or draining; start one, or end a drain \
                               with `thalweg node drain NAME --undo`";
                    refused(409, "last_node", why)
                }
                Some(node) => answer(202, self.drained(node, true).to_string()),
                None => starting(),
            },
            (Method::Delete, "/drain") => match self.node.get() {
                Some(node) => answer(202, self.drained(node, false).to_string()),
                None => starting(),
            },
            (_, "" | "/" | "/drain" | "/owner") => {
                refused(405, "method_not_allowed", "GET lists nodes; POST on /drain drains this one, DELETE ends that")
                    .header("allow", "GET, HEAD, POST, DELETE")
            }
            _ => refused(404, "not_found", "nodes are at /v1/admin/nodes; below it are /drain and /owner"),
        })
    }

    /// Whether a request names another node.
    fn is_for_another(&self, request: &Request<'_>) -> bool {
        named(request).is_some_and(|name| name != self.config.node)
    }

    /// Sends a request to the node that it names.
    fn pass_on(&self, request: &Request<'_>) -> Reply {
        let (Some(name), Some(node)) = (named(request), self.node.get()) else { return Reply::Now(starting()) };
        let peers = node.peers();
        let Some(peer) = peers.iter().find(|peer| peer.name == name) else {
            let others = peers.iter().map(|peer| peer.name.as_str());
            let names: Vec<&str> = std::iter::once(self.config.node.as_str()).chain(others).collect();
            let why = format!("no live node has the name {name}; there are: {}", names.join(", "));
            return Reply::Now(refused(404, "no_node", &why));
        };
        let Some(owned) = nodes::OwnedRequest::of(request, &self.budget) else { return Reply::Now(starting()) };
        let sent = node.forwarder().send((&peer.address, &peer.instance), &owned, &[]);
        Reply::Later(Box::new(PassedOn(sent)))
    }

    /// Begins to drain the node, or ends that; the nodes, and whether that was so before.
    fn drained(&self, node: &Node, is_draining: bool) -> serde_json::Value {
        let was_draining = node.announcement().is_draining;
        node.drain(is_draining);
        let mut said = self.described();
        said["was_draining"] = json!(was_draining);
        said
    }

    /// The unit of a stream, and its owner.
    fn said_of(&self, stream: &str, exists: bool, unit: u64) -> Response {
        let seen = self.node.get().map(Node::seen).unwrap_or_default();
        let owner = match self.node.get().map_or(Place::Nowhere, |node| node.place(unit)) {
            Place::Here => seen.first(),
            Place::There { instance, .. } => seen.iter().find(|seen| seen.announcement.instance == instance),
            Place::Nowhere => None,
        };
        let owner = owner.map(|owner| {
            let said = &owner.announcement;
            json!({ "name": said.name, "instance": said.instance, "address": said.address })
        });
        let said = json!({ "stream": stream, "exists": exists, "unit": unit, "owner": owner });
        plain(200, "application/json").header("cache-control", "no-store").body(said.to_string())
    }
}

/// The node that a request names: `?node=NAME`.
fn named<'a>(request: &Request<'a>) -> Option<&'a str> {
    request.query.and_then(|query| query.strip_prefix("node="))
}

/// An operator's request that another node answers.
struct PassedOn(Forwarding);

impl Pending for PassedOn {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        match self.0.take(|| cx.waker()) {
            None => Poll::Wait,
            Some(Forwarded::Response(response)) => Poll::Ready(Reply::Now(response)),
            Some(Forwarded::Unreachable(why) | Forwarded::Broken(why)) => {
                let why = format!("the node that it is for does not answer: {why}");
                Poll::Ready(Reply::Now(refused(503, "node_unreachable", &why)))
            }
        }
    }
}

fn starting() -> Response {
    refused(503, "node_starting", "the node has not started yet; retry in a second")
}

/// A refusal of a node.
pub(crate) fn refused(status: u16, code: &str, message: &str) -> Response {
    let body = json!({ "error": { "code": code, "message": message } });
    let response = plain(status, "application/json").body(body.to_string());
    if status == 503 { response.header("retry-after", "1") } else { response }
}

impl Engine for ServedNode {
    fn routes(&self) -> Vec<Route> {
        let is_served = self.0.is_some();
        vec![
            Route { paths: Paths::Below(nodes::PATH), guard: Guard::Own { asks: true }, is_served, shown: ("", "") },
            Route {
                paths: Paths::Below(ADMIN),
                guard: Guard::Token(auth::need_of_admin),
                is_served,
                shown: if is_served { (ADMIN, "used by `thalweg node ls`, `drain` and `owner`") } else { ("", "") },
            },
        ]
    }

    fn on_head(&self, head: &Request<'_>, _: u64) -> Option<Response> {
        let is_of_nodes = !head.path.starts_with(ADMIN);
        let is_refused = is_of_nodes && self.0.as_ref().is_some_and(|served| !served.is_from_node(head));
        is_refused.then(nodes::not_a_node)
    }

    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let Some(served) = &self.0 else { return Reply::Now(plain(404, "text/plain")) };
        if let Some(reply) = served.of_subscriptions(request, cx) {
            return reply;
        }
        // The guard of this path has asked for a token; that of nodes has not.
        if let Some(below) = request.path.strip_prefix(ADMIN) {
            return served.admin(below, request);
        }
        if request.path != nodes::PATH {
            return Reply::Now(refused(404, "not_found", "nodes ask each other at /v1/node"));
        }
        let said = served.node.get().filter(|_| served.is_from_node(request));
        let said = said.map(|node| node.proofs().signed(&node.announcement()));
        Reply::Now(match said {
            Some(said) => plain(200, "application/json").body(said),
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
        let places: Vec<Place> =
            (0..node.units()).map(|unit| node.place(unit)).chain(served.place_of_shapes()).collect();
        let count = |is: fn(&Place) -> bool| places.iter().filter(|place| is(place)).count() as f64;
        page.add([
            (
                "node_units",
                Kind::Gauge,
                "Units in the bucket, of all nodes: those of streams, and one of shapes once there are any.",
                places.len() as f64,
            ),
            ("node_units_served", Kind::Gauge, "Units that this node serves.", count(|place| *place == Place::Here)),
            (
                "node_units_unserved",
                Kind::Gauge,
                "Units that no live node is known to own. Alert if it stays above 0.",
                count(|place| *place == Place::Nowhere),
            ),
            ("node_peers", Kind::Gauge, "Other nodes that live.", node.peers().len() as f64),
        ]);
        if let Some(share) = &served.streams.share {
            mirror::add_requests(page, &share.bucket);
        }
        served.keeper.metrics(page);
    }

    fn work(&self, background: &mut Background, rounds: &Arc<Rounds>) -> std::io::Result<()> {
        let Some(served) = &self.0 else { return Ok(()) };
        if let Some(share) = &served.streams.share {
            let (prefix, bucket) = (share.prefix.clone(), share.bucket.clone());
            background.every("prefix", bucket_unit::WATCH_EVERY, move || prefix.watch(&bucket))?;
        }
        served.start(rounds).map_err(|error| std::io::Error::other(format!("{error:#}")))
    }

    fn retire(&self) {
        let Some((served, node)) = self.0.as_ref().and_then(|served| Some((served, served.node.get()?))) else {
            return;
        };
        let has_heirs = || node.peers().iter().any(|peer| !peer.is_draining);
        let has_heirs_of_shapes = || node.peers().iter().any(|peer| !peer.is_draining && peer.has_shapes);
        if !has_heirs() {
            return;
        }
        node.drain(true);
        let until = Instant::now() + HAND_OVER_WITHIN;
        let is_handed_over = || {
            let own = node.announcement().units;
            let shapes = Some(node.shapes_unit()).filter(|_| served.shapes.is_some() && has_heirs_of_shapes());
            let mut to_go = (0..node.units()).chain(shapes);
            to_go.all(|unit| {
                own.iter().all(|(other, _)| *other != unit) && matches!(node.place(unit), Place::There { .. })
            })
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
