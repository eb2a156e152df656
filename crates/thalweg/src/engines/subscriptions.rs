//! The engine of subscriptions. It uses the streams, and its logs are in their kernel unit. On a node each unit of
//! streams has subscriptions, and requests go to the node that owns the unit.

use super::streams::ServedStreams;
use crate::nodes::{Door, Served, ServedNode, news, not_here};
use anyhow::Context as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use thalweg_host::auth;
use thalweg_host::background::{self, Background};
use thalweg_host::config::WebhookTargets;
use thalweg_host::metrics::{Kind, Page};
use thalweg_host::{Boot, Engine, Guard, Paths, Route};
use thalweg_http::{Context, Pending, Poll, Reply, Request};
use thalweg_rounds::Rounds;
use thalweg_subscriptions::spread::Spread;
use thalweg_subscriptions::{Keys, Subscriptions, SubscriptionsConfig, Targets, Watched};

/// The file in the data folder that holds the keys with which webhooks are signed; on nodes, the object of the bucket.
const KEYS: &str = "subscriptions.keys";

/// How often the desk of a node is looked after.
const DESK_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct ServedSubscriptions {
    subscriptions: Arc<Subscriptions>,
    on_node: Option<OnNode>,
}

/// What subscriptions need beside themselves on a node.
struct OnNode {
    served: Arc<Served>,
    spread: Arc<Spread>,
    door: Arc<dyn Door>,
}

/// The door of subscriptions.
struct ToSubscriptions(Arc<Subscriptions>);

impl Door for ToSubscriptions {
    fn handle_in(&self, unit: u64, request: &Request<'_>, cx: &mut Context<'_>) -> Option<Reply> {
        Some(match self.0.handle_in(unit, request, cx)? {
            Reply::Later(pending) => Reply::Later(Box::new(Here(pending))),
            reply => reply,
        })
    }
}

/// An answer of the driver. A request that it meets after the unit has gone is for the next owner.
struct Here(Box<dyn Pending>);

impl Pending for Here {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        match self.0.poll(cx) {
            Poll::Ready(Reply::Now(response)) if response.status == 421 => Poll::Ready(Reply::Now(not_here())),
            polled => polled,
        }
    }
}

pub(crate) fn open(boot: Boot<'_>, on: &ServedStreams, node: &ServedNode) -> anyhow::Result<ServedSubscriptions> {
    let Boot { config, folder, .. } = boot;
    let settings = SubscriptionsConfig {
        public_url: config.public_url.clone(),
        https: config.speaks_tls(),
        targets: match config.webhook_targets {
            WebhookTargets::Public => Targets::Public,
            WebhookTargets::Local => Targets::Local,
            WebhookTargets::Any => Targets::Any,
        },
        subscriptions_max: config.max_subscriptions,
        streams_max: config.max_subscription_streams,
        deliveries_max: config.webhook_threads,
        delivery_timeout: config.webhook_timeout.0,
        ..SubscriptionsConfig::default()
    };
    let streams = Arc::clone(&on.streams);
    // Ids of wakes and jitter: they need to differ, not to be secret.
    let random = RandomState::new();
    let mut n = 0_u64;
    let random = Box::new(move || {
        n += 1;
        random.hash_one(n)
    });
    if let Some(served) = node.served() {
        let keys = served.settle_once(KEYS, Keys::fresh()?)?;
        let keys = Keys::of_text(&format!("the object `{KEYS}` of the bucket"), &keys)?;
        let spread =
            Spread::start(on.units(), Arc::new(news::Desks::of(served))).context("cannot follow other nodes")?;
        let (watched, teller) = (Arc::clone(&spread) as Arc<dyn Watched>, news::teller(served));
        let subscriptions = Subscriptions::on_node(streams, watched, teller, settings, keys, background::now, random)
            .context("cannot start the subscriptions")?;
        served.use_subscriptions(&subscriptions);
        let (served, door) = (Arc::clone(served), Arc::new(ToSubscriptions(Arc::clone(&subscriptions))));
        return Ok(ServedSubscriptions { subscriptions, on_node: Some(OnNode { served, spread, door }) });
    }
    folder.hold(KEYS);
    let keys = Keys::open(&folder.path().join(KEYS)).context("cannot open the keys of webhooks")?;
    let logs = Arc::clone(&on.kernel.logs);
    let subscriptions = Subscriptions::open(logs, streams, settings, keys, background::now, random)
        .context("cannot open the subscriptions")?;
    let counted = Arc::clone(&subscriptions);
    // A subscription is a log too.
    on.leave_out(move || counted.stats().subscriptions);
    Ok(ServedSubscriptions { subscriptions, on_node: None })
}

impl Engine for ServedSubscriptions {
    fn routes(&self) -> Vec<Route> {
        let route = |paths, shown| Route { paths, guard: Guard::Token(auth::need_of_streams), is_served: true, shown };
        let help = "subscriptions: PUT creates, GET asks, DELETE removes; workers are woken when streams change";
        vec![
            route(Paths::Below("/v1/stream/__ds/subscriptions"), ("/v1/stream/__ds/subscriptions/ID", help)),
            route(Paths::Exactly("/v1/stream/__ds/jwks.json"), ("", "")),
        ]
    }

    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let unit = self.on_node.as_ref().and_then(|_| self.subscriptions.unit_of(request.path));
        match self.on_node.as_ref().zip(unit) {
            Some((node, unit)) => node.served.route_to(&node.door, unit, request, cx),
            // The keys are everybody's, and what names no subscription is refused in the same words everywhere.
            None => self.subscriptions.handle(request, cx),
        }
    }

    #[rustfmt::skip]
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    fn metrics(&self, page: &mut Page) {
        use Kind::{Counter, Gauge};
        let f = |n: u64| n as f64;
        let s = self.subscriptions.stats();
        page.add([
            ("subscriptions", Gauge, "Subscriptions that exist.", f(s.subscriptions)),
            ("subscription_streams", Gauge, "Streams that subscriptions are linked to, counted for each.", f(s.links)),
            ("subscription_streams_refused_total", Counter, "Streams that matched a pattern but were over the subscription's limit.", f(s.unlinked)),
            ("subscription_leases", Gauge, "Wakes in flight that a lease bounds.", f(s.leases)),
            ("subscriptions_damaged", Gauge, "Subscriptions on nodes whose logs cannot be read.", f(s.damaged)),
            ("subscription_retries", Gauge, "Subscriptions that wait to try again after a failed wake.", f(s.retries)),
            ("webhook_deliveries_total", Counter, "Webhook deliveries that the receiver took.", f(s.delivered)),
            ("wake_failures_total", Counter, "Webhook deliveries that failed, and wakes without a wake stream.", f(s.failed)),
        ]);
    }

    /// Has the desk of a node record changes only while somebody asks for them.
    fn work(&self, background: &mut Background, _: &Arc<Rounds>) -> std::io::Result<()> {
        let Some(OnNode { served, .. }) = &self.on_node else { return Ok(()) };
        let served = Arc::clone(served);
        background.every("desk", DESK_EVERY, move || served.tick_desk())
    }

    fn stop(&self) {
        self.subscriptions.stop();
        self.on_node.iter().for_each(|node| node.spread.stop());
    }
}
