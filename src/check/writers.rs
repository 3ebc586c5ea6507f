//! Who else writes what throughline writes, as `managedFields` tell.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::ask::{Item, Writer};
use super::cluster::Look;
use super::election::{Held, Place, now, unreached};
use super::finding::{Group, and};
use crate::client::path;
use crate::config::Config;
use crate::core::ids::{Kind, Role};
use crate::core::objects::{FIELD_MANAGER, UPSTREAM_STATUS};
use crate::core::time::UnixMillis;
use crate::report::count;

/// Beyond the Lease's time so much may lie between two clocks.
const SLACK_MS: u64 = 10_000;

/// An older write tells nothing of who runs now.
const RECENT_MS: u64 = 600_000;

/// Values of one annotation, by who wrote them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Values {
    /// How many stand, by manager, without ours.
    others: BTreeMap<String, usize>,
    ours: usize,
    ours_last: Option<UnixMillis>,
}

impl Values {
    fn of(objects: Vec<Vec<Writer>>) -> Self {
        let mut values = Self::default();
        for Writer { manager, at } in objects.into_iter().flatten() {
            if manager == FIELD_MANAGER {
                values.ours += 1;
                values.ours_last = values.ours_last.max(at);
            } else {
                *values.others.entry(manager).or_default() += 1;
            }
        }
        values
    }
}

/// Looks at the hub's Connectors and the edges' Gateways.
pub(super) async fn look(config: &Config, looks: &[Look]) -> Group {
    let mut group = Group::new("other writers");
    let watched = looks.iter().flat_map(|look| {
        let hub = look.has(Role::Downstream).then_some((look, Kind::Connector, UPSTREAM_STATUS));
        let edge = look.has(Role::Edge).then_some((look, Kind::Gateway, &*config.touch.key));
        hub.into_iter().chain(edge)
    });
    let watched: Vec<_> = watched.collect();
    let all = watched.iter().map(|(look, kind, key)| values(look, *kind, key));
    for ((look, kind, key), values) in watched.iter().zip(join_all(all).await) {
        match values {
            Err(why) => {
                let what = format!("who writes {key} at {} can't be told", look.name());
                group.skipped("second-writer", what, why);
            }
            Ok(values) => {
                tell(&mut group, look.name(), *kind, key, &values);
                if *kind == Kind::Connector {
                    leaderless(&mut group, config, look, &values).await;
                }
            }
        }
    }
    group
}

/// Who wrote `key`; or why that can't be told.
async fn values(look: &Look, kind: Kind, key: &str) -> Result<Values, String> {
    if !look.reached {
        return Err(unreached(look));
    }
    let writers = |item: Item| Some(item.metadata.writers(key));
    let found = look.asked.list(path(kind, None), writers).await;
    found.map(Values::of).map_err(|error| error.to_string())
}

fn tell(group: &mut Group, cluster: &str, kind: Kind, key: &str, values: &Values) {
    if values.others.is_empty() {
        let by = match values.ours {
            0 => "nobody has written it yet".to_owned(),
            n => format!("throughline alone wrote it, to {}", count(n, "object")),
        };
        group.passed("second-writer", format!("{key} at {cluster}: {by}"));
        return;
    }
    let who: Vec<_> =
        values.others.iter().map(|(who, n)| format!("{who} ({})", count(*n, "object"))).collect();
    let remedy = match kind {
        Kind::Connector => {
            "a replicator that writes the same meaning does no harm; one that writes stale values is \
             written over, each time at the carrier's cost: let it leave this annotation alone"
        }
        _ => {
            "let nobody else write the trigger: a value that comes back may be one that Envoy \
             Gateway has translated already. Where it is the carrier, install the retention rule of \
             deploy/"
        }
    };
    group.warned(
        "second-writer",
        format!("{key} at {cluster} is written by {}", and(&who)),
        format!("managedFields of {kind}s; of throughline's writing: {}", values.ours),
        remedy,
    );
}

/// Another throughline that does not share the Lease: its writes go on while nobody holds this one.
async fn leaderless(group: &mut Group, config: &Config, look: &Look, values: &Values) {
    let Some(cluster) = config.election_cluster() else { return };
    if cluster.name.as_str() != look.name() {
        return;
    }
    let recent = |at: &UnixMillis| now(look).since(*at) < RECENT_MS;
    let Some(last) = values.ours_last.filter(recent) else { return };
    let Ok(place) = Place::of(config, look).await else { return };
    let Ok(object) = place.read(look).await else { return };
    let held = object.as_ref().map(Held::of);
    if !is_covered(last, held.as_ref()) {
        group.warned(
            "second-writer",
            format!(
                "a throughline wrote {UPSTREAM_STATUS} at {} without holding {place}",
                look.name()
            ),
            format!(
                "it wrote at {last}; {}",
                match held.and_then(|held| held.renewed) {
                    Some(renewed) => format!("the Lease was last renewed at {renewed}"),
                    None => "there is no such Lease, or nobody ever renewed it".to_owned(),
                }
            ),
            "where another one runs, let it share this Lease (leaderElection.leaseNamespace and \
             leaseName), or turn it off: two leaders write everything twice",
        );
    }
}

/// Whether a write fell into a time in which the Lease was held.
fn is_covered(written: UnixMillis, held: Option<&Held>) -> bool {
    let renewed = held.and_then(|held| Some(held.renewed?.plus(held.lease_ms)));
    renewed.is_some_and(|until| written <= until.plus(SLACK_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_write_after_the_lease_ended_is_not_covered() {
        let renewed = UnixMillis(1_795_252_772_000);
        let lease =
            json!({ "spec": { "renewTime": renewed.to_string(), "leaseDurationSeconds": 15 } });
        let held = Held::of(&lease);
        for (after_ms, covered) in [(0, true), (24_000, true), (26_000, false)] {
            assert_eq!(is_covered(renewed.plus(after_ms), Some(&held)), covered, "{after_ms}");
        }
        assert!(!is_covered(renewed, None));
    }
}
