//! The metrics that code updates as it runs: names, labels, buckets. Other modules hold those that are
//! computed at each scrape.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{EventDelivery, ReloadResult};
use crate::build_info;
use crate::core::contract::action::Verb;
use crate::core::contract::cause::{Cause, Hop};
use crate::core::contract::event::OutcomeName;
use crate::core::data::ids::Kind;

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;

/// A hop takes milliseconds unless it is stuck.
const HOP_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
/// An action waits in a queue first.
const ACTION_BUCKETS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// An event in the machine takes microseconds.
const LOOP_BUCKETS: [f64; 11] =
    [2e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 5e-3, 2.5e-2, 1e-1];

#[derive(Debug)]
pub(super) struct Counts {
    build: Family<Labels<2>, ConstGauge>,
    pub(super) causes: Counters<1>,
    pub(super) hops: Family<Labels<1>, Histogram>,
    pub(super) actions: Counters<2>,
    pub(super) action_time: Family<Labels<1>, Histogram>,
    pub(super) queue: Family<[(&'static str, String); 1], Gauge>,
    pub(super) watch_restarts: Counters<2>,
    pub(super) watch_events: Counters<1>,
    pub(super) loop_time: Histogram,
    pub(super) log_lines_lost: Counter,
    pub(super) events: Counters<1>,
    pub(super) config_reloads: Counters<1>,
}

/// A family with these series from the start: Prometheus can't compute a rate before a counter's first
/// sample.
fn family<const N: usize, M>(
    new: fn() -> M,
    series: impl IntoIterator<Item = Labels<N>>,
) -> Family<Labels<N>, M> {
    let family = Family::new_with_constructor(new);
    series.into_iter().for_each(|labels| drop(family.get_or_create(&labels)));
    family
}

fn counters<const N: usize>(series: impl IntoIterator<Item = Labels<N>>) -> Counters<N> {
    family(Counter::default, series)
}

impl Default for Counts {
    fn default() -> Self {
        let version = [("version", build_info::VERSION), ("commit", build_info::COMMIT)];
        let verbs = Verb::ALL.map(|verb| [("verb", verb.as_str())]);
        let outcomes = OutcomeName::ALL.map(|outcome| ("outcome", outcome.as_str()));
        let kinds = Kind::ALL.map(|kind| [("kind", kind.as_str())]);
        let ways = [("by", "list"), ("by", "resume")];
        let hops = Hop::TIMED.map(|hop| [("hop", hop.as_str())]);
        Self {
            build: family(|| ConstGauge::new(1), [version]),
            causes: counters(Cause::ALL.map(|cause| [("cause", cause.as_str())])),
            hops: family(|| Histogram::new(HOP_BUCKETS), hops),
            actions: counters(verbs.iter().flat_map(|[verb]| outcomes.map(|of| [*verb, of]))),
            action_time: family(|| Histogram::new(ACTION_BUCKETS), verbs),
            queue: Family::default(),
            watch_restarts: counters(kinds.iter().flat_map(|[kind]| ways.map(|by| [*kind, by]))),
            watch_events: counters(kinds),
            loop_time: Histogram::new(LOOP_BUCKETS),
            log_lines_lost: Counter::default(),
            events: counters(EventDelivery::ALL.map(|event| [("result", event.as_str())])),
            config_reloads: counters(ReloadResult::ALL.map(|reload| [("result", reload.as_str())])),
        }
    }
}

impl Counts {
    pub(super) fn scrape(&self, scrape: &mut Registry) {
        scrape.register("throughline_build_info", "The running version", self.build.clone());
        scrape.register("throughline_causes", "How often a cause began", self.causes.clone());
        let help = "Time that a change took for a hop, where this instance saw it begin and end";
        scrape.register("throughline_hop_seconds", help, self.hops.clone());
        let help = "Actions that ended, by verb and outcome";
        scrape.register("throughline_actions", help, self.actions.clone());
        let help = "Time from an action's decision to its outcome, by verb";
        scrape.register("throughline_action_seconds", help, self.action_time.clone());
        scrape.register("workqueue_depth", "Writes that wait, by cluster", self.queue.clone());
        let help = "Watches that were restarted, by a list or where they were lost";
        scrape.register("throughline_watch_restarts", help, self.watch_restarts.clone());
        let help = "Changes that watches brought, without lists and bookmarks";
        scrape.register("throughline_watch_events", help, self.watch_events.clone());
        let help = "Time that the machine took for an event";
        scrape.register("throughline_loop_seconds", help, self.loop_time.clone());
        let help = "Lines that were not written to the event log";
        scrape.register("throughline_event_log_lines_lost", help, self.log_lines_lost.clone());
        scrape.register("throughline_events", "Kubernetes Events by result", self.events.clone());
        let help = "Changed configurations that were applied or refused";
        scrape.register("throughline_config_reloads", help, self.config_reloads.clone());
    }
}
