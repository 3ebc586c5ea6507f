//! Liveness and canonical JSON give the same answers as Go: vectors written by Go programs, and
//! properties.

use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use throughline_core::status::go_json::{canonical, reduce};
use throughline_core::status::liveness::{Liveness, decode, read};

use crate::go_vectors::check;

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

fn liveness(lines: &str, count: usize) {
    check(lines, count, |v: LivenessVector| {
        let want = Liveness { online: v.online, node_id: v.node_id.into() };
        let got = read(v.annotation.as_deref(), v.live.as_deref().map(RawValue::get));
        (got == want).then_some(()).ok_or(format!("{:?}: got {got:?}, want {want:?}", v.name))
    });
}

fn spelling(lines: &str, count: usize) {
    check(lines, count, |v: SpellingVector| {
        let (got, want) = (canonical(&v.status), v.annotation);
        (got == want).then_some(()).ok_or(format!("{:?}: got {got:?}, want {want:?}", v.name))
    });
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
fn canonical_json_as_the_platform_writes_it() {
    spelling(include_str!("../../../../tests/vectors/platform-spelling.jsonl"), 14);
}

#[test]
fn canonical_json_as_go_encodes_it() {
    spelling(include_str!("../../../../tests/vectors/spelling.jsonl"), 40);
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

/// Any JSON value, with the numbers and texts for which JSON writers differ.
fn json() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-c]{0,2}", "\\PC{0,8}", "[<>&\u{2028}\u{2029}\"\\\\\u{1}\n]{0,4}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // `-0.0` is the one value that a second pass changes: first to `-0`, then to `0`.
        any::<f64>().prop_map(|f| Value::from(f + 0.0)),
        (-30..30i32, any::<u16>()).prop_map(|(e, n)| Value::from(f64::from(n) * 10f64.powi(e))),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((text.clone(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Writes a value with its keys in another order and white space between all tokens.
fn rewrite(value: &Value, turn: usize, out: &mut String) {
    let space = [" ", "\n", "\t\r", ""][turn % 4];
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.reverse();
            let middle = turn % entries.len().max(1);
            entries.rotate_left(middle);
            *out += &format!("{space}{{");
            for (i, (key, value)) in entries.into_iter().enumerate() {
                let comma = if i > 0 { "," } else { "" };
                *out += &format!("{comma}{space}{}{space}:", Value::from(key.as_str()));
                rewrite(value, turn + i + 1, out);
            }
            *out += &format!("{space}}}");
        }
        Value::Array(list) => {
            *out += &format!("{space}[");
            for (i, value) in list.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                rewrite(value, turn + i, out);
            }
            *out += &format!("{space}]");
        }
        leaf => *out += &format!("{space}{leaf}{space}"),
    }
}

/// A Connector's status, mostly well-formed.
fn status() -> impl Strategy<Value = Value> {
    let condition = (
        prop_oneof![4 => Just("Ready"), 1 => Just("Accepted"), 1 => Just("ready")],
        prop_oneof![3 => Just("True"), 1 => Just("False"), 1 => Just("Unknown")],
        prop_oneof![8 => Just("2026-05-01T10:00:00Z"), 1 => Just("yesterday")],
        any::<Option<i64>>(),
        "\\PC{0,10}",
    )
        .prop_map(|(kind, status, time, generation, message)| {
            serde_json::json!({
                "type": kind, "status": status, "lastTransitionTime": time,
                "observedGeneration": generation, "message": message, "reason": "R",
            })
        });
    let details = ("PublicKey|Relay", "\\PC{0,6}", any::<u16>(), json()).prop_map(
        |(kind, id, port, extra)| {
            serde_json::json!({"type": kind, "extra": extra, "publicKey": {
                "id": id, "addresses": [{"address": "198.51.100.7", "port": port}],
            }})
        },
    );
    (vec(condition, 0..4), prop::option::of(details), json()).prop_map(
        |(conditions, details, extra)| {
            serde_json::json!({
                "conditions": conditions, "connectionDetails": details, "extra": extra,
            })
        },
    )
}

proptest! {
    #[test]
    fn a_second_pass_changes_nothing(value in json()) {
        let once = canonical(&value.to_string());
        prop_assert!(once.is_some());
        prop_assert_eq!(once.as_deref().and_then(canonical), once);
    }

    #[test]
    fn white_space_and_the_order_of_keys_do_not_matter(value in json(), turn in 0..1000usize) {
        let mut text = String::new();
        rewrite(&value, turn, &mut text);
        prop_assert_eq!(canonical(&text), canonical(&value.to_string()), "{}", text);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC*|[\\[\\]{}:,\"\\\\u0-9dD8cC.eE+-]{0,40}") {
        let _ = (decode(&text), canonical(&text), reduce(&text));
        let _ = decode(&format!(r#"{{"conditions":[{{"type":"{text}"}}]}}"#));
    }

    #[test]
    fn torn_statuses_never_decode(status in status(), at in any::<prop::sample::Index>()) {
        let text = status.to_string();
        let torn: String = text.chars().take(at.index(text.chars().count())).collect();
        prop_assert_eq!(decode(&torn), None, "{}", torn);
        prop_assert_eq!(canonical(&torn), None, "{}", torn);
        prop_assert_eq!(reduce(&torn), None, "{}", torn);
    }

    #[test]
    fn liveness_survives_canonical_form_and_reduction(status in status(), turn in 0..1000usize) {
        let mut text = String::new();
        rewrite(&status, turn, &mut text);
        let liveness = decode(&text);
        prop_assert_eq!(canonical(&text).and_then(|t| decode(&t)), liveness.clone(), "{}", text);
        if liveness.is_some() {
            prop_assert_eq!(reduce(&text).and_then(|t| decode(&t)), liveness, "{}", text);
        }
    }
}
