//! Canonical JSON, liveness, and what is read from labels and annotations.

use throughline::core::data::ids::Kind;
use throughline::core::data::objects::{Object, WireObject, upstream_cluster_name};
use throughline::core::data::time::UnixMillis;
use throughline::core::status::go_json::{canonical, reduce};
use throughline::core::status::liveness::{self, decode};
use throughline::core::status::trigger::{NodeIds, Trigger, node_stand_in};

/// The fields of a status by which a connector routes.
const FIELDS: &str = "conditions connectionDetails capabilities leaseRef name type status reason message \
    lastTransitionTime observedGeneration publicKey id homeRelay addresses address port";

/// Escapes of letters.
const LETTERS: [&str; 6] = ["\\u004", "\\u005", "\\u006", "\\u007", "\\u017f", "\\u212a"];

/// A key as Go compares it with the name of a field.
pub(super) fn fold(key: &str) -> String {
    key.replace('\u{17f}', "s").replace('\u{212a}', "k").to_ascii_lowercase()
}

/// Whether each of the fields is as often in the text as in its canonical form, and spelled as the API
/// server spells it: Go reads others as well, and then the order of the keys counts.
fn is_plain(text: &str, canonical: &str) -> bool {
    let folded = fold(text);
    let is_exact = |field: &str| {
        let key = format!("\"{field}\":");
        folded.matches(&fold(&key)).count() == canonical.matches(&key).count()
    };
    FIELDS.split(' ').all(is_exact) && !LETTERS.iter().any(|letter| folded.contains(letter))
}

/// The canonical form is a fixed point with the same meaning, and so is the reduced one.
pub(super) fn canonical_json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (once, reduced) = (canonical(text), reduce(text));
    for form in [&once, &reduced].into_iter().flatten() {
        let twice = canonical(form).unwrap_or_else(|| panic!("{form} has no canonical form"));
        // `-0` is the one value that a second pass changes.
        assert!(twice == *form || form.contains("-0"), "{form} became {twice}");
        assert_eq!(canonical(&twice).as_ref(), Some(&twice));
        assert!(!form.contains(|c: char| c.is_ascii_control() && c != '\u{7f}'), "{form:?}");
    }
    if let Some(once) = &once {
        same_value(once, text);
        let live = decode(text).filter(|_| is_plain(text, once));
        if live.is_some() {
            assert_eq!(decode(once), live, "{once}");
            let routes = reduced.as_deref().map(decode);
            assert_eq!(routes, once.starts_with('{').then_some(live), "{reduced:?}");
        }
    }
}

/// Compares as serde_json reads both, which rounds numbers in its own way.
fn same_value(one: &str, other: &str) {
    use serde_json::Value;
    fn is_same(one: &Value, other: &Value) -> bool {
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => {
                let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
                (one - other).abs() <= 1e-15 * one.abs().max(other.abs()).max(f64::MIN_POSITIVE)
            }
            (Value::Array(one), Value::Array(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_same(a, b))
            }
            (Value::Object(one), Value::Object(other)) => {
                let has =
                    |(key, a): (&String, &Value)| other.get(key).is_some_and(|b| is_same(a, b));
                one.len() == other.len() && one.iter().all(has)
            }
            (one, other) => one == other,
        }
    }
    let read = |text| serde_json::from_str::<Value>(text).ok();
    if let (Some(one), Some(other)) = (read(one), read(other)) {
        assert!(is_same(&one, &other), "{one} is not {other}");
    }
}

/// Liveness is the annotation's if that decodes, else the live status's; white space around them does
/// not count, and nothing that is cut off decodes.
pub(super) fn liveness(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (annotation, live) = text.split_once('\0').unwrap_or((text, ""));
    let read = liveness::read(Some(annotation), Some(live));
    let expected = decode(annotation).or_else(|| decode(live)).unwrap_or_default();
    assert_eq!(read, expected);
    assert!(read.online || read.node_id.is_empty(), "{read:?}");
    if let Some(live) = decode(annotation) {
        assert_eq!(decode(&format!(" \t{annotation}\r\n")), Some(live));
        assert_eq!(decode(&format!("{annotation}x")), None);
        let trimmed = annotation.trim_end_matches([' ', '\t', '\r', '\n']);
        if let Some(cut) = trimmed.strip_suffix('}') {
            assert_eq!(decode(cut), None);
        }
    }
}

/// Names, trigger values and times have one spelling, and a stand-in stands for one node id.
pub(super) fn labels(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(trigger) = Trigger::parse(text) {
        assert_eq!(trigger.to_string(), text);
    }
    if let Some(name) = upstream_cluster_name(text) {
        assert!(!name.is_empty() && !name.contains('_'), "{name}");
    }
    if let Some(kind) = Kind::parse(text) {
        assert_eq!(kind.as_str(), text);
    }
    if let Some(time) = UnixMillis::parse_rfc3339(text) {
        assert_eq!(UnixMillis::parse_rfc3339(&time.to_string()), Some(time), "{text}");
    }
    let stand_in = node_stand_in(text, text.len());
    assert_eq!(NodeIds::Redacted.hash(&stand_in), NodeIds::Real.hash(text), "{stand_in}");
    let second = node_stand_in(&stand_in, 0);
    assert_eq!(NodeIds::Redacted.hash(&second), NodeIds::Real.hash(&stand_in), "{second}");
    let escaped = serde_json::to_string(text).unwrap();
    let object = format!(
        r#"{{"kind":"Connector","metadata":{{"name":{escaped},"namespace":{escaped},
        "labels":{{"meta.datumapis.com/upstream-cluster-name":{escaped},
        "meta.datumapis.com/upstream-namespace":{escaped},"meta.datumapis.com/upstream-name":{escaped}}},
        "creationTimestamp":{escaped},"managedFields":[{{"manager":{escaped},"time":{escaped}}}]}}}}"#
    );
    let wire: WireObject = serde_json::from_str(&object).unwrap();
    if let Ok(object) = Object::try_from(wire) {
        let upstream = object.meta.upstream();
        let expected = upstream_cluster_name(text).map(|cluster| (cluster, text, text));
        assert_eq!(upstream.ok(), expected);
    }
}
