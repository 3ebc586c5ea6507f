//! The result of a replay.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::Outage;
use crate::core::contract::action::Decision;
use crate::core::contract::event::{ClusterSpec, Outcome};
use crate::core::contract::membership::Membership;
use crate::core::contract::note::Note;
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ActionId, ClusterName, NamespacedName};
use crate::core::data::time::UnixMillis;
use throughline_sim::CarrierRate;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayMode {
    /// Carry actions out in memory, on top of the recorded changes.
    WhatIf,
    /// Feed only the recorded events; the actions must equal the recorded ones.
    Verify,
    /// Not a replay but a demo: a real run on in-memory clusters that play the log.
    #[value(skip)]
    Live,
}

/// An action with its outcome.
#[derive(Clone, Debug)]
pub struct ActionRecord {
    pub decision: Decision,
    /// The outcome and its time; `None` if there was none.
    pub finished: Option<(UnixMillis, Outcome)>,
}

impl ActionRecord {
    /// The outcome in a word.
    pub(crate) fn outcome_name(&self) -> &'static str {
        self.finished.as_ref().map_or("unfinished", |(_, outcome)| outcome.name())
    }
}

/// The result of a replay, for the reports; serialized, the beginning of the JSON report.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    pub mode: ReplayMode,
    /// The file's name as the user gave it.
    pub file: String,
    /// The number of lines that are events.
    pub events: u64,
    /// The times of the first and the last line. Live, both are the recording's.
    #[serde(rename = "from_ms")]
    pub first_at: UnixMillis,
    #[serde(rename = "to_ms")]
    pub last_at: UnixMillis,
    /// When virtual time ended. Live, when the run ended, by its own clock.
    #[serde(rename = "ended_ms")]
    pub ended_at: UnixMillis,
    /// The clusters of the header, and those that joined later.
    pub clusters: Vec<ClusterSpec>,
    /// The rate of the simulated carrier, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "per_second")]
    pub carrier_rate: Option<CarrierRate>,
    #[serde(skip)]
    pub settings: Settings,
    /// In the order decided.
    #[serde(skip)]
    pub actions: Vec<ActionRecord>,
    /// In the order noted.
    #[serde(skip)]
    pub notes: Vec<Note>,
    /// The machine's decisions that clusters join or leave, in order.
    #[serde(skip)]
    pub memberships: Vec<(UnixMillis, Membership)>,
    /// The reader's warnings.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// The upstream cluster and Connector of each hub or edge Connector, according to its labels. The
    /// name at the hub is also that at the edges.
    #[serde(skip)]
    pub upstreams: BTreeMap<NamespacedName, (String, NamespacedName)>,
    /// The outages for users in the recording.
    #[serde(skip)]
    pub recorded: Vec<Outage>,
    /// The outages for users with throughline, or those of a live run. Empty in a verify.
    #[serde(skip)]
    pub replayed: Vec<Outage>,
    /// Requests to the API servers; live only.
    #[serde(skip)]
    pub requests: Vec<RequestCounts>,
    /// Why it is not good, one sentence each.
    #[serde(skip)]
    pub problems: Vec<String>,
    /// The connectors held at the end: an operator or another controller has to act. None in a verify.
    #[serde(skip)]
    pub held: u64,
}

fn per_second<S: Serializer>(rate: &Option<CarrierRate>, serializer: S) -> Result<S::Ok, S::Error> {
    rate.map(CarrierRate::per_second).serialize(serializer)
}

/// How often one kind of request was sent to a cluster's API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestCounts {
    pub cluster: ClusterName,
    /// As in RBAC rules: `list`, `watch`, `patch` …
    pub verb: &'static str,
    /// As in paths: `connectors`, `httproutes` …
    pub resource: &'static str,
    /// Whether such a request changes objects.
    pub writes: bool,
    pub count: u64,
}

impl Replay {
    pub(crate) fn new(
        file: &str,
        mode: ReplayMode,
        clusters: Vec<ClusterSpec>,
        settings: Settings,
    ) -> Self {
        Self {
            file: file.to_owned(),
            mode,
            clusters,
            settings,
            carrier_rate: None,
            events: 0,
            first_at: UnixMillis(0),
            last_at: UnixMillis(0),
            ended_at: UnixMillis(0),
            actions: Vec::new(),
            notes: Vec::new(),
            memberships: Vec::new(),
            warnings: Vec::new(),
            upstreams: BTreeMap::new(),
            recorded: Vec::new(),
            replayed: Vec::new(),
            requests: Vec::new(),
            problems: Vec::new(),
            held: 0,
        }
    }

    /// What-if: at the end every connector is ok or held, and no action is in flight.
    /// Verify: every action equals the recorded one. Live: as what-if, and its own log verifies.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a decided action.
    pub(crate) fn decided(&mut self, decision: Decision) {
        self.actions.push(ActionRecord { decision, finished: None });
    }

    /// Adds the outcome of the action with that id.
    pub(crate) fn finished(&mut self, at: UnixMillis, id: ActionId, outcome: Outcome) {
        // Later actions have higher ids.
        let found = self.actions.binary_search_by_key(&id, |record| record.decision.action.id);
        if let Some(record) = found.ok().and_then(|index| self.actions.get_mut(index)) {
            record.finished = Some((at, outcome));
        }
    }

    /// Writes that an API server refused or that changed nothing; live only.
    pub fn needless_writes(&self) -> u64 {
        let sent: u64 = self.requests.iter().filter(|r| r.writes).map(|r| r.count).sum();
        let applied =
            |record: &&ActionRecord| matches!(record.finished, Some((_, Outcome::Applied { .. })));
        let changed = self.actions.iter().filter(applied).count();
        sent.saturating_sub(u64::try_from(changed).unwrap_or(u64::MAX))
    }
}
