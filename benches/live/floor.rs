//! The floor to compare with: a plain watch upstream and a plain patch at the hub, nothing else.

use std::collections::HashMap;

use crate::cluster::fleet::Fleet;
use crate::cluster::follow::{Task, WatchUpdate, follow};
use crate::cluster::objects::UPSTREAM_STATUS;
use crate::cluster::rest::CONNECTORS;

/// Runs until dropped.
pub(crate) struct Floor {
    _watch: Task,
}

impl Floor {
    pub(crate) fn start(fleet: &Fleet) -> Self {
        let hub_connectors: HashMap<_, _> = (0..fleet.spec.connectors)
            .map(|i| {
                let (namespace, name) = fleet.hub_key(i);
                (name, namespace.to_owned())
            })
            .collect();
        let hub = fleet.hub.clone();
        let watch = follow(fleet.up.clone(), CONNECTORS, move |seen| {
            let WatchUpdate::Applied(object) = seen else { return };
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let Some(namespace) = hub_connectors.get(&name).cloned() else { return };
            let (hub, status) = (hub.clone(), object["status"].to_string());
            tokio::spawn(async move {
                let key = (&*namespace, &*name);
                hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some(&status)).await.unwrap();
            });
        });
        Self { _watch: watch }
    }
}
