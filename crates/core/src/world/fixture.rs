//! Clusters and objects for tests.

use std::sync::Arc;

use super::World;
use super::change::Change;
use super::cluster::{Cluster, Watch, WatchState};
use super::table::{Shown, Sighting};
use crate::contract::event::EventKind;
use crate::contract::settings::Settings;
use crate::data::ids::{Kind, ResourceVersion, Role, Uid};
use crate::data::object_ref::ClusterId;
use crate::data::objects::{
    Body, Meta, Object, UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE,
};
use crate::data::per_kind::PerKind;
use crate::data::time::UnixMillis;
use crate::status::trigger::NodeIds;
use serde_json::value::RawValue;

/// A cluster whose watches are all live. Without roles, it is not combined.
pub(crate) fn live_cluster(id: u32, name: &str) -> Cluster {
    let mut cluster = Cluster::new(ClusterId(id), name.into(), &[]);
    cluster.watches = PerKind::from_fn(|_| Watch {
        state: WatchState::Live,
        listed_since: Some(UnixMillis(1)),
        last_event_at: Some(UnixMillis(1_000_000)),
        ..Watch::default()
    });
    cluster
}

pub(crate) fn watched(version: u64) -> Sighting {
    let version = ResourceVersion::Number(version);
    Sighting { uid: Uid::default(), version, shown: Shown::Watched }
}

pub(crate) fn with_uid(uid: &str, sighting: Sighting) -> Sighting {
    Sighting { uid: Uid::new(uid), ..sighting }
}

pub(crate) struct Builder(Object);

pub(crate) fn connector(namespace: &str, name: &str, version: u64) -> Builder {
    Builder::new(namespace, name, version, Body::Connector { status: None })
}

pub(crate) fn proxy(namespace: &str, name: &str, version: u64, connectors: &[&str]) -> Builder {
    let connectors = connectors.iter().map(|name| (*name).into()).collect();
    Builder::new(namespace, name, version, Body::HttpProxy { connectors })
}

pub(crate) fn gateway(namespace: &str, name: &str, version: u64, class: &str) -> Builder {
    let body = Body::Gateway { class: class.into(), is_programmed: true };
    Builder::new(namespace, name, version, body)
}

pub(crate) fn namespace(name: &str, uid: &str, version: u64) -> Builder {
    Builder::new("", name, version, Body::Namespace).uid(uid)
}

impl Builder {
    fn new(namespace: &str, name: &str, version: u64, body: Body) -> Self {
        let meta = Meta {
            namespace: namespace.into(),
            name: name.into(),
            resource_version: version.to_string().into(),
            ..Meta::default()
        };
        Self(Object { meta, body })
    }

    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.0.meta.uid = uid.into();
        self
    }

    pub(crate) fn status(mut self, status: Option<&str>) -> Self {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        self.0.body = Body::Connector { status: status.map(raw) };
        self
    }

    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0.meta.annotations.set(key, Some(value));
        self
    }

    /// A hub Connector of this upstream Connector.
    pub(crate) fn of(mut self, cluster: &str, namespace: &str, name: &str) -> Self {
        let labels = &mut self.0.meta.labels;
        labels.set(UPSTREAM_CLUSTER_NAME, Some(&format!("cluster-{cluster}")));
        labels.set(UPSTREAM_NAMESPACE, Some(namespace));
        labels.set(UPSTREAM_NAME, Some(name));
        self
    }

    pub(crate) fn object(self) -> Object {
        self.0
    }
}

/// A world, and the time of its next event.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) now: UnixMillis,
}

impl Stage {
    pub(crate) fn new(settings: &Settings) -> Self {
        let world = World::new(settings.clone(), NodeIds::Real);
        Self { world, now: UnixMillis(1_000_000) }
    }

    /// Adds a cluster with complete, empty lists.
    pub(crate) fn add(&mut self, name: &str, roles: &[Role]) -> ClusterId {
        self.tell(EventKind::ClusterAdded { cluster: name.into(), roles: roles.to_vec() });
        for kind in Kind::ALL {
            self.list(name, kind, []);
        }
        self.world.id_of(&name.into()).unwrap()
    }

    pub(crate) fn list<const N: usize>(
        &mut self,
        cluster: &str,
        kind: Kind,
        objects: [Builder; N],
    ) -> Vec<Change> {
        let cluster = || cluster.into();
        self.tell(EventKind::ListStarted { cluster: cluster(), kind });
        for Builder(object) in objects {
            self.tell(EventKind::Listed { cluster: cluster(), object: Arc::new(object) });
        }
        self.tell(EventKind::ListFinished { cluster: cluster(), kind })
    }

    pub(crate) fn shows(&mut self, cluster: &str, Builder(object): Builder) -> Vec<Change> {
        let cluster = cluster.into();
        self.tell(EventKind::Applied { cluster, object: Arc::new(object) })
    }

    pub(crate) fn deletes(&mut self, cluster: &str, Builder(object): Builder) -> Vec<Change> {
        let cluster = cluster.into();
        self.tell(EventKind::Deleted { cluster, object: Arc::new(object) })
    }

    pub(crate) fn tell(&mut self, event: EventKind) -> Vec<Change> {
        self.now = self.now.plus(1);
        self.world.observe(&event, self.now).unwrap()
    }
}
