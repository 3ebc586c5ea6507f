//! Changes during a run: clusters that join and leave, and the configuration.

use tracing::{debug, info};

use super::Run;
use crate::client::ClusterClient;
use crate::config::{ClusterConfig, Config};
use crate::core::contract::event::EventKind;
use crate::core::contract::membership::{Membership, SourceName};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ClusterName, Role};
use crate::fleet::{Member, Origin};

/// In a fleet of this size, a line for each cluster that joins or leaves hides the others.
const LARGE_FLEET: usize = 50;

/// The settings of the machine of a live run.
pub(super) fn machine_settings(config: &Config) -> Settings {
    let mut settings = config.settings();
    // A dry run mirrors nothing to an edge, so every Connector would be nudged.
    settings.mirror.nudge &= !config.dry_run;
    settings
}

impl Run {
    /// Carries out the machine's decisions that clusters join or leave.
    pub(super) fn carry_out_memberships(&mut self) {
        while let Some(change) = self.engine.machine.poll_membership() {
            match change {
                Membership::Join { source, cluster, roles } => {
                    self.join_discovered(source, cluster, roles);
                }
                // A configured cluster leaves when the file no longer names it.
                Membership::Leave { cluster, .. } if self.is_configured(&cluster) => {}
                Membership::Leave { cluster, reason } => {
                    let reason = reason.as_str();
                    if self.is_fleet_large() {
                        debug!(%cluster, reason, "cluster leaves");
                    } else {
                        info!(%cluster, reason, "cluster leaves");
                    }
                    if let Some(discovery) = &self.discovery {
                        discovery.connections.left(&cluster);
                    }
                    self.leave(&cluster);
                }
            }
        }
    }

    /// Asks the root for the upstreams that hub objects name and no source offers: projects that may
    /// have been deleted while no instance ran.
    pub(super) fn ask_for_unknown(&mut self) {
        if let Some(discovery) = &mut self.discovery {
            discovery.ask_for_unknown(self.engine.machine.unknown_upstreams());
        }
    }

    fn join_discovered(&mut self, source: SourceName, name: ClusterName, roles: Vec<Role>) {
        if self.is_configured(&name) {
            return;
        }
        let discovery = self.discovery.as_ref();
        let Some(connection) = discovery.and_then(|found| found.connections.get(source, &name))
        else {
            // Its source has withdrawn it, and the event for that is on its way; until then the machine
            // asks again.
            info!(cluster = %name, source = source.as_str(), "a cluster is gone before it joined");
            return self.engine.handle_event(EventKind::ClusterRemoved { cluster: name });
        };
        let was_large = self.is_fleet_large();
        let source = source.as_str();
        if was_large {
            debug!(cluster = %name, source, "cluster joins");
        } else {
            info!(cluster = %name, source, "cluster joins");
        }
        self.join(Member { name, roles, connection, origin: Origin::Discovered });
        if self.is_fleet_large() && !was_large {
            info!(
                clusters = self.engine.fleet.len(),
                "from now on, clusters that join and leave are logged at level debug"
            );
        }
    }

    fn is_fleet_large(&self) -> bool {
        self.engine.fleet.len() >= LARGE_FLEET
    }

    /// Handles an event of a source. The offer of a joined cluster may bring other credentials. A
    /// configured cluster of the same name keeps the connection of the file.
    pub(super) fn handle_discovered(&mut self, kind: EventKind) {
        let offered = match &kind {
            EventKind::ClusterOffered { source, cluster, .. } => Some((*source, cluster.clone())),
            _ => None,
        };
        self.engine.handle_event(kind);
        let (Some((source, cluster)), Some(discovery)) = (offered, &self.discovery) else { return };
        if self.engine.fleet.origin(&cluster) == Some(Origin::Discovered)
            && let Some(connection) = discovery.connections.of_joined(source, &cluster)
        {
            self.engine.fleet.replace(&cluster, connection);
        }
    }

    fn is_configured(&self, cluster: &ClusterName) -> bool {
        self.engine.fleet.origin(cluster) == Some(Origin::Configured)
    }

    pub(super) fn join(&mut self, member: Member) {
        self.leave(&member.name);
        let cluster = self.engine.join(member);
        if let Some(recorder) = self.recorder.clone().filter(|_| self.gets_events(&cluster)) {
            recorder.join(cluster);
        }
    }

    pub(super) fn leave(&mut self, cluster: &ClusterName) {
        if let Some(recorder) = &self.recorder {
            recorder.leave(cluster);
        }
        self.engine.leave(cluster);
    }

    /// Whether Kubernetes Events are posted in this cluster: the hub, edges and the Lease's cluster.
    pub(super) fn gets_events(&self, cluster: &ClusterClient) -> bool {
        let upstream_alone = cluster.roles().iter().all(|role| *role == Role::Upstream);
        let election = self.config.election_cluster().map(|cluster| &cluster.name);
        !upstream_alone || election == Some(cluster.name())
    }

    /// Applies a new list of clusters and their connections.
    pub(super) fn reload(&mut self, clusters: Vec<ClusterConfig>) {
        let is_same = |cluster: &ClusterClient, configured: &ClusterConfig| {
            configured.name == *cluster.name() && configured.has_roles(cluster.roles())
        };
        for cluster in self.engine.fleet.configured() {
            if !clusters.iter().any(|configured| is_same(&cluster, configured)) {
                self.leave(cluster.name());
            }
        }
        for cluster in &clusters {
            if self.is_configured(&cluster.name) {
                self.engine.fleet.replace(&cluster.name, cluster.connection());
            } else {
                self.join(cluster.into());
            }
        }
        self.config.clusters = clusters;
    }
}
