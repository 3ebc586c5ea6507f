//! What most tests use.

use std::fmt::Debug;
pub(crate) use std::time::{Duration, Instant};

pub(crate) use serde_json::{Value, json};
pub(crate) use throughline::core::contract::cause::Cause;

pub(crate) use crate::cluster::apiserver::THROUGHLINE;
pub(crate) use crate::cluster::faults::{Fault, Gate, Rule};
pub(crate) use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
pub(crate) use crate::cluster::follow::Task;
pub(crate) use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation, gateway, status};
pub(crate) use crate::cluster::process::Signal;
pub(crate) use crate::cluster::proxy::{Exchange, FaultProxy};
pub(crate) use crate::cluster::rest::{
    CONNECTORS, EVENTS, GATEWAYS, LEASES, NAMESPACES, PROXIES, ROUTES, Resource, Rest,
    run_concurrently,
};
pub(crate) use crate::cluster::testbed::{Cluster, Testbed, Topology};
pub(crate) use crate::cluster::throughline::{Setup, Throughline, command, in_sync};
pub(crate) use crate::cluster::{SOON, ensure, eventually, oracle, until, wait_until_idle};

/// Clusters with a fleet.
pub(crate) async fn seeded(topology: Topology, spec: Spec) -> (Testbed, Fleet) {
    let testbed = Testbed::start(topology).await;
    let fleet = Fleet::seed(&testbed, spec).await;
    (testbed, fleet)
}

/// Waits until everything has converged and nothing is written any longer; it is still right then.
pub(crate) async fn stays_converged(testbed: &Testbed) {
    oracle::converges(testbed).await;
    wait_until_idle(testbed).await;
    oracle::converged(testbed).await.unwrap();
}

/// Waits until this has the expected value.
pub(crate) async fn becomes<T: Debug + PartialEq>(
    what: &str,
    expected: T,
    found: impl AsyncFn() -> T,
) {
    eventually(what, SOON, async || {
        let found = found().await;
        ensure(found == expected, || format!("{found:?}"))
    })
    .await;
}

/// Writes an annotation of Connector `i` at the hub or an edge, as throughline does not, or removes it.
pub(crate) async fn annotate(
    (rest, fleet, i): (&Rest, &Fleet, usize),
    key: &str,
    value: Option<&str>,
) {
    let (namespace, name) = fleet.hub_key(i);
    rest.annotate(CONNECTORS, (namespace, &name), key, value).await.unwrap();
}

/// The lines of a log.
pub(crate) fn parsed(lines: &[String]) -> Vec<Value> {
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The writes of a resource that succeeded.
pub(crate) fn done<'a>(writes: &'a [Exchange], resource: &str) -> Vec<&'a Exchange> {
    let is_done = |w: &&Exchange| w.target.resource == resource && (200..300).contains(&w.code);
    writes.iter().filter(is_done).collect()
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
