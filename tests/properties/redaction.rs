//! A redacted log has no addresses and no keys, and leads to the same decisions.

mod texts;

use std::collections::BTreeSet;
use std::fs;
use std::io::Cursor;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;
use throughline::core::contract::action::Decision;
use throughline::core::contract::settings::{PlatformKeyMode, Settings};
use throughline::core::data::objects::{PLATFORM_KEY, UPSTREAM_STATUS};
use throughline::core::status::go_json::{canonical, reduce};
use throughline::core::status::liveness;
use throughline::core::status::trigger::{NodeIds, connector_part, node_stand_in};
use throughline::event_log::redact::Redactor;
use throughline::event_log::{Header, LogEntry, LogReader, LogWriter};
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

fn run(
    name: &str,
    log: Vec<u8>,
    mode: ReplayMode,
    change: impl Fn(&mut Settings),
    acted: Option<&mut Vec<u8>>,
) -> Replay {
    let mut reader = LogReader::new(name, Cursor::new(log)).unwrap();
    let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
    let settings = |settings: &mut Settings| {
        change(settings);
        Ok(())
    };
    replay(&mut reader, name, settings, &options, acted, |_| {}).unwrap()
}

fn redacted(log: &[u8]) -> Vec<u8> {
    let mut reader = LogReader::new("acted", Cursor::new(log)).unwrap();
    let header = Header { redacted: Some(true), ..reader.header().clone() };
    let writer = LogWriter::new(Vec::new(), &header).unwrap();
    let mut writer = writer.redacting(Some(Redactor::new()));
    while let Some(line) = reader.next_line().unwrap() {
        match line {
            LogEntry::Event(event) => writer.event(&event).unwrap(),
            LogEntry::Action(decision) => writer.action(&decision).unwrap(),
            LogEntry::Retired => panic!("no event of this log is retired"),
        }
    }
    writer.into_inner()
}

/// Every address and key of a log, found in another way than the redactor finds them.
fn secrets(value: &Value, within: bool, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let lower = key.to_ascii_lowercase();
                let text = value.as_str().unwrap_or_default();
                if ["address", "homerelay"].contains(&&*lower) || (within && lower == "id") {
                    found.insert(text.to_owned());
                } else if key == PLATFORM_KEY {
                    found.extend(text.split_once('/').map(|(_, id)| id.to_owned()));
                } else if key == UPSTREAM_STATUS
                    && let Ok(status) = serde_json::from_str(text)
                {
                    secrets(&status, false, found);
                }
                secrets(value, lower == "publickey", found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| secrets(value, within, found)),
        _ => {}
    }
}

/// Redacts the what-if log of a fixture and verifies it; returns the number of secrets.
fn check(name: &str, log: &str, change: impl Fn(&mut Settings)) -> usize {
    let mut found = BTreeSet::new();
    for line in log.lines() {
        secrets(&serde_json::from_str(line).unwrap(), false, &mut found);
    }
    // Shorter texts may also occur elsewhere.
    found.retain(|secret| secret.len() > 3);

    let mut acted = Vec::new();
    let before = run(name, log.into(), ReplayMode::WhatIf, &change, Some(&mut acted));
    let hidden = redacted(&acted);
    let text = String::from_utf8(hidden.clone()).unwrap();
    for secret in &found {
        assert!(!text.contains(secret), "{name}: {secret} is in the redacted log");
    }
    let log = LogReader::new("hidden", Cursor::new(&hidden)).unwrap();
    let expected: Vec<Decision> = log
        .filter_map(|line| match line.unwrap() {
            LogEntry::Action(decision) => Some(decision),
            LogEntry::Event(_) | LogEntry::Retired => None,
        })
        .collect();
    assert_eq!(expected.len(), before.actions.len(), "{name}");
    let after = run(name, hidden, ReplayMode::Verify, |_| {}, None);
    assert_eq!(after.verdict.problems, Vec::<String>::new(), "{name}");
    for (decided, expected) in after.actions.iter().zip(&expected) {
        assert!(decided.decision.is_logged_as(expected), "{name}: {decided:?} is not {expected:?}");
    }
    found.len()
}

#[test]
fn every_fixture_leads_to_the_same_decisions_when_redacted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let (mut logs, mut secrets) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jsonl") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let log = fs::read_to_string(&path).unwrap();
        logs += 1;
        secrets += check(name, &log, |_| {});
        check(name, &log, |settings| settings.touch.platform_key = PlatformKeyMode::Write);
    }
    assert!(logs > 80 && secrets > 100, "{logs} logs with {secrets} secrets");
}

/// Whoever writes a status chooses its node ids.
#[test]
fn a_node_id_that_looks_like_a_stand_in_is_another_one() {
    let fixture = include_str!("../../fixtures/node-move-changes-the-digest.jsonl");
    let (from, to) = ("8c5d1f3b9a7e42f0", "5d6e7f8091a2b3c4");
    assert!(fixture.contains(from) && fixture.contains(to));
    let log = fixture.replace(to, &node_stand_in(from, 0)).replacen(
        r#""version":1"#,
        r#""version":1,"redacted":false"#,
        1,
    );
    let mut acted = Vec::new();
    let moved = run("stand-in", log.into(), ReplayMode::WhatIf, |_| {}, Some(&mut acted));
    assert_eq!(moved.actions.len(), 3, "a touch and its confirmations");

    let hidden = run("hidden", redacted(&acted), ReplayMode::Verify, |_| {}, None);
    assert_eq!(hidden.verdict.problems, Vec::<String>::new());
    let triggers = |replay: &Replay| -> Vec<_> {
        let actions = replay.actions.iter().map(|record| &record.decision.action);
        actions.map(|action| action.annotations[0].clone()).collect()
    };
    assert_eq!(triggers(&hidden), triggers(&moved), "the same digests");
}

const IDS: [&str; 4] = ["8c5d1f3b9a7e42f0", "a\u{2028}<b>", "", "redacted-no"];
const ADDRESSES: [&str; 4] = ["198.51.100.7", "2001:db8::7&1", "", "1.1.1.1"];

/// The form of a document. Equal choices produce equal text.
#[derive(Clone, Debug)]
struct Form {
    blanks: &'static str,
    shuffle: bool,
    escapes: bool,
}

fn form() -> impl Strategy<Value = Form> {
    (prop_oneof![Just(""), Just(" "), Just("\n\t")], any::<bool>(), any::<bool>())
        .prop_map(|(blanks, shuffle, escapes)| Form { blanks, shuffle, escapes })
}

impl Form {
    fn text(&self, text: &str) -> String {
        if self.escapes && !text.is_empty() {
            return text.encode_utf16().fold("\"".to_owned(), |t, u| t + &format!("\\u{u:04x}"))
                + "\"";
        }
        serde_json::to_string(text).unwrap()
    }

    fn object(&self, members: &[(&str, String)]) -> String {
        let mut members: Vec<_> = members.iter().filter(|(_, v)| !v.is_empty()).collect();
        if self.shuffle {
            members.reverse();
        }
        let blanks = self.blanks;
        let member = |(k, v): &&(&str, String)| format!("{blanks}{}{blanks}:{v}", self.text(k));
        format!("{{{}{blanks}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
    }
}

/// The content of a document.
#[derive(Clone, Debug)]
struct Content {
    online: Option<bool>,
    id: usize,
    id_key: &'static str,
    relay: usize,
    addresses: Vec<usize>,
    /// 0: valid. Other numbers break the decoding or the canonical form.
    odd: usize,
}

fn content() -> impl Strategy<Value = Content> {
    let key = prop_oneof![4 => Just("id"), 1 => Just("ID"), 1 => Just("other")];
    let odd = prop_oneof![6 => Just(0_usize), 4 => 1..8_usize];
    (
        any::<Option<bool>>(),
        0..IDS.len(),
        key,
        0..4_usize,
        prop::collection::vec(0..4_usize, 0..3),
        odd,
    )
        .prop_map(|(online, id, id_key, relay, addresses, odd)| Content {
            online,
            id,
            id_key,
            relay,
            addresses,
            odd,
        })
}

impl Content {
    fn text(&self, by: &Form) -> String {
        let ready = |online| {
            let status = if online { "True" } else { "False" };
            by.object(&[("type", by.text("Ready")), ("status", by.text(status))])
        };
        let address = |i: &usize| {
            let port = if self.odd == 1 { "\"7\"" } else { "7" };
            by.object(&[("address", by.text(ADDRESSES[*i])), ("port", port.into())])
        };
        let addresses: Vec<_> = self.addresses.iter().map(address).collect();
        let key = by.object(&[
            (self.id_key, by.text(IDS[self.id])),
            ("homeRelay", by.text(ADDRESSES[self.relay])),
            ("addresses", format!("[{}]", addresses.join(&format!(",{}", by.blanks)))),
        ]);
        let details = by.object(&[("publicKey", key), ("type", by.text("PublicKey"))]);
        let status = by.object(&[
            ("conditions", self.online.map_or(String::new(), |o| format!("[{}]", ready(o)))),
            ("connectionDetails", details),
            ("x", if self.odd == 2 { "1e999".into() } else { String::new() }),
            ("y", if self.odd == 3 { "[".repeat(200) + &"]".repeat(200) } else { String::new() }),
        ]);
        match self.odd {
            4 => format!("[{status}]"),
            5 => serde_json::to_string(&status).unwrap(),
            6 => status + "}",
            7 => "null".into(),
            _ => status,
        }
    }
}

/// What the machine compares: the canonical form if there is one, else the bytes.
fn compared_by(text: &str) -> Result<String, String> {
    canonical(text).ok_or_else(|| text.to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn redaction_keeps_equal_values_equal_and_different_ones_different(
        (a, b) in (content(), content()),
        (by, other) in (form(), form()),
        (twins, same) in any::<(bool, bool)>(),
    ) {
        let redactor = Redactor::new();
        let b = if twins { a.clone() } else { b };
        let a = a.text(&by);
        let b = b.text(if same { &by } else { &other });
        let (hidden_a, hidden_b) = (redactor.status(&a), redactor.status(&b));
        for id in IDS.iter().chain(&ADDRESSES).filter(|s| s.len() > 6) {
            prop_assert!(!hidden_a.contains(id), "{id} in {hidden_a}");
        }

        prop_assert_eq!(canonical(&a).is_some(), canonical(&hidden_a).is_some(), "{} {}", a, hidden_a);
        // Without a canonical form the machine compares bytes, which redaction may change.
        if canonical(&a).is_some() || same {
            prop_assert_eq!(compared_by(&a) == compared_by(&b), compared_by(&hidden_a) == compared_by(&hidden_b), "{} {}", a, b);
        }

        let (shown, hidden) = (liveness::decode(&a), liveness::decode(&hidden_a));
        prop_assert_eq!(shown.is_some(), hidden.is_some(), "{} {}", a, hidden_a);
        if let (Some(shown), Some(hidden)) = (shown, hidden) {
            prop_assert_eq!(shown.online, hidden.online);
            prop_assert_eq!(
                connector_part("lab", shown.online, &shown.node_id),
                NodeIds::Redacted.connector_part("lab", hidden.online, &hidden.node_id)
            );
        }

        // Redaction and the canonical form can be applied in either order.
        prop_assert_eq!(canonical(&hidden_a), canonical(&a).map(|text| redactor.status(&text)));
        prop_assert_eq!(reduce(&hidden_a), reduce(&a).map(|reduced| redactor.status(&reduced)));
    }

    #[test]
    fn a_replacement_is_as_long_as_its_value(address in "[0-9a-f:.<]{7,60}", id in "[0-9a-f]{41,80}") {
        let status = |id: &str, address: &str| format!(
            r#"{{"connectionDetails":{{"publicKey":{{"homeRelay":"{address}","id":"{id}"}}}}}}"#
        );
        let shown = canonical(&status(&id, &address)).unwrap();
        let hidden = Redactor::new().status(&shown);
        prop_assert_eq!(shown.len(), canonical(&hidden).unwrap().len());
        prop_assert!(!hidden.contains(&address) && !hidden.contains(&id));
    }
}
