//! Hub Connectors and routes: what their labels name, and what a rule reads of them.

use std::sync::Arc;

use super::Observation;
use crate::data::ids::{Kind, Role};
use crate::data::name::NamespacedName;
use crate::data::object_ref::ObjectRef;
use crate::data::objects::Object;
use crate::next::subject::Subject;
use crate::next::world::World;
use crate::next::world::change::{Change, HubChange, HubConnectorSeen};
use crate::next::world::hub::{HubConnector, Route, UpstreamRef};
use crate::next::world::table::{Put, Shown};
use crate::status::liveness::StatusDigest;

pub(super) fn on_connector(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    object: &Arc<Object>,
    shown: Shown,
) -> Option<()> {
    observed.tier(Role::Hub)?;
    let at = observed.object(Kind::Connector, name);
    let seen = observed.world.read_hub_connector(&at, object);
    let sighting = observed.sighting(object, shown)?.with(seen.clone());
    let connectors = &mut observed.cluster_mut()?.hub_connectors;
    let subject = Subject::HubConnector(at.clone());
    let put = connectors.put(name, sighting);
    let is_same_object = matches!(put, Put::Changed(_));
    let before = match put {
        Put::Older => return None,
        Put::New => None,
        Put::Changed(before) => {
            connectors.seen_mut(name)?.take_over(&before);
            Some(before)
        }
        Put::Replaced(before) => {
            observed.changes.push(Change::Gone { subject: subject.clone(), named: None });
            Some(before)
        }
    };

    relink(observed, &at, before.as_ref(), Some(&seen));
    let was_paused = before.as_ref().is_some_and(|before| before.is_paused);
    let sighting = HubConnectorSeen {
        at,
        is_same_object,
        before: before.and_then(|before| before.annotation),
        is_resumed: was_paused && !seen.is_paused,
        object: object.clone(),
    };
    observed.changes.push(Change::Hub(HubChange::Seen(sighting)));
    observed.changed([subject]);
    Some(())
}

pub(super) fn on_connector_gone(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
) -> Option<()> {
    let row = observed.cluster_mut()?.hub_connectors.remove(name)?;
    let at = observed.object(Kind::Connector, name);
    relink(observed, &at, Some(&row.seen), None);

    let subject = Subject::HubConnector(at);
    let named = row.seen.upstream.map(|named| named.cluster);
    observed.changes.push(Change::Gone { subject, named });
    Some(())
}

fn relink(
    observed: &mut Observation<'_>,
    at: &ObjectRef,
    before: Option<&HubConnector>,
    after: Option<&HubConnector>,
) {
    let [named_before, named] =
        [before, after].map(|connector| connector.and_then(|row| row.upstream.as_ref()));
    let [annotated_before, annotated] =
        [before, after].map(|connector| connector.and_then(HubConnector::annotated_of));

    observed.world.relink(at, named_before, named, observed.now, &mut observed.changes);
    observed.world.count_annotated(annotated_before.as_ref(), annotated.as_ref());
    if let Some(named_before) = named_before.filter(|_| named_before != named && after.is_some()) {
        let subject = Subject::HubConnector(at.clone());
        let from = named_before.cluster.clone();
        observed.changes.push(Change::Relinked { subject, from });
    }
}

pub(super) fn on_route(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    object: &Object,
    shown: Shown,
) -> Option<()> {
    let has_orphans = observed.has_orphans();
    observed.tier(Role::Hub).filter(|_| has_orphans)?;
    let at = observed.object(Kind::HttpRoute, name);
    let subject = Subject::Route(at.clone());
    let route = Route::new(object);
    let parents = route.parents.clone().ok();
    let sighting = observed.sighting(object, shown)?.with(route);

    let before = match observed.cluster_mut()?.routes.put(name, sighting) {
        Put::Older => return None,
        Put::New => None,
        Put::Changed(before) => {
            let from = before.upstream().cloned();
            let upstream = parents.as_ref().map(|parents| parents.cluster.clone());
            if let Some(from) = from.filter(|from| Some(from) != upstream.as_ref()) {
                observed.changes.push(Change::Relinked { subject: subject.clone(), from });
            }
            observed.changes.push(Change::RouteSeen { at: at.clone() });
            Some(before)
        }
        Put::Replaced(before) => {
            let named = before.upstream().cloned();
            observed.changes.push(Change::Gone { subject: subject.clone(), named });
            Some(before)
        }
    };
    let parents_before = before.and_then(|before| before.parents.ok());
    let changes = &mut observed.changes;
    observed.world.relink_route(&at, parents_before.as_ref(), parents.as_ref(), changes);
    observed.changed([subject]);
    Some(())
}

pub(super) fn on_route_gone(observed: &mut Observation<'_>, name: &NamespacedName) -> Option<()> {
    let row = observed.cluster_mut()?.routes.remove(name)?;
    let at = observed.object(Kind::HttpRoute, name);
    let named = row.seen.upstream().cloned();
    let parents = row.seen.parents.ok();

    observed.world.relink_route(&at, parents.as_ref(), None, &mut observed.changes);
    observed.changes.push(Change::Gone { subject: Subject::Route(at), named });
    Some(())
}

impl World {
    fn read_hub_connector(&self, at: &ObjectRef, object: &Object) -> HubConnector {
        let upstream = UpstreamRef::of(&object.meta).map(|named| self.shared_ref(named));
        let said = upstream.as_ref().and_then(|named| self.said(named));
        let row = self.clusters.get(&at.cluster).and_then(|hub| hub.hub_connectors.get(&at.name));
        let likely = [said, row.and_then(|row| row.seen.annotation)];
        HubConnector::new(&object.meta, &self.reading.nudge_key, upstream, likely)
    }

    /// What an upstream Connector said when it could last be read.
    pub(crate) fn said(&self, at: &UpstreamRef) -> Option<StatusDigest> {
        let row = self.upstream_named(&at.cluster)?.upstream_connectors.get(&at.name)?;
        row.seen.said().map(|status| status.digest)
    }
}

impl HubConnector {
    /// What the object does not say itself. A namespace of a former upstream says nothing about
    /// the present one.
    fn take_over(&mut self, before: &Self) {
        let cluster = |of: &Self| of.upstream.as_ref().map(|named| named.cluster.clone());
        if cluster(self) == cluster(before) {
            self.namespace_deleted_at = before.namespace_deleted_at;
        }
    }
}
