//! The metrics that code updates as it runs: names, labels, buckets. The other modules hold those
//! that are collected at each scrape.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use super::notes::DEFERRED;
use crate::build_info;
use crate::core::contract::action::Verb;
use crate::core::contract::note::Hop;
use crate::core::data::ids::{ClusterName, Kind};
use crate::metrics::ReloadResult;

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
/// With labels that are not known beforehand, such as names of clusters.
pub(super) type NamedGauges<const N: usize> = Family<[(&'static str, String); N], Gauge>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// `name` in the metrics of client-go's work queues; there is one queue.
pub(super) const QUEUE: (&str, &str) = ("name", "actions");
/// `name` in the metrics of leader elections; there is one lock.
pub(super) const LEADER: (&str, &str) = ("name", "throughline");
/// A hop takes milliseconds unless it is stuck.
const HOP_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
/// For an attempt at an action.
const REQUEST_BUCKETS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// An event in the machine takes microseconds.
const EVENT_BUCKETS: [f64; 11] =
    [2e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 5e-3, 2.5e-2, 1e-1];

#[derive(Debug)]
pub(super) struct Instruments {
    pub(super) reconciles: Counters<2>,
    pub(super) reconcile_errors: Counters<1>,
    pub(super) reconcile_time: Histograms<1>,
    pub(super) queue_depth: Gauges<1>,
    pub(super) queue_adds: Counters<2>,
    pub(super) queue_waited: Histograms<2>,
    pub(super) queue_worked: Histograms<2>,
    pub(super) connections: Gauges<1>,
    pub(super) in_flight: Gauge,
    pub(super) writes_waiting: NamedGauges<2>,
    pub(super) writes_hung: NamedGauges<2>,
    pub(super) leader: Gauges<1>,
    pub(super) leadership_changes: Counter,
    pub(super) hops: Histograms<1>,
    pub(super) phases: Gauges<1>,
    pub(super) paused: NamedGauges<2>,
    pub(super) clusters: Gauges<1>,
    pub(super) orphans: Gauges<1>,
    pub(super) held: NamedGauges<2>,
    pub(super) deletes_held: NamedGauges<1>,
    pub(super) mirrors_deferred: Counters<1>,
    pub(super) touches_waiting: NamedGauges<1>,
    pub(super) stalls_open: Gauges<1>,
    pub(super) stalls: Counters<1>,
    pub(super) anomalies: Counters<1>,
    pub(super) actions: Counters<2>,
    pub(super) events: Histogram,
    pub(super) log_lines_lost: Counter,
    pub(super) config_reloads: Counters<1>,
    pub(super) config_refused: Gauge,
    pub(super) config_loaded: Gauge,
    pub(super) events_posted: Counter,
    pub(super) events_failed: Counter,
    pub(super) events_dropped: Counter,
}

/// Registers a metric and returns it.
fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn request_times<const N: usize>() -> Histograms<N> {
    Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS))
}

fn hop_times() -> Histograms<1> {
    Family::new_with_constructor(|| Histogram::new(HOP_BUCKETS))
}

pub(super) const fn by(verb: Verb) -> (&'static str, &'static str) {
    ("controller", verb.as_str())
}

/// The labels of the writes of one kind to one cluster.
pub(super) fn lane(cluster: &ClusterName, kind: Kind) -> [(&'static str, String); 2] {
    [("cluster", cluster.to_string()), ("kind", kind.to_string())]
}

impl Instruments {
    pub(super) fn new(r: &mut Registry) -> Self {
        let build: Gauges<2> = Family::default();
        build
            .get_or_create(&[("version", build_info::VERSION), ("commit", build_info::COMMIT)])
            .set(1);
        add(r, "throughline_build_info", "The running version", build);
        let instruments = Self {
            reconciles: add(
                r,
                "controller_runtime_reconcile",
                "Attempts at actions, by verb and result; requeue: failed, to be repeated",
                Counters::default(),
            ),
            reconcile_errors: add(
                r,
                "controller_runtime_reconcile_errors",
                "Actions whose last attempt failed or was refused, by verb",
                Counters::default(),
            ),
            reconcile_time: add(
                r,
                "controller_runtime_reconcile_time_seconds",
                "Time from an action's first attempt to its outcome, by verb",
                request_times(),
            ),
            queue_depth: add(r, "workqueue_depth", "Actions in the queue", Gauges::default()),
            queue_adds: add(
                r,
                "workqueue_adds",
                "Actions added to the queue, by verb",
                Counters::default(),
            ),
            queue_waited: add(
                r,
                "workqueue_queue_duration_seconds",
                "Time that an action waited for its attempt, by verb",
                request_times(),
            ),
            queue_worked: add(
                r,
                "workqueue_work_duration_seconds",
                "Time that an attempt at an action took, by verb",
                request_times(),
            ),
            connections: add(
                r,
                "throughline_connections",
                "Open connections to API servers, by protocol",
                Gauges::default(),
            ),
            in_flight: add(
                r,
                "throughline_actions_under_way",
                "Actions in flight",
                Gauge::default(),
            ),
            writes_waiting: add(
                r,
                "throughline_writes_waiting",
                "Actions that wait for their turn, by cluster and kind",
                Family::default(),
            ),
            writes_hung: add(
                r,
                "throughline_writes_hung",
                "1 while there are writes and they time out, so that one at a time is sent, by cluster and kind",
                Family::default(),
            ),
            leader: add(
                r,
                "leader_election_master_status",
                "1 while this instance may mirror, nudge and delete",
                Gauges::default(),
            ),
            leadership_changes: add(
                r,
                "throughline_leadership_changes",
                "How often this instance became leader or stopped being it",
                Counter::default(),
            ),
            hops: add(
                r,
                "throughline_hop_seconds",
                "Time that a connector's change took from one hop to the next, where both were seen",
                hop_times(),
            ),
            phases: add(
                r,
                "throughline_connectors",
                "Connectors, by the first hop that is not complete",
                Gauges::default(),
            ),
            paused: add(
                r,
                "throughline_paused_objects",
                "Objects that a person has paused by annotation, so that nothing is written to them",
                NamedGauges::default(),
            ),
            clusters: add(
                r,
                "throughline_clusters",
                "Clusters, by what became of them",
                Gauges::default(),
            ),
            orphans: add(
                r,
                "throughline_orphans",
                "Hub routes that are or may be orphans, by the reason that keeps them",
                Gauges::default(),
            ),
            held: add(
                r,
                "throughline_annotations_held",
                "Hub Connectors whose annotation is kept although upstream seems to say otherwise",
                Family::default(),
            ),
            deletes_held: add(
                r,
                "throughline_orphan_deletes_held",
                "1 while so many routes of an upstream cluster are orphans that deletes are held",
                Family::default(),
            ),
            touches_waiting: add(
                r,
                "throughline_touches_waiting",
                "Touches of an edge that are due and wait, because it takes no more at a time",
                Family::default(),
            ),
            stalls_open: add(
                r,
                "throughline_stalls_open",
                "Hops that are late now",
                Gauges::default(),
            ),
            stalls: add(r, "throughline_stalls", "Hops that were late", Counters::default()),
            anomalies: add(
                r,
                "throughline_anomalies",
                "Conditions that need a person's attention; the log has the details",
                Counters::default(),
            ),
            actions: add(
                r,
                "throughline_actions",
                "Actions that ended, by verb and outcome",
                Counters::default(),
            ),
            mirrors_deferred: add(
                r,
                "throughline_mirrors_deferred",
                "Mirrors that routed nothing and waited for that, by outcome",
                Counters::default(),
            ),
            events: add(
                r,
                "throughline_event_seconds",
                "Time that the machine took for an event",
                Histogram::new(EVENT_BUCKETS),
            ),
            log_lines_lost: add(
                r,
                "throughline_event_log_lines_lost",
                "Lines that were not written to the event log",
                Counter::default(),
            ),
            config_reloads: add(
                r,
                "throughline_config_reloads",
                "Changed configurations that were applied or refused",
                Counters::default(),
            ),
            config_refused: add(
                r,
                "throughline_config_refused",
                "1 while the configuration file is refused and the former configuration stays",
                Gauge::default(),
            ),
            config_loaded: add(
                r,
                "throughline_config_loaded_timestamp_seconds",
                "When the configuration in force was loaded, in Unix time",
                Gauge::default(),
            ),
            events_posted: add(
                r,
                "throughline_events_posted",
                "Kubernetes Events that were created, or counted on an existing Event",
                Counter::default(),
            ),
            events_failed: add(
                r,
                "throughline_events_failed",
                "Kubernetes Events that an API server did not accept",
                Counter::default(),
            ),
            events_dropped: add(
                r,
                "throughline_events_dropped",
                "Kubernetes Events that were not sent: too many, or forbidden a moment ago",
                Counter::default(),
            ),
        };
        instruments.init_to_zero();
        instruments
    }

    /// Creates all series at zero: Prometheus can't compute a rate before a counter's first sample.
    fn init_to_zero(&self) {
        for verb in Verb::ALL {
            for result in ["success", "error", "requeue"] {
                let _ = self.reconciles.get_or_create(&[by(verb), ("result", result)]);
            }
            let _ = self.reconcile_errors.get_or_create(&[by(verb)]);
            let _ = self.queue_adds.get_or_create(&[QUEUE, by(verb)]);
        }
        for hop in [Hop::Mirrored, Hop::Arrived, Hop::Touched] {
            let _ = self.hops.get_or_create(&[("hop", hop.as_str())]);
        }
        for hop in [Hop::Mirrored, Hop::Arrived, Hop::Touched]
            .map(Hop::as_str)
            .into_iter()
            .chain([DEFERRED])
        {
            let _ = self.stalls.get_or_create(&[("hop", hop)]);
            let _ = self.stalls_open.get_or_create(&[("hop", hop)]);
        }
        let _ = self.mirrors_deferred.get_or_create(&[("outcome", "applied")]);
        for result in ReloadResult::ALL {
            let _ = self.config_reloads.get_or_create(&[("result", result.as_str())]);
        }
        for protocol in ["http/1.1", "h2"] {
            let _ = self.connections.get_or_create(&[("protocol", protocol)]);
        }
        let _ = self.queue_depth.get_or_create(&[QUEUE]);
        let _ = self.leader.get_or_create(&[LEADER]);
    }
}
