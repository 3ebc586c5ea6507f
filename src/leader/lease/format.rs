//! The format of a Lease: the fields that the election reads and writes.

use serde_json::{Value, json};

use crate::client::CallError;
use crate::core::data::time::UnixMillis;
use crate::environment;
use crate::leader::election::LeaseRecord;

/// Reads an API server's answer: the Lease, its record, and its resourceVersion.
///
/// # Errors
/// It is no object with a resourceVersion.
pub fn read(answer: &[u8]) -> Result<(Value, LeaseRecord, String), CallError> {
    let object: Value = serde_json::from_slice(answer)
        .map_err(|e| CallError::Unreadable(format!("not a Lease: {e}")))?;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    if version.is_empty() {
        return Err(CallError::Unreadable("a Lease without a resourceVersion".to_owned()));
    }
    let record = record(&object);
    Ok((object, record, version))
}

/// Reads the answer to a list: each Lease's name and record.
///
/// # Errors
/// It is no list.
pub fn read_list(answer: &[u8]) -> Result<Vec<(String, LeaseRecord)>, CallError> {
    let list: Value = serde_json::from_slice(answer)
        .map_err(|e| CallError::Unreadable(format!("not a list of Leases: {e}")))?;
    let items = list["items"].as_array();
    let items =
        items.ok_or_else(|| CallError::Unreadable("a list of Leases without items".to_owned()))?;
    let name = |lease: &Value| lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(items.iter().map(|lease| (name(lease), record(lease))).collect())
}

fn record(object: &Value) -> LeaseRecord {
    let spec = &object["spec"];
    let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| spec[name].as_u64().unwrap_or_default();
    LeaseRecord {
        holder: text("holderIdentity"),
        lease_ms: number("leaseDurationSeconds").saturating_mul(1000),
        transitions: u32::try_from(number("leaseTransitions")).unwrap_or(u32::MAX),
        renew_time: text("renewTime"),
    }
}

/// Writes the record into a Lease, and keeps its other fields.
pub fn fill(object: &mut Value, record: &LeaseRecord) {
    let old_holder = object["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let is_renewal = !record.holder.is_empty() && old_holder == record.holder;
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let spec = &mut object["spec"];
    if !is_renewal || !spec["acquireTime"].is_string() {
        spec["acquireTime"] = json!(record.renew_time);
    }
    spec["holderIdentity"] = json!(record.holder);
    // Whole seconds, rounded up: waiting too long is safe, too short is not.
    spec["leaseDurationSeconds"] = json!(record.lease_ms.div_ceil(1000));
    spec["leaseTransitions"] = json!(record.transitions.min(i32::MAX.unsigned_abs()));
    spec["renewTime"] = json!(record.renew_time);
}

fn now_micros() -> u64 {
    u64::try_from(environment::wall_clock().as_micros()).unwrap_or(u64::MAX)
}

/// Generates values for `renewTime`, each different from all before.
#[derive(Debug, Default)]
pub struct RenewTimes {
    last_micros: u64,
}

impl RenewTimes {
    /// The wall clock's time, but at least a microsecond after the last one: RFC 3339, UTC.
    pub fn next_time(&mut self) -> String {
        self.last_micros = now_micros().max(self.last_micros + 1);
        micro_time(self.last_micros)
    }
}

/// Kubernetes' `MicroTime` format.
fn micro_time(micros: u64) -> String {
    let millis = UnixMillis(micros / 1000).to_string();
    format!("{}{:03}Z", millis.trim_end_matches('Z'), micros % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renew_times_have_the_api_servers_format_and_never_repeat() {
        assert_eq!(micro_time(1_795_252_772_865_007), "2026-11-21T09:19:32.865007Z");
        let mut times = RenewTimes { last_micros: u64::MAX / 2 };
        let ahead = micro_time(u64::MAX / 2 + 1);
        assert_eq!((times.next_time(), times.next_time() != ahead), (ahead, true));
    }

    #[test]
    fn a_renewal_keeps_the_fields_that_others_set() {
        let mut lease = json!({
            "metadata": {"uid": "u", "labels": {"team": "a"}},
            "spec": {"holderIdentity": "me", "acquireTime": "then", "renewTime": "then",
                "leaseDurationSeconds": 15, "leaseTransitions": 2, "strategy": "OldestEmulationVersion"},
        });
        let old = record(&lease);
        assert_eq!((old.holder.as_str(), old.lease_ms, old.transitions), ("me", 15_000, 2));
        fill(
            &mut lease,
            &LeaseRecord { renew_time: "now".into(), lease_ms: 14_500, ..old.clone() },
        );
        let spec = json!({"holderIdentity": "me", "acquireTime": "then", "renewTime": "now",
            "leaseDurationSeconds": 15, "leaseTransitions": 2, "strategy": "OldestEmulationVersion"});
        assert_eq!((&lease["spec"], &lease["metadata"]["labels"]["team"]), (&spec, &json!("a")));
        fill(&mut lease, &LeaseRecord { holder: "you".into(), renew_time: "later".into(), ..old });
        assert_eq!(lease["spec"]["acquireTime"], "later");
    }

    #[test]
    fn a_lease_without_a_spec_has_no_holder_and_is_not_released() {
        let mut lease = json!({"metadata": {}});
        let empty = record(&lease);
        assert!(empty.holder.is_empty() && !empty.is_released());
        fill(&mut lease, &LeaseRecord { holder: "me".into(), ..empty });
        assert_eq!(lease["spec"]["holderIdentity"], "me");
    }
}
