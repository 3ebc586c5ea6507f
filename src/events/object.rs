//! A `core/v1` Event as it goes over the wire, spelled as client-go spells it.

use serde_json::{Value, json};

use crate::core::subject::Subject;
use crate::core::time::UnixMillis;

/// Who reports.
const COMPONENT: &str = "throughline";

/// Characters of a message; the newer events API takes no more.
const MESSAGE_CHARS_MAX: usize = 1024;

/// Characters of the name that stand before the number; an object's name may take 253.
const NAME_CHARS_MAX: usize = 236;

/// An object, as an Event names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its `kind`.
    pub kind: String,
    /// Its namespace, which is the Event's, too.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty where it is not known.
    pub uid: String,
    /// Its resourceVersion; empty where it is not known.
    pub resource_version: String,
}

impl From<Subject> for Reference {
    fn from(subject: Subject) -> Self {
        Self {
            api_version: subject.kind.api_version().to_owned(),
            kind: subject.kind.as_str().to_owned(),
            namespace: subject.object.namespace,
            name: subject.object.name,
            uid: subject.uid.unwrap_or_default(),
            resource_version: subject.resource_version.unwrap_or_default(),
        }
    }
}

/// An Event's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// For information.
    Normal,
    /// A person may have to do something.
    Warning,
}

impl Severity {
    /// As Events spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

/// Something to tell on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// When it came about.
    pub at: UnixMillis,
    /// The object.
    pub about: Reference,
    /// For information, or for a person.
    pub severity: Severity,
    /// Why, in one word: `StalledMirror`.
    pub reason: &'static str,
    /// Why, for people; no addresses and no node ids.
    pub message: String,
}

/// An Event to be created, or counted where it is there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The Event's own name.
    pub name: String,
    /// When it came about first.
    pub first_at: UnixMillis,
    /// How often by now; more than 1: it is there already.
    pub count: u32,
    /// What it says, with the time of the last occurrence.
    pub report: Report,
}

impl Sending {
    /// The body of a POST.
    pub(super) fn event(&self) -> Value {
        let Report { at, about, severity, reason, .. } = &self.report;
        let mut involved = json!({
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
        });
        let known = [("uid", &about.uid), ("resourceVersion", &about.resource_version)];
        for (member, value) in known.into_iter().filter(|(_, value)| !value.is_empty()) {
            involved[member] = value.as_str().into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": about.namespace},
            "involvedObject": involved,
            "reason": reason,
            "message": self.message(),
            "type": severity.as_str(),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": seconds(self.first_at),
            "lastTimestamp": seconds(*at),
            "count": self.count,
        })
    }

    /// The body of a PATCH: what another occurrence changes.
    pub(super) fn patch(&self) -> Value {
        json!({
            "count": self.count,
            "lastTimestamp": seconds(self.report.at),
            "message": self.message(),
        })
    }

    fn message(&self) -> String {
        self.report.message.chars().take(MESSAGE_CHARS_MAX).collect()
    }
}

/// An Event's name: the object's, and a number that was never used on it.
pub(super) fn name(about: &Reference, number: u64) -> String {
    let name: String = about.name.chars().take(NAME_CHARS_MAX).collect();
    format!("{}.{number:016x}", name.trim_end_matches(['.', '-']))
}

/// RFC 3339 in whole seconds: an Event's time has no more.
fn seconds(at: UnixMillis) -> String {
    let text = at.to_string();
    format!("{}Z", text.split('.').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spelled_as_client_go_spells_it() {
        let about = Reference {
            api_version: "networking.datumapis.com/v1alpha1".into(),
            kind: "Connector".into(),
            namespace: "ns-1".into(),
            name: "home-lab".into(),
            uid: "u-1".into(),
            resource_version: "7".into(),
        };
        let at = UnixMillis(1_795_252_772_865);
        let severity = Severity::Warning;
        let message = "x".repeat(2_000);
        let report = Report { at, about, severity, reason: "StalledMirror", message };
        let name = name(&report.about, 255);
        let sending = Sending { name, first_at: UnixMillis(at.0 - 60_000), count: 2, report };
        let event = sending.event();
        assert_eq!(event["metadata"]["name"], "home-lab.00000000000000ff");
        assert_eq!(event["firstTimestamp"], "2026-11-21T09:18:32Z");
        assert_eq!(event["lastTimestamp"], "2026-11-21T09:19:32Z");
        assert_eq!(event["involvedObject"]["uid"], "u-1");
        assert_eq!(event["message"].as_str().map(str::len), Some(MESSAGE_CHARS_MAX));
        let patch = sending.patch();
        assert_eq!(
            (&patch["count"], patch.as_object().map(serde_json::Map::len)),
            (&json!(2), Some(3))
        );
    }

    #[test]
    fn a_name_is_one_that_an_api_server_takes() {
        let about = |name: String| Reference { name, ..Reference::default() };
        assert!(name(&about("a".repeat(253)), u64::MAX).len() <= 253);
        assert_eq!(name(&about(format!("{}.b", "a".repeat(235))), 1).find(".."), None);
    }
}
