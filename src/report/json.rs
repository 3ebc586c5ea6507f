//! The replay as one JSON object.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::Options;
use super::index::{Chapter, Index, StallSpan};
use crate::core::action::{AnomalyKind, Hop, Note, Noted, Precondition, Verb};
use crate::core::event::Outcome;
use crate::core::ids::{ActionId, ClusterName, Kind, ObjectKey};
use crate::core::keep::Keep;
use crate::core::time::UnixMillis;
use crate::outage::{Outage, OutageKind};
use crate::replay::{Done, Mode, Replay};

/// Writes the replay as one JSON object, pretty-printed, with a `\n` at its end.
///
/// Times (`…_ms`) are milliseconds since the Unix epoch. Members, in this order:
///
/// - `mode`: `"what-if"`, `"verify"` or `"live"` (a demo); `file`; `events`: how many lines were events;
///   `from_ms`, `to_ms`: the first and the last line; `ended_ms`: when virtual time, or
///   the live run, ended
/// - `clusters`: `[{name, roles}]`
/// - `verdict`: `{converged}` of a what-if or a live run, `{verified}` of a verify, a boolean; and
///   `problems`: what is wrong, in words
/// - `actions`: in the order decided: `id`, `at_ms`, `type` (`mirror`, `nudge`, `touch`, `delete`),
///   `cluster`, `kind`, `namespace`, `name`; `annotations`: exactly what was written, `null` for a
///   removed key, the member absent for a delete; `precondition`; `connectors`: those it is about
///   as `"namespace/name"` at hub and edges; `because`; `outcome` and `finished_at_ms`, `null` while
///   unknown; `error`: what came back, where something did
/// - `connectors`: one for each replica, by upstream: `upstream`: `{cluster, namespace, name}` or
///   `null`; `namespace`, `name` at hub and edges, `null` where no replica was seen; `hops`:
///   `[{at_ms, hop, cluster, online, after_ms}]`, `hop` being `upstream`, `mirrored`, `arrived` or
///   `touched`, `after_ms` how long the hop took, absent where its beginning was not seen;
///   `actions`: the ids of those about it
/// - `stalls`: `cluster`, `connector` (`"namespace/name"`), `hop`, `since_ms`, `reported_at_ms`,
///   `ended_at_ms` (`null` when it was not over at the end), `reason`
/// - `anomalies`: `at_ms`, `anomaly`, `cluster`, `namespace` and `name` (or `null`), `detail`
/// - `orphans`: `at_ms`, `cluster`, `namespace`, `name`, `kept` (a word) and `kept_because`: `null`
///   when nothing but the mode and leadership keeps it; once for each change of the judgement
/// - `outages`: what users saw, `{recorded, replayed}`, each `[{edge, namespace, name, kind, from_ms,
///   first_right_ms, until_ms, gateways, by_platform_key}]`; `kind` is `offline`, `other_node` or
///   `stale_online`, an end that never came `null`
/// - `warnings`: the reader's, in words
/// - of a live run alone, `requests`: what the API servers were asked, `[{cluster, verb, resource,
///   writes, count}]`; and `needless_writes`: how many writes changed nothing
///
/// `options.connector` narrows `actions`, `connectors`, `stalls` and `outages`; the rest is of
/// the whole log.
///
/// # Errors
/// Those of `out`.
pub fn json(replay: &Replay, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let index = Index::new(replay, options.connector.as_ref());
    let mut out = BufWriter::new(out);
    let mut serializer = serde_json::Serializer::pretty(&mut out);
    let mut map = serializer.serialize_map(None)?;
    members(replay, &index, true, &mut map)?;
    map.end()?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes the members of [`json`]. Without `written`, actions lack `annotations` and
/// `precondition`: the rest tells what was done, and is short.
pub(super) fn members<M: SerializeMap>(
    replay: &Replay,
    index: &Index<'_>,
    written: bool,
    map: &mut M,
) -> Result<(), M::Error> {
    map.serialize_entry("mode", &replay.mode)?;
    map.serialize_entry("file", &replay.file)?;
    map.serialize_entry("events", &replay.events)?;
    map.serialize_entry("from_ms", &replay.first_at)?;
    map.serialize_entry("to_ms", &replay.last_at)?;
    map.serialize_entry("ended_ms", &replay.ended_at)?;
    map.serialize_entry("clusters", &replay.clusters)?;
    map.serialize_entry("verdict", &verdict(replay))?;
    let wanted = || replay.actions.iter().filter(|done| index.wants(done));
    map.serialize_entry("actions", &Rows(|| wanted().map(|done| ActionRow::new(done, written))))?;
    map.serialize_entry("connectors", &Rows(|| index.chapters.iter().map(ConnectorRow::new)))?;
    map.serialize_entry("stalls", &Rows(|| index.stalls.iter().map(StallRow::new)))?;
    map.serialize_entry("anomalies", &Rows(|| replay.notes.iter().filter_map(AnomalyRow::new)))?;
    map.serialize_entry("orphans", &Rows(|| replay.notes.iter().filter_map(OrphanRow::new)))?;
    let recorded =
        Rows(|| replay.recorded.iter().filter(|o| index.has(&o.connector)).map(OutageRow::new));
    let replayed =
        Rows(|| replay.replayed.iter().filter(|o| index.has(&o.connector)).map(OutageRow::new));
    map.serialize_entry("outages", &Outages { recorded, replayed })?;
    map.serialize_entry("warnings", &replay.warnings)?;
    if replay.mode == Mode::Live {
        map.serialize_entry("requests", &replay.requests)?;
        map.serialize_entry("needless_writes", &replay.needless_writes())?;
    }
    Ok(())
}

/// A list whose rows are made as they are written.
struct Rows<F>(F);

impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for Rows<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Something as it prints.
struct Shown<T>(T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// `{"key": "value" | null}`.
struct Annotations<'a>(&'a [(String, Option<String>)]);

impl Serialize for Annotations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

#[derive(Serialize)]
struct VerdictRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    converged: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    problems: &'a [String],
}

fn verdict(replay: &Replay) -> VerdictRow<'_> {
    let good = |verify| ((replay.mode == Mode::Verify) == verify).then_some(replay.verdict.good);
    VerdictRow { converged: good(false), verified: good(true), problems: &replay.verdict.problems }
}

#[derive(Serialize)]
struct ActionRow<'a> {
    id: ActionId,
    at_ms: UnixMillis,
    r#type: Verb,
    cluster: &'a ClusterName,
    kind: Kind,
    #[serde(flatten)]
    object: &'a ObjectKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    precondition: Option<&'a Precondition>,
    connectors: Vec<Shown<&'a ObjectKey>>,
    because: &'a str,
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    finished_at_ms: Option<UnixMillis>,
}

impl<'a> ActionRow<'a> {
    fn new(done: &'a Done, written: bool) -> Self {
        let action = &done.decision.action;
        let outcome = done.finished.as_ref().map(|(_, outcome)| outcome);
        let is_delete = action.verb == Verb::Delete;
        Self {
            id: action.id,
            at_ms: done.decision.at,
            r#type: action.verb,
            cluster: &action.cluster,
            kind: action.kind,
            object: &action.object,
            annotations: (written && !is_delete).then_some(Annotations(&action.annotations)),
            precondition: written.then_some(&action.precondition),
            connectors: action.connectors.iter().map(Shown).collect(),
            because: &done.decision.because,
            outcome: outcome.map(Outcome::name),
            error: outcome.and_then(super::passage::error_of),
            finished_at_ms: done.finished.as_ref().map(|(at, _)| *at),
        }
    }
}

#[derive(Serialize)]
struct UpstreamRow<'a> {
    cluster: &'a str,
    #[serde(flatten)]
    key: &'a ObjectKey,
}

#[derive(Serialize)]
struct HopRow<'a> {
    at_ms: UnixMillis,
    hop: Hop,
    cluster: &'a ClusterName,
    online: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
}

#[derive(Serialize)]
struct ConnectorRow<'a> {
    upstream: Option<UpstreamRow<'a>>,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    hops: Vec<HopRow<'a>>,
    actions: Vec<ActionId>,
}

impl<'a> ConnectorRow<'a> {
    fn new(chapter: &Chapter<'a>) -> Self {
        let hop = |note: &'a Note| match &note.what {
            Noted::HopPassed { cluster, hop, online, after_ms, .. } => {
                let (at_ms, hop, online, after_ms) = (note.at, *hop, *online, *after_ms);
                Some(HopRow { at_ms, hop, cluster, online, after_ms })
            }
            _ => None,
        };
        Self {
            upstream: chapter.upstream.map(|(cluster, key)| UpstreamRow { cluster, key }),
            namespace: chapter.replica.map(|key| key.namespace.as_str()),
            name: chapter.replica.map(|key| key.name.as_str()),
            hops: chapter.notes.iter().filter_map(|note| hop(note)).collect(),
            actions: chapter.actions.iter().map(|done| done.decision.action.id).collect(),
        }
    }
}

#[derive(Serialize)]
struct StallRow<'a> {
    cluster: &'a ClusterName,
    connector: Shown<&'a ObjectKey>,
    hop: Hop,
    since_ms: UnixMillis,
    reported_at_ms: UnixMillis,
    ended_at_ms: Option<UnixMillis>,
    reason: &'a str,
}

impl<'a> StallRow<'a> {
    fn new(span: &StallSpan<'a>) -> Self {
        Self {
            cluster: &span.stall.cluster,
            connector: Shown(&span.stall.connector),
            hop: span.stall.hop,
            since_ms: span.stall.since,
            reported_at_ms: span.reported_at,
            ended_at_ms: span.ended_at,
            reason: &span.stall.reason,
        }
    }
}

#[derive(Serialize)]
struct AnomalyRow<'a> {
    at_ms: UnixMillis,
    anomaly: AnomalyKind,
    cluster: &'a ClusterName,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    detail: &'a str,
}

impl<'a> AnomalyRow<'a> {
    fn new(note: &'a Note) -> Option<Self> {
        let Noted::Anomaly(anomaly) = &note.what else { return None };
        let object = anomaly.object.as_ref();
        Some(Self {
            at_ms: note.at,
            anomaly: anomaly.anomaly,
            cluster: &anomaly.cluster,
            namespace: object.map(|key| key.namespace.as_str()),
            name: object.map(|key| key.name.as_str()),
            detail: &anomaly.detail,
        })
    }
}

#[derive(Serialize)]
struct OrphanRow<'a> {
    at_ms: UnixMillis,
    cluster: &'a ClusterName,
    #[serde(flatten)]
    route: &'a ObjectKey,
    kept: Option<Keep>,
    kept_because: Option<&'static str>,
}

impl<'a> OrphanRow<'a> {
    fn new(note: &'a Note) -> Option<Self> {
        let Noted::Orphan { cluster, route, kept } = &note.what else { return None };
        let (kept, kept_because) = (*kept, kept.map(Keep::text));
        Some(Self { at_ms: note.at, cluster, route, kept, kept_because })
    }
}

#[derive(Serialize)]
struct Outages<R: Serialize, P: Serialize> {
    recorded: R,
    replayed: P,
}

#[derive(Serialize)]
struct OutageRow<'a> {
    edge: &'a ClusterName,
    #[serde(flatten)]
    connector: &'a ObjectKey,
    kind: OutageKind,
    from_ms: UnixMillis,
    first_right_ms: Option<UnixMillis>,
    until_ms: Option<UnixMillis>,
    gateways: usize,
    by_platform_key: bool,
}

impl<'a> OutageRow<'a> {
    fn new(outage: &'a Outage) -> Self {
        Self {
            edge: &outage.edge,
            connector: &outage.connector,
            kind: outage.kind,
            from_ms: outage.from,
            first_right_ms: outage.first_right,
            until_ms: outage.until,
            gateways: outage.gateways,
            by_platform_key: outage.by_platform_key,
        }
    }
}
