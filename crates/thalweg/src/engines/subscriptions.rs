//! The engine of subscriptions. It uses the streams, and its logs are in their kernel unit.

use super::streams::ServedStreams;
use anyhow::Context as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use thalweg_host::auth;
use thalweg_host::background;
use thalweg_host::config::WebhookTargets;
use thalweg_host::metrics::{Kind, Page};
use thalweg_host::{Boot, Engine, Guard, Paths, Route, plain};
use thalweg_http::{Context, Reply, Request};
use thalweg_subscriptions::{Keys, Subscriptions, SubscriptionsConfig, Targets};

/// The file in the data folder that holds the keys with which webhooks are signed.
const KEYS: &str = "subscriptions.keys";

/// `None` on a node.
pub(crate) struct ServedSubscriptions(Option<Arc<Subscriptions>>);

const NOT_ON_NODES: &str = r#"{"error":{"code":"NOT_ON_NODES","message":"nodes do not serve subscriptions yet: a server without --node does"}}"#;

pub(crate) fn open(boot: Boot<'_>, on: &ServedStreams) -> anyhow::Result<ServedSubscriptions> {
    let Boot { config, folder, .. } = boot;
    if config.is_node() {
        return Ok(ServedSubscriptions(None));
    }
    folder.hold(KEYS);
    let keys = Keys::open(&folder.path().join(KEYS)).context("cannot open the keys of webhooks")?;
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
    let (logs, streams) = (Arc::clone(&on.kernel.logs), Arc::clone(&on.streams));
    // Ids of wakes and jitter: they need to differ, not to be secret.
    let random = RandomState::new();
    let mut n = 0_u64;
    let random = Box::new(move || {
        n += 1;
        random.hash_one(n)
    });
    let subscriptions = Subscriptions::open(logs, streams, settings, keys, background::now, random)
        .context("cannot open the subscriptions")?;
    let counted = Arc::clone(&subscriptions);
    // A subscription is a log too.
    on.leave_out(move || counted.stats().subscriptions);
    Ok(ServedSubscriptions(Some(subscriptions)))
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
        match &self.0 {
            Some(subscriptions) => subscriptions.handle(request, cx),
            None => Reply::Now(plain(501, "application/json").body(NOT_ON_NODES)),
        }
    }

    #[rustfmt::skip]
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    fn metrics(&self, page: &mut Page) {
        use Kind::{Counter, Gauge};
        let f = |n: u64| n as f64;
        let Some(subscriptions) = &self.0 else { return };
        let s = subscriptions.stats();
        page.add([
            ("subscriptions", Gauge, "Subscriptions that exist.", f(s.subscriptions)),
            ("subscription_streams", Gauge, "Streams that subscriptions are linked to, counted for each.", f(s.links)),
            ("subscription_streams_refused_total", Counter, "Streams that matched a pattern but were over the subscription's limit.", f(s.unlinked)),
            ("subscription_leases", Gauge, "Wakes in flight that a lease bounds.", f(s.leases)),
            ("subscription_retries", Gauge, "Subscriptions that wait to try again after a failed wake.", f(s.retries)),
            ("webhook_deliveries_total", Counter, "Webhook deliveries that the receiver took.", f(s.delivered)),
            ("wake_failures_total", Counter, "Webhook deliveries that failed, and wakes without a wake stream.", f(s.failed)),
        ]);
    }

    fn stop(&self) {
        self.0.iter().for_each(|subscriptions| subscriptions.stop());
    }
}
