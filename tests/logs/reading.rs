//! Reads a log and keeps the result.

use std::io::{self, Cursor, Write};

use throughline::event_log::{LogEntry, LogError, LogReader, LogWriter};

pub(crate) const HEADER: &str = r#"{"log":"throughline","version":1,"clusters":[{"name":"org/team-1","roles":["upstream"]},{"name":"hub","roles":["downstream","edge"]}]}"#;

/// A time at which logs of these tests begin.
pub(crate) const START_MS: u64 = 1_763_715_600_000;

/// One line of each sort, as the writer writes it.
pub(crate) const LINES: &[&str] = &[
    r#"{"at_ms":1763715601000,"event":"list_started","cluster":"hub","kind":"Namespace"}"#,
    r#"{"at_ms":1763715601001,"event":"listed","cluster":"hub","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns-1","uid":"1bd25ce7-9471-4bb4-a47a-641621928b1a","resourceVersion":"265","creationTimestamp":"2026-11-21T09:21:58.000Z","labels":{"meta.datumapis.com/upstream-cluster-name":"cluster-org_team-1"}}}}"#,
    r#"{"at_ms":1763715601002,"event":"list_finished","cluster":"hub","kind":"Namespace"}"#,
    r#"{"at_ms":1763715601003,"event":"applied","cluster":"org/team-1","object":{"apiVersion":"networking.datumapis.com/v1alpha1","kind":"Connector","metadata":{"namespace":"shop","name":"home-lab","uid":"u1","resourceVersion":"267","managedFields":[{"manager":"agent","time":"2026-11-21T09:22:00.000Z"}]},"status":{"conditions":[{"type":"Ready","status":"True","message":"größer \"als\" sonst"}],"n":1.50}}}"#,
    r#"{"at_ms":1763715601004,"event":"applied","cluster":"hub","object":{"apiVersion":"networking.datumapis.com/v1alpha","kind":"HTTPProxy","metadata":{"namespace":"ns-1","name":"p"},"spec":{"rules":[{"backends":[{"connector":{"name":"home-lab"}}]}]}}}"#,
    r#"{"at_ms":1763715601005,"event":"applied","cluster":"hub","object":{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"namespace":"ns-1","name":"g","annotations":{"a/b":"redacted:1"}},"spec":{"gatewayClassName":"eg"}}}"#,
    r#"{"at_ms":1763715601006,"event":"deleted","cluster":"hub","object":{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"namespace":"ns-1","name":"r","deletionTimestamp":"2026-11-21T09:22:00.000Z"},"spec":{"parentRefs":[{"name":"g"}]}}}"#,
    r#"{"at_ms":1763715601007,"event":"watch_lost","cluster":"hub","kind":"HTTPProxy","error":"410 Gone\n\"too old\"","cause":"expired"}"#,
    r#"{"at_ms":1763715601007,"event":"watch_resumed","cluster":"hub","kind":"HTTPProxy"}"#,
    r#"{"at_ms":1763715601007,"event":"watch_heard","cluster":"org/team-1","kind":"Gateway"}"#,
    r#"{"at_ms":1763715601007,"event":"unreadable","cluster":"hub","kind":"HTTPProxy","namespace":"ns-1","name":"q","error":"spec: a list","cause":"unreadable"}"#,
    r#"{"at_ms":1763715601007,"event":"went_back","cluster":"org/team-1","kind":"Gateway"}"#,
    r#"{"at_ms":1763715601008,"event":"leadership_pending","wait_ms":15000}"#,
    r#"{"at_ms":1763715601008,"event":"leadership_acquired"}"#,
    r#"{"at_ms":1763715601008,"action":{"id":7,"type":"mirror","cluster":"hub","kind":"Connector","namespace":"ns-1","name":"home-lab","annotations":{"a":"{\"x\":1}","b":null},"precondition":{"uid":"u1","resourceVersion":"12","absent":{"cluster":"org/team-1","namespace":"shop","namespaceUid":"u9","names":["g"]}},"connectors":[{"namespace":"shop","name":"home-lab"}]},"because":"the status changed"}"#,
    r#"{"at_ms":1763715601008,"action":{"id":8,"type":"mirror","cluster":"hub","kind":"Connector","namespace":"ns-1","name":"home-lab","annotations":{"a":"{\"x\":2}"},"precondition":{"uid":"u1","annotation":{"key":"a","value":"{\"x\":1}"}}},"because":"the status changed"}"#,
    r#"{"at_ms":1763715601008,"action":{"id":9,"type":"mirror","cluster":"hub","kind":"Connector","namespace":"ns-1","name":"home-lab","annotations":{"a":"{\"x\":2}"},"precondition":{"uid":"u1","annotation":{"key":"a","value":null}}},"because":"the status changed"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":7,"outcome":"applied","resourceVersion":"13"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":8,"outcome":"applied"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":9,"outcome":"unchanged"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":10,"outcome":"superseded"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":11,"outcome":"refused","error":"403","cause":"forbidden"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":11,"outcome":"refused","error":"the annotation is missing","cause":"not_kept"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":12,"outcome":"failed","error":"429","cause":"throttled","retry_after_ms":2000}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":13,"outcome":"failed","error":"timed out"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":14,"outcome":"conflict","error":"409","cause":"conflict"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":15,"outcome":"not_found"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":16,"outcome":"dropped"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":17,"outcome":"dry_run"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":18,"outcome":"applied"}"#,
    r#"{"at_ms":1763715601009,"event":"action_finished","id":19,"outcome":"unanswered","error":"timed out"}"#,
    r#"{"at_ms":1763715601010,"event":"leadership_lost"}"#,
    r#"{"at_ms":1763715601011,"event":"cluster_added","cluster":"org/team-2","roles":["upstream"]}"#,
    r#"{"at_ms":1763715601012,"event":"list_started","cluster":"org/team-2","kind":"Connector"}"#,
    r#"{"at_ms":1763715601013,"event":"cluster_removed","cluster":"org/team-2"}"#,
    r#"{"at_ms":1763715601013,"event":"discovery_started","source":"milo","join":"needed"}"#,
    r#"{"at_ms":1763715601013,"event":"cluster_offered","source":"milo","cluster":"org-3","uid":"5a0f7c2e-8d0b-4c7b-9a55-3f1f5b6f0a11","roles":["upstream"],"state":"ready"}"#,
    r#"{"at_ms":1763715601013,"event":"cluster_offered","source":"kubeconfigDir","cluster":"member","uid":"","roles":["edge"],"state":"not_ready"}"#,
    r#"{"at_ms":1763715601013,"event":"cluster_offered","source":"milo","cluster":"org-3","uid":"5a0f7c2e-8d0b-4c7b-9a55-3f1f5b6f0a11","roles":["upstream"],"state":"deleting"}"#,
    r#"{"at_ms":1763715601013,"event":"cluster_offered","source":"kubeconfigSecrets","cluster":"org-4","uid":"f0c9d8b7","roles":["upstream"],"state":"broken","error":"exec is not allowed","cause":"kubeconfig"}"#,
    r#"{"at_ms":1763715601013,"event":"cluster_withdrawn","source":"milo","cluster":"org-3","uid":"5a0f7c2e-8d0b-4c7b-9a55-3f1f5b6f0a11"}"#,
    r#"{"at_ms":1763715601013,"event":"discovery_finished","source":"milo"}"#,
    r#"{"at_ms":1763715601013,"event":"discovery_lost","source":"milo","error":"403 Forbidden: no","cause":"forbidden"}"#,
    r#"{"at_ms":1763715601013,"event":"discovery_resumed","source":"milo"}"#,
    r#"{"at_ms":1763715601013,"event":"cluster_gone","source":"milo","cluster":"org-3"}"#,
    r#"{"at_ms":1763715601014,"event":"timed_out"}"#,
    r#"{"at_ms":1763715601014,"event":"recording_ended"}"#,
];

pub(crate) fn sample() -> String {
    format!("{HEADER}\n{}\n", LINES.join("\n"))
}

/// The result of reading a log: its entries, written again; the warnings; and the error that ended
/// it.
#[derive(Debug, Default)]
pub(crate) struct ReadResult {
    pub(crate) lines: usize,
    pub(crate) written: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) error: Option<String>,
}

pub(crate) fn drain<R: io::BufRead>(reader: Result<LogReader<R>, LogError>) -> ReadResult {
    let mut result = ReadResult::default();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return ReadResult { error: Some(error.to_string()), ..result },
    };
    let mut writer = LogWriter::new(Vec::new(), reader.header()).unwrap();
    loop {
        match reader.next_line() {
            Ok(Some(LogEntry::Event(event))) => writer.event(&event).unwrap(),
            Ok(Some(LogEntry::Action(decision))) => writer.action(&decision).unwrap(),
            Ok(Some(LogEntry::Retired)) => continue,
            Ok(None) => break,
            Err(error) => {
                result.error = Some(error.to_string());
                break;
            }
        }
        result.lines += 1;
    }
    assert!(reader.next_line().unwrap().is_none(), "nothing comes after the end or an error");
    result.warnings = reader.warnings().iter().map(ToString::to_string).collect();
    assert!(reader.warnings().is_empty(), "warnings are drained");
    result.written = String::from_utf8(writer.into_inner()).unwrap();
    result
}

pub(crate) fn read(bytes: impl AsRef<[u8]>) -> ReadResult {
    drain(LogReader::new("x.jsonl", Cursor::new(bytes.as_ref())))
}

pub(crate) fn read_any(bytes: impl Into<Vec<u8>>) -> ReadResult {
    drain(LogReader::decompressing("x.jsonl", Cursor::new(bytes.into())))
}

/// Lines after the sample header.
pub(crate) fn read_lines(lines: &str) -> ReadResult {
    read(format!("{HEADER}\n{lines}"))
}

#[track_caller]
pub(crate) fn check_silent(result: &ReadResult, lines: usize) {
    assert_eq!((result.lines, &result.error, &result.warnings), (lines, &None, &vec![]));
}

pub(crate) fn gzip(data: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data.as_bytes()).unwrap();
    encoder.finish().unwrap()
}
