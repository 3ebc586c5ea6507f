//! The state of a source: keeps the connection of each offered cluster, and sends the changes to the
//! machine.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::client::ConnectionSpec;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::contract::event::EventKind;
use crate::core::contract::membership::{JoinRule, OfferState, SourceName};
use crate::core::data::ids::{ClusterName, Role};

/// One cluster as its source describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) cluster: ClusterName,
    /// Distinguishes a cluster from another one of the same name.
    pub(super) uid: String,
    pub(super) state: OfferState,
    /// `None` if the offer gives no usable connection.
    pub(super) connection: Option<ConnectionSpec>,
    /// The object or file that describes it; two may claim one name.
    pub(super) shown_by: String,
}

/// A cluster that a source offers.
#[derive(Clone)]
struct Shown {
    offer: Offer,
    /// The last list that contained it.
    list: u32,
}

/// The connections of all offered clusters, for clusters that join.
#[derive(Clone, Default)]
pub(crate) struct Connectable(Arc<Mutex<Connections>>);

#[derive(Default)]
struct Connections {
    offered: BTreeMap<(SourceName, ClusterName), (String, ConnectionSpec)>,
    /// The offer, by source and uid, that each joined cluster was joined by. A cluster that its source
    /// no longer offers may stay joined, and return with other credentials.
    joined: BTreeMap<ClusterName, (SourceName, String)>,
}

impl Connectable {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of a cluster that joins; `None` if its source no longer offers it.
    pub(crate) fn get(&self, source: SourceName, cluster: &ClusterName) -> Option<ConnectionSpec> {
        let mut connections = self.lock();
        let (uid, found) = connections.offered.get(&(source, cluster.clone())).cloned()?;
        connections.joined.insert(cluster.clone(), (source, uid));
        Some(found)
    }

    /// Forgets the offer of a cluster that left.
    pub(crate) fn left(&self, cluster: &ClusterName) {
        self.lock().joined.remove(cluster);
    }

    /// The offered connection of a joined cluster, if the offer is not for another cluster of its name.
    pub(crate) fn of_joined(
        &self,
        source: SourceName,
        cluster: &ClusterName,
    ) -> Option<ConnectionSpec> {
        let connections = self.lock();
        let (uid, connection) = connections.offered.get(&(source, cluster.clone()))?;
        let is_it = connections.joined.get(cluster) == Some(&(source, uid.clone()));
        is_it.then(|| connection.clone())
    }

    fn insert(&self, source: SourceName, offer: &Offer, connection: ConnectionSpec) {
        let offered = (offer.uid.clone(), connection);
        self.lock().offered.insert((source, offer.cluster.clone()), offered);
    }

    fn remove(&self, source: SourceName, cluster: &ClusterName) {
        self.lock().offered.remove(&(source, cluster.clone()));
    }

    /// The uid of the offer that a cluster was joined by.
    fn joined_uid(&self, source: SourceName, cluster: &ClusterName) -> Option<String> {
        let connections = self.lock();
        let joined = connections.joined.get(cluster).filter(|(by, _)| *by == source);
        joined.map(|(_, uid)| uid.clone())
    }
}

/// The offers of one source so far.
pub(super) struct Ledger {
    /// Random: who reads an event log can't find a server by the hash in its uid.
    pub(super) hash_key: RandomState,
    source: SourceName,
    join: JoinRule,
    roles: Vec<Role>,
    /// Only these clusters; `None` means all.
    only: Option<BTreeSet<ClusterName>>,
    bus: mpsc::Sender<EventKind>,
    connections: Connectable,
    shown: BTreeMap<ClusterName, Shown>,
    lists: u32,
    is_list_begun: bool,
    /// While the source is lost: the error that was last logged.
    lost: Option<String>,
    /// Offers of a name that another object claims, by name and by what describes them. Each is logged
    /// once, and counts once the other is gone.
    ignored: BTreeMap<(ClusterName, String), Shown>,
}

/// The clusters that a complete list lacks and earlier events contained.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) clusters: Vec<ClusterName>,
    /// More than one, and more than a third: more likely a mistake than real deletions.
    pub(super) is_suspicious: bool,
}

impl Ledger {
    pub(super) fn new(
        source: SourceName,
        join: JoinRule,
        roles: Vec<Role>,
        only: Option<BTreeSet<ClusterName>>,
        bus: mpsc::Sender<EventKind>,
        connections: Connectable,
    ) -> Self {
        Self {
            hash_key: RandomState::new(),
            source,
            join,
            roles,
            only,
            bus,
            connections,
            shown: BTreeMap::new(),
            lists: 0,
            is_list_begun: false,
            lost: None,
            ignored: BTreeMap::new(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// The uid of a cluster that is offered or still joined.
    pub(super) fn uid(&self, cluster: &ClusterName) -> Option<String> {
        let shown = self.shown.get(cluster).map(|shown| shown.offer.uid.clone());
        shown.or_else(|| self.connections.joined_uid(self.source, cluster))
    }

    /// The receiver is gone only when the run ends, and this task with it.
    async fn send(&self, event: EventKind) {
        let _ = self.bus.send(event).await;
    }

    /// Starts a new list. The first begins at once, because from then on clusters may join; a later
    /// one begins with the first answer.
    pub(super) async fn new_list(&mut self) {
        self.is_list_begun = false;
        if self.lists == 0 {
            self.begin_list().await;
        }
    }

    async fn begin_list(&mut self) {
        if std::mem::replace(&mut self.is_list_begun, true) {
            return;
        }
        self.lists += 1;
        self.lost = None;
        let source = self.source;
        let join = self.join;
        self.send(EventKind::DiscoveryStarted { source, join }).await
    }

    /// Handles one cluster of the list.
    pub(super) async fn listed(&mut self, offer: Offer) {
        self.begin_list().await;
        self.note(offer, true).await
    }

    /// Handles a new or changed cluster. Sends no event for an unchanged one.
    pub(super) async fn changed(&mut self, offer: Offer) {
        self.note(offer, false).await
    }

    async fn note(&mut self, offer: Offer, in_list: bool) {
        let cluster = offer.cluster.clone();
        if self.only.as_ref().is_some_and(|only| !only.contains(&cluster)) {
            return;
        }
        let before = self.shown.get(&cluster);
        let is_claimed = |shown: &Shown| {
            shown.offer.shown_by != offer.shown_by && (!in_list || shown.list == self.lists)
        };
        if let Some(first) = before.filter(|shown| is_claimed(shown)) {
            let first = first.offer.shown_by.clone();
            let ignored = offer.shown_by.clone();
            let key = (cluster.clone(), ignored.clone());
            if self.ignored.insert(key, Shown { offer, list: self.lists }).is_none() {
                warn!(%cluster, first, ignored,
                    "two sources of one name: the first counts; rename or remove the other");
            }
            return;
        }
        self.ignored.remove(&(cluster.clone(), offer.shown_by.clone()));
        let is_news = before.is_none_or(|shown| {
            let Offer { uid, state, connection, .. } = &shown.offer;
            (uid, state, connection) != (&offer.uid, &offer.state, &offer.connection)
        });
        self.tell_broken(&offer, before.map(|shown| &shown.offer));
        self.keep_connection(&offer, before.map(|shown| &shown.offer));
        let event = EventKind::ClusterOffered {
            source: self.source,
            cluster: cluster.clone(),
            uid: offer.uid.clone(),
            roles: self.roles.clone(),
            state: offer.state.clone(),
        };
        self.shown.insert(cluster, Shown { offer, list: self.lists });
        if in_list || is_news {
            self.send(event).await;
        }
    }

    /// Logs a broken offer once for each cause. The machine reports one problem for all of them.
    fn tell_broken(&self, offer: &Offer, before: Option<&Offer>) {
        let OfferState::Broken { error } = &offer.state else { return };
        if before.map(|before| &before.state) != Some(&offer.state) {
            info!(cluster = %offer.cluster, %error,
                "no connection can be made of it: a cluster that has joined keeps the one that it \
                 has; fix {}", offer.shown_by);
        }
    }

    /// Keeps the previous connection of a cluster whose offer is broken.
    fn keep_connection(&self, offer: &Offer, before: Option<&Offer>) {
        let is_same = before.is_some_and(|before| before.uid == offer.uid);
        match offer.connection.clone() {
            Some(connection) => self.connections.insert(self.source, offer, connection),
            None if is_same => {}
            None => self.connections.remove(self.source, &offer.cluster),
        }
    }

    /// Handles the removal of a cluster from the source; another object that claims its name counts from
    /// then on. Returns whether it was offered.
    pub(super) async fn withdrawn(&mut self, cluster: &ClusterName, shown_by: &str) -> bool {
        let is_it = |shown: &&Shown| shown.offer.shown_by == shown_by;
        let Some(uid) = self.shown.get(cluster).filter(is_it).map(|shown| shown.offer.uid.clone())
        else {
            self.ignored.remove(&(cluster.clone(), shown_by.to_owned()));
            return false;
        };
        self.forget(cluster);
        let source = self.source;
        let withdrawn = cluster.clone();
        self.send(EventKind::ClusterWithdrawn { source, cluster: withdrawn, uid }).await;
        let next = self.ignored.iter().find(|((name, _), _)| name == cluster);
        if let Some(offer) = next.map(|(_, shown)| shown.offer.clone()) {
            self.note(offer, false).await;
        }
        true
    }

    fn forget(&mut self, cluster: &ClusterName) {
        self.shown.remove(cluster);
        self.connections.remove(self.source, cluster);
    }

    /// Handles the end of the list. Returns the clusters that it lacks.
    pub(super) async fn list_finished(&mut self) -> Missing {
        self.begin_list().await;
        let all = self.shown.len();
        let is_missing = |(_, shown): &(&ClusterName, &Shown)| shown.list != self.lists;
        let clusters: Vec<_> =
            self.shown.iter().filter(is_missing).map(|(name, _)| name.clone()).collect();
        for cluster in &clusters {
            self.forget(cluster);
        }
        self.ignored.retain(|_, ignored| ignored.list == self.lists);
        info!(clusters = self.shown.len(), missing = clusters.len(), "clusters listed");
        self.send(EventKind::DiscoveryFinished { source: self.source }).await;
        let is_suspicious = clusters.len() > 1 && clusters.len() * 3 > all;
        Missing { clusters, is_suspicious }
    }

    /// Handles a source that can't be read: its offers remain. Sends one event, and logs each new
    /// error. The machine reports a problem if it lasts.
    pub(super) async fn lost(&mut self, error: RequestFailure, remedy: Option<&str>) {
        let text = error.to_string();
        if self.lost.as_ref() != Some(&text) {
            info!(
                error = text,
                remedy,
                clusters = self.shown.len(),
                "discovery lost: the clusters that it showed stay; retrying"
            );
        }
        if self.lost.replace(text).is_none() {
            self.send(EventKind::DiscoveryLost { source: self.source, error }).await;
        }
    }

    /// Handles a source that can be read again and continues.
    pub(super) async fn resumed(&mut self) {
        self.lost = None;
        info!("discovery resumed");
        self.send(EventKind::DiscoveryResumed { source: self.source }).await
    }
}
