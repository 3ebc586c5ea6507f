//! Causes: one closed table of what can be wrong. Log, Events, metrics, alerts, `status`, `trace`,
//! `check` and the runbook take their names and texts from it.
//!
//! A [`Problem`] is a cause with its subject and the facts for its texts. A text may have several
//! forms. The first form with all facts known is used.

use serde::Serialize;

use crate::contract::error_cause::{ErrorCause, ErrorClass, RequestFailure};
use crate::data::closed_list::closed_list;
use crate::data::ids::{ClusterName, Kind, NamespacedName};
use crate::data::time::UnixMillis;

/// A longer error text is truncated.
const ERROR_CHARS_MAX: usize = 200;

/// Declares [`Cause`] and its table. A row has the severity, hop, state, whether an Event is
/// posted, the alerts, the forms of the sentence, and the forms of the remedy.
macro_rules! table {
    ($($cause:ident: $severity:ident, $hop:expr, $state:expr, $event:literal, [$($alert:ident),*],
        [$($sentence:literal),+], [$($remedy:literal),*];)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
        #[strum(serialize_all = "snake_case", const_into_str)]
        pub enum Cause {
            $($cause,)+
        }

        impl Cause {
            pub const fn info(self) -> &'static CauseInfo {
                use Hop::{Announced, Carried, Mirrored};
                use State::{Held, Stuck, Unknown};
                match self {
                    $(Self::$cause => &CauseInfo {
                        severity: Severity::$severity,
                        hop: $hop,
                        state: $state,
                        event: $event,
                        alert: &[$(AlertRule::$alert),*],
                        sentence: &[$($sentence),+],
                        remedy: &[$($remedy),*],
                    },)+
                }
            }
        }
    };
}

table! {
    CredentialsRejected: Error, None, Some(Unknown), false, [NotWatched],
        ["{cluster} rejects the credentials (401)."],
        ["Renew the token or certificate in {file}; it is read again at once.",
         "Renew the token or certificate; it is read again at once."];
    PermissionMissing: Error, None, Some(Unknown), false, [NotWatched],
        ["{cluster} does not allow throughline to {verb} {kind} objects."],
        ["As an administrator: `@{cluster} -n {namespace} create role {role} --verb={verb} \
          --resource={key}`, then `@{cluster} -n {namespace} create rolebinding {role} \
          --role={role} --user={account}`",
         "As an administrator: `@{cluster} create clusterrole {role} --verb={verb} \
          --resource={key}`, then `@{cluster} create clusterrolebinding {role} \
          --clusterrole={role} --user={account}`"];
    KindNotServed: Error, None, Some(Unknown), false, [NotWatched],
        ["{cluster} does not serve {kind}."],
        ["Install its CustomResourceDefinition; throughline then follows it without a restart."];
    ClusterUnavailable: Error, None, Some(Unknown), false, [NotWatched],
        ["The API server of {cluster} does not answer: {error}."],
        ["`@{cluster} get --raw '/readyz?verbose'`"];
    KubeconfigInvalid: Error, None, Some(Unknown), false, [NotWatched],
        ["The kubeconfig of {cluster} cannot be used: {error}."],
        ["Correct {file}; it is read again before each attempt.",
         "Correct the kubeconfig; it is read again before each attempt."];
    ObjectUnreadable: Warning, None, Some(Unknown), true, [Ticket],
        ["{kind} {object} in {cluster} cannot be decoded."],
        ["`@{cluster} -n {namespace} get {kind} {name} -o yaml`"];
    DiscoveryFailing: Error, None, None, true, [Ticket],
        ["{source} cannot list its clusters: {error}. Known clusters stay."],
        ["`throughline check`"];
    ClustersMissing: Warning, None, None, true, [Ticket],
        ["{part} of {whole} clusters of {source} vanished at once. They stay."],
        ["Check the source; if the clusters are gone for good, restart throughline."];
    ClusterNameTaken: Warning, None, None, false, [Ticket],
        ["{source} offers {cluster}, a name that is in use."],
        ["Rename one of the two clusters."];
    UpstreamUnknown: Warning, Some(Mirrored), Some(Held), true, [Upstream, Ticket],
        ["Upstream {what} is configured under another name; hub objects call it {upstream}.",
         "Hub objects name upstream {upstream}, which is not followed; {source} cannot list its clusters.",
         "Hub objects name upstream {upstream}, which is not followed."],
        ["Rename {what}; to try it: `throughline check --set {key}={upstream}`",
         "Rename {what} to {upstream} where it is configured.",
         "Mend the discovery by {source}, which may then find {upstream}: `throughline check`",
         "Add {upstream} to `clusters` or to what discovery finds."];
    ProjectMissing: Warning, Some(Mirrored), Some(Held), true, [Ticket],
        ["{file} points to Project {upstream}, which does not exist.",
         "Project {upstream} does not exist, but hub objects name it and may serve traffic."],
        ["Correct the path of the server in {file}, or create the Project.",
         "`throughline orphans`, then `orphans.deletedProjects: true`"];
    UpstreamRestored: Warning, Some(Mirrored), Some(Held), true, [Ticket],
        ["{upstream} was restored from an older state; no annotation is removed for it."],
        ["Finish the restore; restart throughline only once `throughline check` lists no \
          missing Connectors."];
    NoLeader: Error, Some(Mirrored), Some(Stuck), false, [Leader],
        ["{holder}, which is not throughline, holds Lease {object}; nothing is mirrored, \
          nudged or deleted.",
         "No instance holds Lease {object}; nothing is mirrored, nudged or deleted."],
        ["`@{hub} -n {namespace} get lease {name} -o yaml`; if you do not know its holder, set \
          another `leaderElection.leaseName`."];
    LeaseUnusable: Error, None, None, false, [Ticket],
        ["Lease {object} cannot be read or renewed: {error}."],
        ["As an administrator: `@{hub} -n {namespace} create role {role} --verb={verb} \
          --resource={key}`, then `@{hub} -n {namespace} create rolebinding {role} \
          --role={role} --user={account}`",
         "`@{hub} get --raw '/readyz?verbose'`"];
    ShardUnheld: Error, Some(Mirrored), Some(Stuck), true, [Shard],
        ["No instance holds shard {what}; its Connectors are not mirrored."],
        ["Start an instance for this shard, or read the log of the one that runs."];
    NotReplicated: Warning, Some(Mirrored), Some(Held), false, [Upstream, Ticket],
        ["The hub has no Connector for {object} of {upstream}."],
        ["Check that the platform's replicator runs, and its log."];
    LabelsMissing: Warning, Some(Mirrored), Some(Held), true, [Ticket],
        ["Hub Connector {object} lacks the label {key}; nothing is mirrored to it."],
        ["The replicator must write it; uid and name match {what} of {upstream}.",
         "The replicator must write it."];
    NamespaceMissing: Warning, Some(Mirrored), Some(Held), true, [Ticket],
        ["Namespace {what}, the source of {object}, is not in {upstream}."],
        ["Check that the kubeconfig of {upstream} points to its own control plane."];
    NamespaceMismatch: Warning, Some(Mirrored), Some(Held), true, [Ticket],
        ["Namespace {what} of {upstream} is not the namespace that {object} was made from."],
        ["`@{upstream} get namespace {what} -o yaml`"];
    RemovalsHeld: Warning, Some(Mirrored), Some(Held), true, [Ticket],
        ["{part} of {whole} Connectors of {upstream} vanished at once; annotations stay."],
        ["Restore them; if they are gone for good: `@{hub} annotate ns -l {what} \
          throughline.datumapis.com/allow-removals=true`, and afterwards the same with \
          `allow-removals-`"];
    StatusTooLarge: Warning, Some(Mirrored), None, true, [Ticket],
        ["The status of {object} exceeds 256 KiB of annotations; {what}."],
        ["Shorten the upstream status; routing is not affected."];
    Deferred: Info, Some(Mirrored), None, false, [],
        ["{object} changed in fields that do not affect routing; they follow within {limit}."],
        [];
    NotMirrored: Error, Some(Mirrored), Some(Stuck), true, [],
        ["The hub annotation of {object} differs from its upstream status; last write: {what}."],
        ["Run `throughline status --state` against {holder}",
         "`@{hub} get --raw '/readyz?verbose'`"];
    WriteRefused: Error, None, Some(Stuck), true, [Ticket],
        ["{cluster} refuses to {verb} {kind} {object}: {error}."],
        ["As an administrator: `@{cluster} create clusterrole {role} --verb={verb} \
          --resource={key}`, then `@{cluster} create clusterrolebinding {role} \
          --clusterrole={role} --user={account}`",
         "Fix the admission webhook or policy that refuses or changes it: \
          `@{cluster} get mutatingwebhookconfigurations,validatingwebhookconfigurations`"];
    WriteFailing: Error, None, Some(Stuck), true, [Ticket],
        ["Writes of {kind} to {cluster} fail: {error}."],
        ["`@{cluster} get --raw '/readyz?verbose'`, then its admission webhooks"];
    Overwritten: Warning, None, Some(Stuck), true, [Ticket],
        ["{manager} keeps overwriting {key} on {kind} {object}."],
        ["`@{cluster} -n {namespace} get {kind} {name} -o yaml --show-managed-fields`; stop \
          that writer. Two throughline installations need the same Lease."];
    NotCarried: Error, Some(Carried), Some(Stuck), true, [],
        ["{edge} does not have the hub annotation of {object}."],
        ["`@{hub} -n {namespace} describe resourcebinding {what}`",
         "Check that the carrier from {hub} to {edge} runs, and its log."];
    NotPlaced: Warning, Some(Carried), Some(Held), true, [Ticket],
        ["No edge has the Connector {object}."],
        ["Create a PropagationPolicy that selects it: `echo {what} | @{hub} apply -f -`",
         "Create a PropagationPolicy that selects it (`throughline check` prints one)."];
    NotAnnounced: Error, Some(Announced), Some(Stuck), true, [],
        ["Gateway {object} at {edge} does not announce its connectors; last touch: {what}."],
        ["Run `throughline status --state` against {holder}",
         "`@{edge} get --raw '/readyz?verbose'`"];
    TouchesQueued: Info, Some(Announced), None, false, [],
        ["{part} touches wait at {edge}; they take about {limit}."],
        ["Raise `touch.maxPerSecond` if Envoy Gateway keeps up."];
    NoGateway: Info, Some(Announced), None, false, [],
        ["No Gateway at {edge} routes to Connector {object}."],
        ["Check `spec.rules[].backends[].connector` of its HTTPProxy."];
    ConnectorMissing: Info, Some(Announced), None, false, [],
        ["HTTPProxy {object} at {edge} names Connector {what}, which does not exist."],
        ["Create the Connector, or correct the name."];
    Orphaned: Warning, None, None, true, [],
        ["All parent Gateways of route {object} are gone from {upstream}."],
        ["`throughline orphans`; with `orphans.mode: delete` it is deleted."];
    DeletesHeld: Warning, None, None, true, [Ticket],
        ["{part} of {whole} routes of {upstream} look orphaned; none is deleted."],
        ["Restore the Gateways; if they are gone for good, raise `limits.maxShare`, restart, \
          and lower it again."];
    RouteSettling: Info, None, None, false, [],
        ["Route {object} is an orphan and waits {limit} before it may be deleted."],
        [];
    RouteUnproven: Info, None, None, false, [],
        ["The Gateways of {upstream} are not freshly and fully listed."],
        ["See the open causes of {upstream}."];
    RouteProtected: Info, None, None, false, [],
        ["A label, a finalizer or a pending deletion protects route {object}."],
        ["Remove the protection if the route should go."];
    RouteNotOrphaned: Info, None, None, false, [],
        ["Route {object} has a parent that exists, or none that names an upstream Gateway."],
        [];
    Paused: Info, None, Some(Held), false, [Paused],
        ["{kind} {object} in {cluster} is paused by annotation."],
        ["`@{cluster} -n {namespace} annotate {kind} {name} throughline.datumapis.com/paused-`"];
    RuleOff: Info, None, None, false, [],
        ["This rule is switched off for {cluster}."],
        ["Let another instance do it; for touches, set `touch.enabled: true`."];
    ConfigRefused: Warning, None, None, false, [Ticket],
        ["The changed file {file} is not used: {error}."],
        ["`throughline config --config {file}`"];
    EventLogFailing: Warning, None, None, false, [Ticket],
        ["Lines of {file} cannot be written: {error}. Orphan deletes wait."],
        ["Free or enlarge the volume; see `eventLog.size`."];
    Bug: Error, None, None, false, [Ticket],
        ["throughline reached a state that should not exist: {error}."],
        ["Report it with the event log (`throughline export`)."];
    TouchIneffective: Error, Some(Announced), None, false, [],
        ["Touches have no effect at {edge}: {error}."],
        ["Upgrade Envoy Gateway to v1.1 or later, or use the default `touch.key`."];
    TouchScopeWrong: Error, Some(Announced), None, false, [],
        ["Scope `gatewayClass` misses Gateways: GatewayClass {what} of {edge} is not merged."],
        ["Set `touch.scope: gateway`."];
    RetentionMissing: Warning, Some(Carried), None, false, [],
        ["Karmada may bring back old triggers: it has no retention rule for Gateways."],
        ["`@{hub} apply -f deploy/karmada/retain-trigger.yaml`"];
    PermissionsExcess: Warning, None, None, false, [],
        ["throughline may do more in {cluster} than it needs: {what}."],
        ["Remove these permissions."];
    AnnotationRemoved: Info, Some(Mirrored), None, true, [],
        ["The upstream Connector of {object} is gone; its annotation was removed."],
        ["None if it was deleted on purpose: the platform deletes the hub Connector. \
          Otherwise restore it in {upstream}."];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// A step on a change's way to the users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Hop {
    /// The status changed upstream: the start of the way.
    Upstream,
    /// The hub annotation equals the upstream status.
    Mirrored,
    /// An edge Connector equals the hub Connector.
    Carried,
    /// The Gateways of an edge announce the edge Connector.
    Announced,
}

/// The state of a connector: the worst of its hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum State {
    Ok,
    Pending,
    /// throughline can do nothing until an operator or another controller acts.
    Held,
    Unknown,
    Stuck,
}

/// The alert for a cause. The alert about stuck connectors follows from the cause's state instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum AlertRule {
    NotWatched,
    Upstream,
    Ticket,
    Leader,
    Shard,
    Paused,
}

closed_list!(Cause, Severity, Hop, State, AlertRule);

impl Hop {
    /// The hops that take time and can be late.
    pub const TIMED: [Self; 3] = [Self::Mirrored, Self::Carried, Self::Announced];
}

/// A row of the table.
#[derive(Debug)]
pub struct CauseInfo {
    pub severity: Severity,
    /// The hop that it delays; `None` if it does not concern exactly one hop.
    pub hop: Option<Hop>,
    /// The state of the connectors concerned.
    pub state: Option<State>,
    /// Whether a Kubernetes Event is posted.
    pub event: bool,
    pub alert: &'static [AlertRule],
    /// The description, with placeholders for the subject and the facts.
    pub sentence: &'static [&'static str],
    /// The remedy, in one line. Commands and keys are in backticks; `@{cluster}` is replaced by
    /// kubectl for that cluster.
    pub remedy: &'static [&'static str],
}

/// One occurrence of a cause for one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub cause: Cause,
    pub about: About,
    pub since: UnixMillis,
    pub facts: Facts,
}

/// Identifies a problem while its facts change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProblemId {
    pub cause: Cause,
    pub cluster: ClusterName,
    /// `None` if it is about a whole, as is `object`: another object may become the first.
    pub kind: Option<Kind>,
    pub object: Option<NamespacedName>,
    pub whole: Option<Box<str>>,
}

/// The subject of a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    pub cluster: ClusterName,
    /// `None` if it is none of the watched kinds.
    pub kind: Option<Kind>,
    /// An empty name means all objects of the namespace.
    pub object: Option<NamespacedName>,
    /// The number of further objects with the same problem.
    pub more: usize,
    /// What has the problem as a whole, if `object` is only the first of it now: an upstream, the
    /// fleet, or a GatewayClass.
    #[serde(skip)]
    pub whole: Option<Box<str>>,
}

/// The facts for the texts, beside the subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    pub upstream: Option<ClusterName>,
    pub hub: Option<ClusterName>,
    pub edge: Option<ClusterName>,
    pub error: Option<RequestFailure>,
    pub verb: Option<Box<str>>,
    /// The name of the role that the remedy creates.
    pub role: Option<Box<str>>,
    /// The user that the API server sees.
    pub account: Option<Box<str>>,
    /// A field manager.
    pub manager: Option<Box<str>>,
    /// An annotation, a label, a key of the configuration or a resource.
    pub key: Option<Box<str>>,
    /// The holder of a Lease.
    pub holder: Option<Box<str>>,
    /// A source of clusters.
    pub source: Option<Box<str>>,
    /// A file, a kubeconfig with its context, or a Secret.
    pub file: Option<Box<str>>,
    pub what: Option<Box<str>>,
    pub part: usize,
    pub whole: usize,
    pub limit_ms: Option<u64>,
}

/// Returns the kubectl command for a cluster as the reader uses it; `None` if unknown.
pub type Kubectl<'a> = &'a dyn Fn(&ClusterName) -> Option<String>;

impl Problem {
    pub fn new(cause: Cause, about: About, since: UnixMillis) -> Self {
        Self { cause, about, since, facts: Facts::default() }
    }

    pub fn id(&self) -> ProblemId {
        let About { cluster, kind, object, whole, .. } = self.about.clone();
        let object = object.filter(|_| whole.is_none());
        let kind = kind.filter(|_| whole.is_none());
        ProblemId { cause: self.cause, cluster, kind, object, whole }
    }

    pub fn sentence(&self) -> String {
        self.cause.sentence(&self.about, &self.facts)
    }
}

impl ProblemId {
    /// Whether it is about one object of a kind that is watched, which a Lease is not.
    pub fn is_about_object(&self) -> bool {
        self.kind.is_some() && self.object.is_some()
    }
}

impl About {
    /// A whole cluster, or a source of clusters.
    pub fn cluster(cluster: &ClusterName) -> Self {
        Self { cluster: cluster.clone(), kind: None, object: None, more: 0, whole: None }
    }

    pub fn object(cluster: &ClusterName, kind: Kind, object: NamespacedName) -> Self {
        Self { kind: Some(kind), object: Some(object), ..Self::cluster(cluster) }
    }
}

impl Facts {
    /// Parses RBAC's 403: `User "a" cannot patch resource "gateways" in API group "b.c" …`. A
    /// webhook's 403 names no user.
    pub fn of_refusal(error: &RequestFailure) -> Self {
        let after = |mark: &str| {
            let (_, rest) = error.split_once(mark)?;
            Some(rest.split_once('"').map_or(rest, |(value, _)| value))
        };
        let verb = error.split_once(" cannot ").and_then(|(_, rest)| rest.split(' ').next());
        let account = after("User \"").filter(|_| error.cause == ErrorCause::Forbidden);
        let named = account.zip(verb).zip(after("resource \""));
        let known = named.map(|((account, verb), resource)| {
            let group = after("API group \"").filter(|group| !group.is_empty());
            Self {
                verb: Some(verb.into()),
                role: Some(format!("throughline-{resource}-{verb}").into()),
                account: Some(account.into()),
                key: Some(
                    group.map_or(resource.into(), |group| format!("{resource}.{group}").into()),
                ),
                ..Self::default()
            }
        });
        Self { error: Some(error.clone()), ..known.unwrap_or_default() }
    }
}

impl Cause {
    /// The cause of a failed list or watch.
    pub fn of_read(error: ErrorCause) -> Self {
        match error {
            ErrorCause::Unauthorized => Self::CredentialsRejected,
            ErrorCause::Kubeconfig | ErrorCause::Certificate => Self::KubeconfigInvalid,
            ErrorCause::Forbidden => Self::PermissionMissing,
            ErrorCause::NotFound => Self::KindNotServed,
            _ => Self::ClusterUnavailable,
        }
    }

    /// The cause of a failed write, never one of a read: those make connectors unknown, and alert
    /// only where no watch is live. Rejected credentials fail a write while the watches go on.
    pub(crate) fn of_write(error: ErrorCause) -> Self {
        match error.class() {
            ErrorClass::Never => Self::WriteRefused,
            ErrorClass::Backoff | ErrorClass::Refetch => Self::WriteFailing,
        }
    }

    /// The description in one sentence.
    pub fn sentence(self, about: &About, facts: &Facts) -> String {
        Texts { about, facts, kubectl: &|_| None }.first_known(self.info().sentence)
    }

    /// The remedy in one line; commands and keys are in backticks.
    pub fn remedy(self, about: &About, facts: &Facts, kubectl: Kubectl<'_>) -> Option<String> {
        let forms = self.remedied_as(facts).info().remedy;
        let first = || Texts { about, facts, kubectl }.first_known(forms);
        (!forms.is_empty()).then(first)
    }

    /// Writes that fail by their credentials have the remedy of such reads.
    fn remedied_as(self, facts: &Facts) -> Self {
        let error = facts.error.as_ref().filter(|_| self == Self::WriteFailing);
        match error.map(|error| Self::of_read(error.cause)) {
            Some(read @ (Self::CredentialsRejected | Self::KubeconfigInvalid)) => read,
            _ => self,
        }
    }
}

/// Fills the forms of a text.
struct Texts<'a> {
    about: &'a About,
    facts: &'a Facts,
    kubectl: Kubectl<'a>,
}

impl Texts<'_> {
    /// The first form with all facts known, or the last form.
    fn first_known(&self, forms: &[&str]) -> String {
        let mut text = String::new();
        for form in forms {
            let is_complete;
            (text, is_complete) = self.fill(form);
            if is_complete {
                break;
            }
        }
        text
    }

    /// Also returns whether every fact is known.
    fn fill(&self, form: &str) -> (String, bool) {
        let mut text = String::new();
        let mut is_complete = true;
        let mut in_command = false;
        let mut rest = form;
        while let Some((before, place)) = rest.split_once('{') {
            let (name, after) = place.split_once('}').unwrap_or((place, ""));
            in_command ^= before.matches('`').count() % 2 == 1;
            rest = after;
            if let Some(before) = before.strip_suffix('@') {
                text += before;
                text += &self.kubectl(name);
                continue;
            }
            text += before;
            let value = self.value(name);
            is_complete &= value.is_some();
            match value {
                Some(value) if in_command => text += &shell_word(&value),
                Some(value) => text += &value.replace('`', "'"),
                None if name == "manager" => text += "Another writer",
                None if in_command => text += &name.to_uppercase(),
                None => text += &format!("unknown {name}"),
            }
        }
        (text + rest, is_complete)
    }

    /// A command never uses throughline's own account, which may lack the permissions.
    fn kubectl(&self, cluster: &str) -> String {
        let cluster = match cluster {
            "cluster" => Some(&self.about.cluster),
            "upstream" => self.facts.upstream.as_ref(),
            "hub" => self.facts.hub.as_ref(),
            _ => self.facts.edge.as_ref(),
        };
        let Some(cluster) = cluster else { return "kubectl".to_owned() };
        (self.kubectl)(cluster).unwrap_or_else(|| format!("at {cluster}: kubectl"))
    }

    fn value(&self, name: &str) -> Option<String> {
        let Self { about, facts, .. } = self;
        let text = |fact: &Option<Box<str>>| fact.as_deref().map(str::to_owned);
        let cluster = |fact: &Option<ClusterName>| fact.as_ref().map(ClusterName::to_string);
        let object = about.object.as_ref();
        match name {
            "cluster" => Some(about.cluster.to_string()),
            "kind" => about.kind.map(|kind| kind.as_str().to_owned()).or_else(|| text(&facts.key)),
            "object" => object.map(|object| objects(object, about.more)),
            "namespace" => object.map(|object| object.namespace().to_owned()),
            "name" => object.map(|object| object.name().to_owned()),
            "upstream" => cluster(&facts.upstream),
            "hub" => cluster(&facts.hub),
            "edge" => cluster(&facts.edge),
            "error" => facts.error.as_ref().map(|error| one_line(error)),
            "verb" => text(&facts.verb),
            "role" => text(&facts.role),
            "account" => text(&facts.account),
            "manager" => text(&facts.manager),
            "key" => text(&facts.key),
            "holder" => text(&facts.holder),
            "source" => text(&facts.source),
            "file" => text(&facts.file),
            "what" => text(&facts.what),
            "part" => Some(facts.part.to_string()),
            "whole" => Some(facts.whole.to_string()),
            "limit" => facts.limit_ms.map(limit),
            _ => None,
        }
    }
}

/// `ns-1/home-lab and 2 more`.
fn objects(first: &NamespacedName, more: usize) -> String {
    let first =
        if first.namespace().is_empty() { first.name().to_owned() } else { first.to_string() };
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// One line, truncated, without a full stop: the sentence adds one.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    match line.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn limit(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms.div_ceil(1_000)),
        _ => format!("{} min", ms.div_ceil(60_000)),
    }
}

/// Quotes a text as one word of a POSIX shell.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        let object = Some(NamespacedName::new("ns-1", "lab"));
        About { kind: Some(Kind::Connector), object, ..About::cluster(&"hub".into()) }
    }

    fn all_facts() -> Facts {
        let text = || Some("x".into());
        let cluster = || Some(ClusterName::from("c"));
        Facts {
            upstream: cluster(),
            hub: cluster(),
            edge: cluster(),
            error: Some("e".into()),
            verb: text(),
            role: text(),
            account: text(),
            manager: text(),
            key: text(),
            holder: text(),
            source: text(),
            file: text(),
            what: text(),
            part: 1,
            whole: 2,
            limit_ms: Some(1),
        }
    }

    #[test]
    fn every_text_is_short_ends_with_a_full_stop_and_uses_only_facts() {
        let about = about();
        let facts = all_facts();
        let texts = Texts { about: &about, facts: &facts, kubectl: &|_| None };
        for cause in Cause::ALL {
            let CauseInfo { sentence, remedy, severity, .. } = cause.info();
            let may_lack_remedy = *severity == Severity::Info;
            assert!((1..=3).contains(&sentence.len()) && remedy.len() <= 4, "{cause:?}");
            assert!(may_lack_remedy || !remedy.is_empty(), "{cause:?}");
            for form in *sentence {
                let has_stop = form.ends_with('.') || form.ends_with("Known clusters stay.");
                assert!(form.chars().count() <= 100 && has_stop, "{form}");
            }
            for form in sentence.iter().chain(*remedy) {
                let (text, is_complete) = texts.fill(form);
                assert!(is_complete && !text.contains(['{', '}', '@', '\n']), "{form}: {text}");
                assert!(form.matches('`').count() % 2 == 0, "{form}");
            }
        }
    }

    #[test]
    fn the_first_form_whose_facts_are_all_known_is_used() {
        let mut facts = Facts { upstream: Some("a".into()), ..Facts::default() };
        let sentence = |facts: &Facts| Cause::UpstreamUnknown.sentence(&about(), facts);
        assert_eq!(sentence(&facts), "Hub objects name upstream a, which is not followed.");
        facts.what = Some("b".into());
        facts.key = Some("clusters[0].name".into());
        assert_eq!(
            sentence(&facts),
            "Upstream b is configured under another name; hub objects call it a."
        );
        assert_eq!(
            Cause::UpstreamUnknown.remedy(&about(), &facts, &|_| None).unwrap(),
            "Rename b; to try it: `throughline check --set 'clusters[0].name'=a`"
        );
    }

    #[test]
    fn a_command_has_the_readers_context_or_says_where_it_belongs() {
        let facts = Facts { hub: Some("hub".into()), what: Some("b".into()), ..Facts::default() };
        let remedy =
            |kubectl: Kubectl<'_>| Cause::NotCarried.remedy(&about(), &facts, kubectl).unwrap();
        let command = "-n ns-1 describe resourcebinding b`";
        assert_eq!(remedy(&|_| None), format!("`at hub: kubectl {command}"));
        let known = |cluster: &ClusterName| Some(format!("kubectl --context {cluster}"));
        assert_eq!(remedy(&known), format!("`kubectl --context hub {command}"));
    }

    #[test]
    fn texts_from_outside_are_one_short_line() {
        let error = format!("500 x: a\n  b`c {}", "d".repeat(300));
        let facts = Facts { error: Some(error.into()), ..Facts::default() };
        let text = Cause::ClusterUnavailable.sentence(&about(), &facts);
        assert!(
            text.starts_with("The API server of hub does not answer: 500 x: a b'c ddd"),
            "{text}"
        );
        assert!(text.ends_with("dd….") && text.chars().count() < 250, "{text}");
    }

    #[test]
    fn what_is_missing_is_said_and_others_are_counted() {
        let object = Some(NamespacedName::new("ns-1", "lab"));
        let about = About { kind: Some(Kind::Gateway), object, more: 2, ..about() };
        let facts = Facts { key: Some("k".into()), ..Facts::default() };
        assert_eq!(
            Cause::Overwritten.sentence(&about, &facts),
            "Another writer keeps overwriting k on Gateway ns-1/lab and 2 more."
        );
        let remedy = Cause::WriteRefused.remedy(&about, &facts, &|_| None).unwrap();
        assert!(remedy.starts_with("Fix the admission webhook or policy that refuses"), "{remedy}");
    }

    #[test]
    fn a_failed_request_has_one_cause() {
        use ErrorCause::{Forbidden, Invalid, Kubeconfig, NotFound, TimedOut, Unauthorized};
        for (error, read, write) in [
            (Unauthorized, Cause::CredentialsRejected, Cause::WriteFailing),
            (Forbidden, Cause::PermissionMissing, Cause::WriteRefused),
            (NotFound, Cause::KindNotServed, Cause::WriteFailing),
            (Kubeconfig, Cause::KubeconfigInvalid, Cause::WriteFailing),
            (Invalid, Cause::ClusterUnavailable, Cause::WriteRefused),
            (TimedOut, Cause::ClusterUnavailable, Cause::WriteFailing),
        ] {
            assert_eq!((Cause::of_read(error), Cause::of_write(error)), (read, write), "{error:?}");
        }
    }
}
