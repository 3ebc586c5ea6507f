//! Removes what always differs between two servers: uids and resourceVersions become the number of
//! their first appearance, so that equal ones stay equal, and times are dropped.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use throughline_core::data::objects::{Object, WireObject};

use crate::sim_apiserver::version;

/// Namespaces that a real server creates itself.
const BUILT_IN_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Posts Events in the namespace `default` of a real server that starts slowly.
const BUILT_IN_REPORTER: &str = "ipallocator-repair-controller";

const UUID_LEN: usize = 36;

/// The uids and resourceVersions of one server, in the order in which they appeared.
#[derive(Default)]
pub(crate) struct Normalizer {
    seen: BTreeMap<String, usize>,
}

impl Normalizer {
    /// Normalizes any answer; `manager` is the field manager of a write.
    pub(crate) fn answer(&mut self, answer: &Value, manager: Option<&str>) -> Value {
        if let Some(events) = answer.as_array() {
            return events.iter().map(|event| self.event(event)).collect();
        }
        if answer.is_string() {
            return answer.clone();
        }
        let kind = answer["kind"].as_str().unwrap_or_default();
        if kind == "Status" {
            return self.status(answer);
        }
        if kind.ends_with("List") {
            return self.list(answer);
        }
        let mut object = self.object(answer);
        if let Some(manager) = manager {
            let fields = answer["metadata"]["managedFields"].as_array();
            let is_recorded =
                fields.is_some_and(|f| f.iter().any(|entry| entry["manager"] == manager));
            object["manager is recorded"] = is_recorded.into();
        }
        object
    }

    fn event(&mut self, event: &Value) -> Value {
        let object = &event["object"];
        let object = match event["type"].as_str().unwrap() {
            "ERROR" => self.status(object),
            "BOOKMARK" => {
                assert!(version(object) > 0, "a bookmark without a version: {object}");
                let mut object = object.clone();
                object["metadata"]["resourceVersion"] = Value::Null;
                object["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
                object
            }
            _ => self.object(object),
        };
        json!({"type": event["type"], "object": object})
    }

    fn status(&mut self, status: &Value) -> Value {
        let mut status = status.clone();
        if let Some(uid) = status["details"]["uid"].as_str() {
            status["details"]["uid"] = self.number(uid).into();
        }
        // Real servers report some causes twice.
        let causes = status.pointer_mut("/details/causes").and_then(Value::as_array_mut);
        if let Some(causes) = causes {
            causes.dedup();
            for cause in causes {
                cause["message"] = self.message(&cause["message"]).into();
            }
        }
        if status["metadata"]["continue"].is_string() {
            status["metadata"]["continue"] = "present".into();
        }
        status["message"] = self.message(&status["message"]).into();
        status
    }

    /// A message without uids and numbers.
    fn message(&self, message: &Value) -> String {
        let mut message = message.as_str().unwrap_or_default().to_owned();
        for (text, number) in self.seen.iter().filter(|(text, _)| text.len() == UUID_LEN) {
            message = message.replace(text, &format!("uid {number}"));
        }
        without_numbers(&message)
    }

    fn list(&mut self, list: &Value) -> Value {
        let kind = list["kind"].as_str().unwrap().trim_end_matches("List");
        let mut items = Vec::new();
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            if kind == "Namespace" && BUILT_IN_NAMESPACES.contains(&name) {
                continue;
            }
            if kind == "Event" && item["reportingComponent"] == BUILT_IN_REPORTER {
                continue;
            }
            assert!(version(list) >= version(item), "a list older than its items: {list}");
            // Lists of built-in kinds omit the items' kind and version.
            let mut typed = item.clone();
            typed["kind"] = kind.into();
            typed["apiVersion"] = list["apiVersion"].clone();
            let mut normalized = self.object(&typed);
            normalized["has a kind"] = item["kind"].is_string().into();
            normalized["has an apiVersion"] = item["apiVersion"].is_string().into();
            items.push(normalized);
        }
        let more = list["metadata"]["continue"].as_str().is_some_and(|token| !token.is_empty());
        json!({
            "kind": list["kind"],
            "apiVersion": list["apiVersion"],
            "more": more,
            "remaining": list["metadata"]["remainingItemCount"],
            "items": items,
        })
    }

    /// The fields that throughline reads; for a Lease or an Event, all fields that clients set.
    fn object(&mut self, object: &Value) -> Value {
        let mut normalized = if object["kind"] == "Lease" {
            object.clone()
        } else if object["kind"] == "Event" {
            // Real servers also write empty fields.
            let mut event = object.clone();
            event.as_object_mut().unwrap().retain(|_, value| !value.is_null() && *value != "");
            event
        } else {
            let wire: WireObject = serde_json::from_str(&object.to_string()).unwrap();
            serde_json::to_value(Object::try_from(wire).unwrap()).unwrap()
        };
        normalized["apiVersion"] = object["apiVersion"].clone();
        let meta = normalized["metadata"].as_object_mut().unwrap();
        for member in ["uid", "resourceVersion"] {
            let text = meta.get(member).and_then(Value::as_str).unwrap().to_owned();
            meta.insert(member.to_owned(), self.number(&text).into());
        }
        assert!(meta.remove("creationTimestamp").is_some(), "every object has a creationTimestamp");
        meta.remove("managedFields");
        normalized
    }

    fn number(&mut self, text: &str) -> usize {
        let next = self.seen.len();
        *self.seen.entry(text.to_owned()).or_insert(next)
    }
}

fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    out
}
