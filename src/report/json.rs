//! The JSON report.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Value, json};

use super::ReportOptions;
use super::model::{Report, Story};
use super::still_wrong::still_wrong;
use crate::core::contract::action::{Action, Precondition};
use crate::core::contract::event::Outcome;
use crate::core::contract::note::{Note, NoteKind};
use crate::core::data::time::UnixMillis;
use crate::outage::Outage;
use crate::outside_text::plain_json::PlainJson;
use crate::replay::{ActionRecord, Replay, ReplayMode};

/// Writes the replay as one pretty-printed JSON object and a final `\n`.
///
/// Times (`…_ms`) are milliseconds since the Unix epoch. The fields:
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
///   about, by their names at the hub and the edges; `because`; `outcome` and `finished_at_ms`, `null`
///   while unknown; `error`: the API server's answer, if there was an error
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
    let report = Report::new(replay, options.connector.as_ref());
    let mut out = BufWriter::new(out);
    let mut serializer = serde_json::Serializer::pretty(PlainJson::new(&mut out));
    let mut map = serializer.serialize_map(None)?;
    report_fields(&report, true, &mut map)?;
    map.end()?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes the fields of [`json()`]. Without `with_annotations`, actions lack `annotations` and
/// `precondition`, which make up most of a report's size.
pub(super) fn report_fields<M: SerializeMap>(
    report: &Report<'_>,
    with_annotations: bool,
    map: &mut M,
) -> Result<(), M::Error> {
    let replay = report.replay;
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
    map.serialize_entry("verdict", &verdict(report))?;
    let rows = || report.actions().map(|record| ActionRow::new(record, with_annotations));
    map.serialize_entry("actions", &Rows(rows))?;
    let connectors = || report.connectors.iter().map(|story| connector(report, story));
    map.serialize_entry("connectors", &Rows(connectors))?;
    map.serialize_entry("problems", &report.problems)?;
    let spans = |has_hop: bool| report.problems.iter().filter(move |s| s.hop.is_some() == has_hop);
    map.serialize_entry("stalls", &Rows(|| spans(true)))?;
    map.serialize_entry("anomalies", &Rows(|| spans(false)))?;
    let of = |outages: &'static str, all: &[Outage]| {
        let covered = all.iter().filter(|outage| report.includes(&outage.connector));
        (outages, covered.cloned().collect::<Vec<_>>())
    };
    let outages = [of("recorded", &replay.recorded), of("replayed", &replay.replayed)];
    map.serialize_entry("outages", &BTreeMap::from(outages))?;
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

fn verdict(report: &Report<'_>) -> Value {
    let replay = report.replay;
    let name = if replay.mode == ReplayMode::Verify { "verified" } else { "converged" };
    json!({
        name: replay.verdict.good,
        "problems": replay.verdict.problems,
        "still_wrong": still_wrong(report),
    })
}

#[derive(Serialize)]
struct ActionRow<'a> {
    at_ms: UnixMillis,
    #[serde(flatten)]
    action: Cow<'a, Action>,
    because: &'a str,
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    finished_at_ms: Option<UnixMillis>,
}

impl<'a> ActionRow<'a> {
    fn new(record: &'a ActionRecord, with_annotations: bool) -> Self {
        let mut action = Cow::Borrowed(&record.decision.action);
        if !with_annotations {
            let action = action.to_mut();
            action.annotations.clear();
            action.precondition = Precondition::default();
        }
        let outcome = record.finished.as_ref().map(|(_, outcome)| outcome);
        Self {
            at_ms: record.decision.at,
            action,
            because: &record.decision.because,
            outcome: outcome.map(Outcome::name),
            error: outcome.and_then(super::story_entry::error_of),
            finished_at_ms: record.finished.as_ref().map(|(at, _)| *at),
        }
    }
}

fn connector(report: &Report<'_>, story: &Story<'_>) -> Value {
    let upstream = story.upstream.map(|(cluster, key)| {
        json!({ "cluster": cluster, "namespace": key.namespace, "name": key.name })
    });
    let notes = story.hops.iter().filter_map(|at| report.replay.notes.get(*at));
    let actions = report.actions_of(story);
    json!({
        "upstream": upstream,
        "namespace": story.hub.map(|key| &key.namespace),
        "name": story.hub.map(|key| &key.name),
        "hops": notes.filter_map(hop).collect::<Vec<_>>(),
        "actions": actions.iter().map(|record| record.decision.action.id).collect::<Vec<_>>(),
    })
}

fn hop(note: &Note) -> Option<Value> {
    let NoteKind::HopPassed { cluster, hop, online, after_ms, .. } = &note.kind else {
        return None;
    };
    let mut row = json!({ "at_ms": note.at, "hop": hop, "cluster": cluster, "online": online });
    if let (Some(after_ms), Some(row)) = (after_ms, row.as_object_mut()) {
        row.insert("after_ms".to_owned(), (*after_ms).into());
    }
    Some(row)
}
