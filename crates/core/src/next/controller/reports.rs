//! What is reported of what the watches show, before any rule looks at it.

use super::Controller;
use crate::contract::note::{AnomalyKind, Hop};
use crate::data::name::NamespacedName;
use crate::next::world::change::Report;

pub(super) fn report(c: &mut Controller, report: &Report) {
    let notes = &mut c.notes;
    match report {
        Report::UpstreamSays { cluster, connector, is_online } => {
            notes.hop_passed(cluster, connector, Hop::Upstream, *is_online, None);
        }
        Report::StatusUnreadable { cluster, connector } => {
            let detail = "the status of a Connector can't be read: it is nested more than 128 levels \
                          deep, or has a number that is too large; the hub's annotation stays as it is";
            let kind = AnomalyKind::Undecodable;
            notes.anomaly(kind, cluster, Some(connector), detail.to_owned());
        }
        Report::ObjectUnreadable { cluster, kind, object, error } => {
            let name = NamespacedName::from(object);
            let detail =
                format!("a {kind} can't be read, so no {kind} counts as missing there: {error}");
            notes.anomaly(AnomalyKind::Undecodable, cluster, Some(&name), detail);
        }
        Report::Restored { cluster } => {
            let settle_s = c.settings.mirror.restored_settle_ms / 1_000;
            let detail = format!(
                "its resourceVersions are lower than before, as after a restore from an older state; \
                 until throughline is restarted, none of its orphans is deleted and no annotation is \
                 removed because a Connector is missing; a status is mirrored once its Connector \
                 changes, or after {settle_s} s"
            );
            notes.anomaly(AnomalyKind::ResourceVersionRegressed, cluster, None, detail);
        }
    }
}
