//! What an instance says of itself, against what the API servers and the network saw.

use throughline::core::contract::action::Action;
use throughline::core::data::ids::ClusterName;
use throughline_sim::apiserver::AuditedRequest;
use tokio::time::Instant;

use super::{Oracle, is_leader_only, within};
use crate::instance::{CompleteList, Done};
use crate::network::SentWrite;

impl Oracle {
    /// An instance takes an action for carried out.
    pub(crate) fn done(&mut self, client: u32, done: &Done) {
        let Done { decided, ended, action: Action { verb, cluster, kind, object, .. } } = done;
        let path = format!("{}/{}/{}", object.namespace, kind.plural(), object.name);
        let key = (client, cluster.clone(), path);
        let times = self.carried_out.get(&key).map(Vec::as_slice).unwrap_or_default();
        if !times.iter().any(|at| (decided..=ended).contains(&at)) {
            let verb = verb.as_str();
            self.broken.push(format!(
                "instance {client}: takes its {verb} of {object} in {cluster} for carried out, which it was not"
            ));
        }
    }

    /// An instance carried out a newer action for the same object, and never says what came of this one.
    pub(crate) fn forgotten(&mut self, client: u32, action: &Action) {
        let Action { verb, cluster, object, .. } = action;
        let verb = verb.as_str();
        self.broken.push(format!(
            "instance {client}: its {verb} of {object} in {cluster} has no outcome, and a newer one has"
        ));
    }

    /// What an API server gave of a list.
    pub(super) fn read(&mut self, audited: &AuditedRequest) {
        let uri = audited.request.uri();
        if !uri.query().unwrap_or_default().contains("watch=") {
            let (at, is_given) = (Instant::now(), audited.code == 200);
            self.list_answered(audited.client, &audited.cluster, uri.path(), (at, is_given));
        }
    }

    pub(crate) fn list_answered(
        &mut self,
        client: u32,
        cluster: &ClusterName,
        path: &str,
        answer: (Instant, bool),
    ) {
        let kind = path.rsplit('/').next().unwrap_or_default().to_owned();
        self.listed.entry((client, cluster.clone(), kind)).or_default().push(answer);
    }

    /// An instance takes a list for complete: the last page that it asked for was given.
    pub(crate) fn complete(&mut self, client: u32, list: &CompleteList) {
        let CompleteList { at, cluster, kind } = list;
        let key = (client, cluster.clone(), kind.plural().to_owned());
        let answers = self.listed.get(&key).map(Vec::as_slice).unwrap_or_default();
        let last = answers.iter().rev().find(|(answered, _)| answered <= at);
        if !last.is_some_and(|(_, is_given)| *is_given) {
            self.broken.push(format!(
                "instance {client}: takes a list of {kind} in {cluster} for complete, and did not get its last page"
            ));
        }
    }

    /// A write to the hub leaves an instance: its gate is open, so its own event log must not say that it
    /// does not lead.
    pub(crate) fn sent(&mut self, write: &SentWrite, leadership: &[(Instant, bool)]) {
        let SentWrite { at, client, path, .. } = write;
        if self.stood_still(*client, *at) || !is_leader_only(path) {
            return;
        }
        let before = leadership.iter().rev().find(|(since, _)| since <= at);
        let leads = before.is_some_and(|(since, leads)| *leads || within(*since, *at));
        // A gate opens, and the event follows.
        let leads_now = leadership.iter().any(|(since, leads)| *leads && within(*at, *since));
        if !leads && !leads_now {
            self.broken.push(format!(
                "instance {client}: sends a write of {path} and does not lead, as it knows itself"
            ));
        }
    }
}
