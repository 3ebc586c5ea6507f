//! The JSON report.

use std::io::{self, BufWriter, Write};

use super::ReportOptions;
use super::model::Report;
use crate::outside_text::plain_json::PlainJson;
use crate::replay::Replay;

/// Writes the replay as one pretty-printed JSON object and a final `\n`.
///
/// Times (`…_ms`) are milliseconds since the Unix epoch. The fields:
///
/// - `mode`: `"what-if"`, `"verify"` or `"live"` (a demo); `file`; `events`: the number of lines that
///   are events; `from_ms`, `to_ms`: the times of the first and the last line; `ended_ms`: when
///   virtual time, or the live run, ended
/// - `clusters`: `[{name, roles}]`
/// - only if the simulated carrier has a rate, `carrier_rate`: changes a second
/// - `verdict`: a boolean, named `converged` in a what-if or a live run and `verified` in a verify; and
///   `problems`: one sentence each; and `still_wrong`: the problems at the end, which a good verdict
///   does not exclude, `[{what, connectors, text}]`, where `what` is `down`, `dead_tunnel`, `stuck` or
///   `held`
/// - `actions`, in the order decided: `id`, `at_ms`, `type` (`mirror`, `nudge`, `touch`, `delete`),
///   `cluster`, `kind`, `namespace`, `name`; `annotations`: the exact values written, `null` for a
///   removed key, the field absent for a delete; `precondition`; `connectors`: the connectors it is
///   about, by their names at the hub and the edges; `because`; `outcome` and `finished_at_ms`, `null`
///   while unknown; `error`: the API server's answer, if there was an error
/// - `connectors`, ordered by upstream: `upstream`: `{cluster, namespace, name}` or `null`;
///   `namespace`, `name` at the hub and the edges, `null` if no such Connector was observed; `hops`:
///   `[{at_ms, hop, cluster, online, after_ms}]`, where `hop` is `upstream`, `mirrored`, `carried` or
///   `announced`, and `after_ms` is the time the hop took, absent if its beginning was not observed;
///   `actions`: ids
/// - `problems`, in the order reported: `cause`, `severity`, `hop` (`mirrored`, `carried` or
///   `announced`; absent if it does not delay exactly one hop); `about`: `{cluster, kind, object,
///   more}`, where `more` is the number of further objects with the same problem; `since_ms`,
///   `reported_ms`, `ended_ms` (`null` if it did not end), `message`
/// - `stalls` and `anomalies`: the problems with a hop, and the others
/// - `outages` for users: `{recorded, replayed}`, each `[{edge, namespace, name, kind, from_ms,
///   first_right_ms, until_ms, gateways, by_platform_key}]`, where `kind` is `offline`, `other_node` or
///   `stale_online`; `first_right_ms` and `until_ms` are when the first and the last gateway recovered,
///   or `null`
/// - `warnings`: the reader's, one sentence each
/// - only for a live run, `requests`: `[{cluster, verb, resource, writes, count}]`, the requests to
///   the API servers; and `needless_writes`: how many writes changed nothing
///
/// `options.connector` restricts `actions`, `connectors`, `problems` and `outages`; the other fields
/// cover the whole log.
///
/// # Errors
/// Those of `out`.
pub fn json(replay: &Replay, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let report = Report::new(replay, options.connector.as_ref());
    let mut out = BufWriter::new(out);
    serde_json::to_writer_pretty(PlainJson::new(&mut out), &report)?;
    out.write_all(b"\n")?;
    out.flush()
}
