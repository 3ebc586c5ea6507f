//! A redacted log has no addresses and no keys, and leads to the same decisions.

mod texts;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use throughline::core::contract::settings::{PlatformKeyMode, Settings};
use throughline::core::data::objects::{PLATFORM_KEY, UPSTREAM_STATUS};
use throughline::core::status::go_json::canonical;
use throughline::core::status::trigger::node_stand_in;
use throughline::event_log::redact::Redactor;
use throughline::event_log::{Header, LogEntry, LogReader, LogWriter};
use throughline::replay::{Replay, ReplayMode};

use crate::read_log::replayed;

fn redacted(log: &str) -> String {
    let mut reader = LogReader::new("acted", log.as_bytes()).unwrap();
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
    String::from_utf8(writer.into_inner()).unwrap()
}

fn verified(log: &str) -> Replay {
    replayed(LogReader::new("log", log.as_bytes()), ReplayMode::Verify, |_| {}).0
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

    let (before, acted) =
        replayed(LogReader::new(name, log.as_bytes()), ReplayMode::WhatIf, change);
    let hidden = redacted(&acted);
    for secret in &found {
        assert!(!hidden.contains(secret), "{name}: {secret} is in the redacted log");
    }
    // This compares each decision with the one in the log.
    let after = verified(&hidden);
    assert_eq!(after.problems, Vec::<String>::new(), "{name}");
    assert_eq!(after.actions.len(), before.actions.len(), "{name}");
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
    let (moved, acted) =
        replayed(LogReader::new("log", log.as_bytes()), ReplayMode::WhatIf, |_| {});
    assert_eq!(moved.actions.len(), 3, "a touch and its confirmations");

    let hidden = verified(&redacted(&acted));
    assert_eq!(hidden.problems, Vec::<String>::new());
    let triggers = |replay: &Replay| -> Vec<_> {
        let actions = replay.actions.iter().map(|record| &record.decision.action);
        actions.map(|action| action.annotations[0].clone()).collect()
    };
    assert_eq!(triggers(&hidden), triggers(&moved), "the same digests");
}

/// What is short gets a longer stand-in.
#[test]
fn long_ids_and_addresses_keep_their_length_and_stay_different() {
    let redactor = Redactor::new();
    let status = |id: &str, address: &str| {
        json!({"connectionDetails": {"publicKey": {"homeRelay": address, "id": id}}}).to_string()
    };
    let id = "0123456789abcdef".repeat(4);
    let shown = status(&id, "198.51.100.7");
    let hidden = redactor.status(&shown);
    assert_eq!(canonical(&hidden).map(|text| text.len()), canonical(&shown).map(|text| text.len()));
    for (id, address) in [(&*id, "198.51.100.8"), (&id[1..], "198.51.100.7"), (&*id, ""), ("", "")]
    {
        assert_ne!(redactor.status(&status(id, address)), hidden);
    }
}
