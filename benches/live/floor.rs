//! The floor: a plain watch on the source, a plain patch of the sink, nothing else.

use std::collections::HashMap;

use crate::cluster::fleet::Fleet;
use crate::cluster::follow::{Seen, Task, follow};
use crate::cluster::objects::UPSTREAM_STATUS;
use crate::cluster::rest::CONNECTORS;

/// Runs until dropped.
pub(crate) struct Floor {
    _watch: Task,
}

impl Floor {
    pub(crate) fn start(fleet: &Fleet) -> Self {
        let replicas: HashMap<_, _> = (0..fleet.spec.connectors)
            .map(|i| {
                let (namespace, name) = fleet.replica(i);
                (name, namespace.to_owned())
            })
            .collect();
        let hub = fleet.hub.clone();
        let watch = follow(fleet.up.clone(), CONNECTORS, move |seen| {
            let Seen::Applied(object) = seen else { return };
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let Some(namespace) = replicas.get(&name).cloned() else { return };
            let (hub, status) = (hub.clone(), object["status"].to_string());
            tokio::spawn(async move {
                let key = (&*namespace, &*name);
                hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some(&status)).await.unwrap();
            });
        });
        Self { _watch: watch }
    }
}
