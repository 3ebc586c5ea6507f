//! Liveness and canonical JSON give the same answers as Go: vectors written by Go programs. The fuzz
//! targets of `tests/properties` hold that other texts keep their meaning.

use serde::Deserialize;
use serde_json::value::RawValue;
use throughline_core::status::go_json::canonical;
use throughline_core::status::liveness::{Liveness, decode, read};

#[derive(Deserialize)]
struct LivenessVector {
    name: String,
    annotation: Option<String>,
    live: Option<Box<RawValue>>,
    online: bool,
    node_id: String,
}

#[derive(Deserialize)]
struct SpellingVector {
    name: String,
    status: String,
    /// `None` when Go refuses the status.
    annotation: Option<String>,
}

/// The vector of each line, of which there must be at least `count`.
fn vectors<T: for<'de> Deserialize<'de>>(lines: &str, count: usize) -> impl Iterator<Item = T> {
    assert!(lines.lines().count() >= count, "fewer than {count} vectors");
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
}

fn liveness(lines: &str, count: usize) {
    for v in vectors::<LivenessVector>(lines, count) {
        let want = Liveness { online: v.online, node_id: v.node_id.into() };
        let got = read(v.annotation.as_deref(), v.live.as_deref().map(RawValue::get));
        assert_eq!(got, want, "{}", v.name);
    }
}

#[test]
fn liveness_as_the_platform_reads_it() {
    liveness(include_str!("../../../../tests/vectors/platform-liveness.jsonl"), 26);
}

#[test]
fn liveness_as_go_decodes_it() {
    liveness(include_str!("../../../../tests/vectors/liveness.jsonl"), 60);
}

#[test]
fn canonical_json_as_go_encodes_it_and_the_platform_writes_it() {
    for (lines, count) in [
        (include_str!("../../../../tests/vectors/spelling.jsonl"), 40),
        (include_str!("../../../../tests/vectors/platform-spelling.jsonl"), 14),
    ] {
        for v in vectors::<SpellingVector>(lines, count) {
            assert_eq!(canonical(&v.status), v.annotation, "{}", v.name);
        }
    }
}

/// Go's limit, 10,000 levels, counted through known fields too. (Too long for a line of vectors.)
#[test]
fn depth_as_go_limits_it() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for (levels, decodes) in [(9_999, true), (10_000, false), (200_000, false)] {
        let document = format!(r#"{{"x":{}}}"#, nested(levels));
        assert_eq!(decode(&document).is_some(), decodes, "{levels} levels in an unknown field");
        let document = format!(r#"{{"conditions":[{{"x":{}}}]}}"#, nested(levels - 2));
        assert_eq!(decode(&document).is_some(), decodes, "{levels} levels in a condition");
    }
}
