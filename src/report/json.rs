//! The JSON report.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::ReportOptions;
use super::index::{ConnectorHistory, ConnectorIndex};
use super::still_wrong::{StillWrong, still_wrong};
use crate::core::contract::action::{Precondition, Verb};
use crate::core::contract::event::Outcome;
use crate::core::contract::note::{Hop, NoteKind};
use crate::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::outage::{Outage, OutageKind};
use crate::outside_text::plain_json::PlainJson;
use crate::replay::{ActionRecord, Replay, ReplayMode};

/// Writes the replay as one pretty-printed JSON object and a final `\n`.
///
/// Times (`…_ms`) are milliseconds since the Unix epoch. The fields, in this order:
///
/// - `mode`: `"what-if"`, `"verify"` or `"live"` (a demo); `file`; `events`: the number of lines that
///   are events; `from_ms`, `to_ms`: the times of the first and the last line; `ended_ms`: when
///   virtual time, or the live run, ended
/// - `clusters`: `[{name, roles}]`
/// - only where the simulated carrier had a rate, `carrier_rate`: changes a second
/// - `verdict`: a boolean, named `converged` in a what-if or a live run and `verified` in a verify;
///   and `problems`: one sentence each; and `still_wrong`: what is wrong at the end although the
///   verdict may be good, `[{what, connectors, text}]`, where `what` is `down`, `dead_tunnel` or `stuck`
/// - `actions`, in the order decided: `id`, `at_ms`, `type` (`mirror`, `nudge`, `touch`, `delete`),
///   `cluster`, `kind`, `namespace`, `name`; `annotations`: the exact values written, `null` for a
///   removed key, the field absent for a delete; `precondition`; `connectors`: the connectors it is
///   about, as `"namespace/name"` at the hub and the edges; `because`; `outcome` and
///   `finished_at_ms`, `null` while unknown; `error`: the API server's answer, if there was an error
/// - `connectors`, ordered by upstream: `upstream`: `{cluster, namespace, name}` or `null`;
///   `namespace`, `name` at the hub and the edges, `null` if no such Connector was seen; `hops`:
///   `[{at_ms, hop, cluster, online, after_ms}]`, where `hop` is `upstream`, `mirrored`, `arrived` or
///   `touched`, and `after_ms` is the time the hop took, absent if its beginning was not seen;
///   `actions`: ids
/// - `problems`, what was wrong, in the order reported: `cause`, `severity`, `hop` (`mirrored`, `carried`
///   or `announced`; absent if it delays no one hop); `about`: `{cluster, kind, object, more}`, where
///   `more` is how many others have the same problem; `since_ms`, `reported_ms`, `ended_ms` (`null` if
///   it did not end), `message`
/// - `stalls` and `anomalies`: those of the problems that have a hop, and the others
/// - `outages`, what users saw: `{recorded, replayed}`, each `[{edge, namespace, name, kind, from_ms,
///   first_right_ms, until_ms, gateways, by_platform_key}]`, where `kind` is `offline`, `other_node`
///   or `stale_online`; `first_right_ms` and `until_ms` are when the first and the last gateway
///   recovered, or `null`
/// - `warnings`: the reader's, one sentence each
/// - only for a live run, `requests`: `[{cluster, verb, resource, writes, count}]`, the requests to
///   the API servers; and `needless_writes`: how many writes changed nothing
///
/// `options.connector` narrows `actions`, `connectors`, `problems` and `outages`; the other fields cover the
/// whole log.
///
/// # Errors
/// Those of `out`.
pub fn json(replay: &Replay, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let index = ConnectorIndex::new(replay, options.connector.as_ref());
    let mut out = BufWriter::new(out);
    let mut serializer = serde_json::Serializer::pretty(PlainJson::new(&mut out));
    let mut map = serializer.serialize_map(None)?;
    report_fields(&index, true, &mut map)?;
    map.end()?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes the fields of [`json`]. Without `with_annotations`, actions lack `annotations` and
/// `precondition`, which make up most of a report's size.
pub(super) fn report_fields<M: SerializeMap>(
    index: &ConnectorIndex<'_>,
    with_annotations: bool,
    map: &mut M,
) -> Result<(), M::Error> {
    let replay = index.replay;
    map.serialize_entry("mode", &replay.mode)?;
    map.serialize_entry("file", &replay.file)?;
    map.serialize_entry("events", &replay.events)?;
    map.serialize_entry("from_ms", &replay.first_at)?;
    map.serialize_entry("to_ms", &replay.last_at)?;
    map.serialize_entry("ended_ms", &replay.ended_at)?;
    map.serialize_entry("clusters", &replay.clusters)?;
    if let Some(rate) = replay.carrier_rate {
        map.serialize_entry("carrier_rate", &rate.per_second())?;
    }
    map.serialize_entry("verdict", &verdict(index))?;
    let rows = || index.actions().map(|record| ActionRow::new(record, with_annotations));
    map.serialize_entry("actions", &Rows(rows))?;
    let connectors = || index.histories.iter().map(|history| ConnectorRow::new(index, history));
    map.serialize_entry("connectors", &Rows(connectors))?;
    map.serialize_entry("problems", &index.spans)?;
    let spans = |has_hop: bool| index.spans.iter().filter(move |s| s.hop.is_some() == has_hop);
    map.serialize_entry("stalls", &Rows(|| spans(true)))?;
    map.serialize_entry("anomalies", &Rows(|| spans(false)))?;
    let recorded = Rows(|| {
        replay.recorded.iter().filter(|o| index.includes(&o.connector)).map(OutageRow::new)
    });
    let replayed = Rows(|| {
        replay.replayed.iter().filter(|o| index.includes(&o.connector)).map(OutageRow::new)
    });
    map.serialize_entry("outages", &Outages { recorded, replayed })?;
    map.serialize_entry("warnings", &replay.warnings)?;
    if replay.mode == ReplayMode::Live {
        map.serialize_entry("requests", &replay.requests)?;
        map.serialize_entry("needless_writes", &replay.needless_writes())?;
    }
    Ok(())
}

/// A list whose rows are built while they are written.
struct Rows<F>(F);

impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for Rows<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Serialises a value as its `Display` text.
struct AsText<T>(T);

impl<T: Display> Serialize for AsText<T> {
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
    still_wrong: Vec<StillWrong>,
}

fn verdict<'a>(index: &ConnectorIndex<'a>) -> VerdictRow<'a> {
    let replay = index.replay;
    let good =
        |verify| ((replay.mode == ReplayMode::Verify) == verify).then_some(replay.verdict.good);
    VerdictRow {
        converged: good(false),
        verified: good(true),
        problems: &replay.verdict.problems,
        still_wrong: still_wrong(index),
    }
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
    connectors: Vec<AsText<&'a ObjectKey>>,
    because: &'a str,
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    finished_at_ms: Option<UnixMillis>,
}

impl<'a> ActionRow<'a> {
    fn new(record: &'a ActionRecord, with_annotations: bool) -> Self {
        let action = &record.decision.action;
        let outcome = record.finished.as_ref().map(|(_, outcome)| outcome);
        let is_delete = action.verb == Verb::Delete;
        Self {
            id: action.id,
            at_ms: record.decision.at,
            r#type: action.verb,
            cluster: &action.cluster,
            kind: action.kind,
            object: &action.object,
            annotations: (with_annotations && !is_delete)
                .then_some(Annotations(&action.annotations)),
            precondition: with_annotations.then_some(&action.precondition),
            connectors: action.connectors.iter().map(AsText).collect(),
            because: &record.decision.because,
            outcome: outcome.map(Outcome::name),
            error: outcome.and_then(super::story_entry::error_of),
            finished_at_ms: record.finished.as_ref().map(|(at, _)| *at),
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
    fn new(index: &ConnectorIndex<'a>, history: &ConnectorHistory<'a>) -> Self {
        let hop = |at: &usize| {
            let note = index.replay.notes.get(*at)?;
            match &note.kind {
                NoteKind::HopPassed { cluster, hop, online, after_ms, .. } => Some(HopRow {
                    at_ms: note.at,
                    hop: *hop,
                    cluster,
                    online: *online,
                    after_ms: *after_ms,
                }),
                _ => None,
            }
        };
        let actions = index.actions_of(history);
        Self {
            upstream: history.upstream.map(|(cluster, key)| UpstreamRow { cluster, key }),
            namespace: history.hub.map(|key| key.namespace.as_str()),
            name: history.hub.map(|key| key.name.as_str()),
            hops: history.hops.iter().filter_map(hop).collect(),
            actions: actions.iter().map(|record| record.decision.action.id).collect(),
        }
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
            first_right_ms: outage.first_recovered,
            until_ms: outage.until,
            gateways: outage.gateways,
            by_platform_key: outage.by_platform_key,
        }
    }
}
