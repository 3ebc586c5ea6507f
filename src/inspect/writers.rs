//! Data that the machine does not keep: each object's last writer by `managedFields`, and the liveness
//! in its annotation.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::contract::cause::Hop;
use crate::core::contract::event::EventKind;
use crate::core::data::ids::{ClusterName, Kind, NamespacedName};
use crate::core::data::objects::{FIELD_MANAGER, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use crate::core::view::fleet::{Fleet, HopView, LivenessView, Writer};

#[derive(Clone, Debug, Default)]
struct ObjectRecord {
    writer: Option<Writer>,
    /// The liveness in the status annotation.
    annotation: Option<LivenessView>,
    is_nudged: bool,
    is_karmadas: bool,
    /// The platform's stamp when the object was first observed.
    first_stamp: Option<String>,
}

/// Connectors and Gateways as last observed.
#[derive(Clone, Debug, Default)]
pub struct Writers {
    objects: BTreeMap<(ClusterName, Kind, NamespacedName), ObjectRecord>,
    nudge_key: String,
}

impl Writers {
    /// `nudge_key` is the annotation that nudges the carrier.
    pub fn new(nudge_key: &str) -> Self {
        Self { nudge_key: nudge_key.to_owned(), ..Self::default() }
    }

    pub fn observe(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object } => {
                let kind = object.kind();
                if matches!(kind, Kind::Connector | Kind::Gateway) {
                    let key = (cluster.clone(), kind, object.meta.key());
                    let first_stamp = match self.objects.remove(&key) {
                        Some(before) => before.first_stamp,
                        None => object.meta.annotations.get(PLATFORM_KEY).map(str::to_owned),
                    };
                    let record = ObjectRecord {
                        writer: last_writer(object),
                        annotation: object
                            .meta
                            .annotations
                            .get(UPSTREAM_STATUS)
                            .map(LivenessView::of),
                        is_nudged: object.meta.annotations.get(&self.nudge_key).is_some(),
                        is_karmadas: object.meta.is_karmadas(),
                        first_stamp,
                    };
                    self.objects.insert(key, record);
                }
            }
            EventKind::Deleted { cluster, object } => {
                self.objects.remove(&(cluster.clone(), object.kind(), object.meta.key()));
            }
            _ => {}
        }
    }

    /// Removes from an observed Gateway the evidence that makes a machine doubt its trigger and touch
    /// it again: its `managedFields`, and stamps after the first. `status` and `trace` show such a
    /// Gateway as announced.
    pub fn without_doubts(&self, mut kind: EventKind) -> EventKind {
        let (EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object }) =
            &mut kind
        else {
            return kind;
        };
        if object.kind() == Kind::Gateway {
            let record = self.objects.get(&(cluster.clone(), Kind::Gateway, object.meta.key()));
            let stamp = record.and_then(|record| record.first_stamp.as_deref());
            let meta = &mut Arc::make_mut(object).meta;
            meta.managed_fields.clear();
            meta.annotations.set(PLATFORM_KEY, stamp);
        }
        kind
    }

    /// Replaces the last writer of an object with the owner of the field that a hop shows.
    pub fn set_writer(
        &mut self,
        cluster: &ClusterName,
        kind: Kind,
        object: &NamespacedName,
        writer: Writer,
    ) {
        let key = (cluster.clone(), kind, object.clone());
        self.objects.entry(key).or_default().writer = Some(writer);
    }

    /// Adds to each hop the last writer of its object, and the value of its annotation.
    pub fn add_to(&self, fleet: &mut Fleet) {
        let hops = fleet.connectors.iter_mut().flat_map(|connector| &mut connector.hops);
        for hop in hops {
            let Some(record) = self.record(hop) else { continue };
            hop.writer.clone_from(&record.writer);
            if hop.hop == Hop::Mirrored && hop.says.is_none() {
                hop.says.clone_from(&record.annotation);
            }
        }
    }

    fn record(&self, hop: &HopView) -> Option<&ObjectRecord> {
        self.objects.get(&(hop.cluster.clone(), hop.kind, hop.object.clone()?))
    }

    /// Whether the hub Connector of a mirrored hop has a nudge.
    pub(super) fn is_nudged(&self, hop: &HopView) -> bool {
        self.record(hop).is_some_and(|record| record.is_nudged)
    }

    /// Whether Karmada carries the hub Connector of a mirrored hop.
    pub(super) fn is_karmadas(&self, hop: &HopView) -> bool {
        self.record(hop).is_some_and(|record| record.is_karmadas)
    }
}

/// The last writer of an object. Slim objects do not keep the fields of an entry; but the trigger is
/// the only field of a Gateway that throughline writes.
fn last_writer(object: &Object) -> Option<Writer> {
    let of_field = object.kind() == Kind::Gateway;
    let fields = object.meta.managed_fields.iter();
    let fields = fields.filter(|entry| !of_field || entry.manager == FIELD_MANAGER);
    let last = fields.max_by_key(|entry| entry.time)?;
    Some(Writer { manager: last.manager.clone(), at_ms: last.time?, of_field })
}
