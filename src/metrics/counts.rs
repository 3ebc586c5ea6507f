//! The metrics that code updates as it runs: names, labels, buckets. Other modules hold those that are
//! collected at each scrape.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use super::{EventDelivery, ReloadResult};
use crate::build_info;
use crate::core::contract::action::Verb;
use crate::core::contract::cause::Hop;
use crate::core::contract::event::OutcomeName;

type Labels<const N: usize> = [(&'static str, &'static str); N];
pub(super) type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

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
    pub(super) connectors: Gauges<1>,
    pub(super) hops: Histograms<1>,
    pub(super) actions: Counters<2>,
    pub(super) action_time: Histograms<1>,
    pub(super) queue: Family<[(&'static str, String); 1], Gauge>,
    pub(super) clusters: Gauges<1>,
    pub(super) loop_time: Histogram,
    pub(super) log_lines_lost: Counter,
    pub(super) events: Counters<1>,
    pub(super) config_reloads: Counters<1>,
}

/// Registers a metric and returns it.
pub(super) fn add<M: Metric + Clone>(r: &mut Registry, name: &str, help: &str, metric: M) -> M {
    r.register(name, help, metric.clone());
    metric
}

impl Counts {
    pub(super) fn new(r: &mut Registry) -> Self {
        let build: Gauges<2> = Family::default();
        build
            .get_or_create(&[("version", build_info::VERSION), ("commit", build_info::COMMIT)])
            .set(1);
        add(r, "throughline_build_info", "The running version", build);
        let hops = Family::new_with_constructor((|| Histogram::new(HOP_BUCKETS)) as fn() -> _);
        let times = Family::new_with_constructor((|| Histogram::new(ACTION_BUCKETS)) as fn() -> _);
        let counts = Self {
            connectors: add(r, "throughline_connectors", "Connectors by state", Family::default()),
            hops: add(
                r,
                "throughline_hop_seconds",
                "Time that a change took for a hop, where this instance saw it begin and end",
                hops,
            ),
            actions: add(
                r,
                "throughline_actions",
                "Actions that ended, by verb and outcome",
                Family::default(),
            ),
            action_time: add(
                r,
                "throughline_action_seconds",
                "Time from an action's decision to its outcome, by verb",
                times,
            ),
            queue: add(r, "workqueue_depth", "Writes that wait, by cluster", Family::default()),
            clusters: add(r, "throughline_clusters", "Clusters by state", Family::default()),
            loop_time: add(
                r,
                "throughline_loop_seconds",
                "Time that the machine took for an event",
                Histogram::new(LOOP_BUCKETS),
            ),
            log_lines_lost: add(
                r,
                "throughline_event_log_lines_lost",
                "Lines that were not written to the event log",
                Counter::default(),
            ),
            events: add(r, "throughline_events", "Kubernetes Events by result", Family::default()),
            config_reloads: add(
                r,
                "throughline_config_reloads",
                "Changed configurations that were applied or refused",
                Family::default(),
            ),
        };
        counts.init_to_zero();
        counts
    }

    /// Creates all series at zero: Prometheus can't compute a rate before a counter's first sample.
    fn init_to_zero(&self) {
        for hop in Hop::ALL {
            drop(self.hops.get_or_create(&[("hop", hop.as_str())]));
        }
        for verb in Verb::ALL.map(Verb::as_str) {
            drop(self.action_time.get_or_create(&[("verb", verb)]));
            for outcome in OutcomeName::ALL {
                drop(self.actions.get_or_create(&[("verb", verb), ("outcome", outcome.as_str())]));
            }
        }
        for delivery in EventDelivery::ALL {
            drop(self.events.get_or_create(&[("result", delivery.as_str())]));
        }
        for result in ReloadResult::ALL {
            drop(self.config_reloads.get_or_create(&[("result", result.as_str())]));
        }
    }
}
