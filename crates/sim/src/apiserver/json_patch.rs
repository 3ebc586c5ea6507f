//! JSON Patch (RFC 6902) on objects, as API servers apply it: with the library
//! `gopkg.in/evanphx/json-patch.v4`. It differs from the RFC in two points: `replace` also adds,
//! and a `test` for `null` succeeds if the member is missing. Elements of arrays, `move` and `copy`
//! are not supported.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(super) struct Operation {
    op: String,
    path: String,
    #[serde(default)]
    value: Value,
}

/// Applies all operations. `None` if one of them fails.
pub(super) fn apply(object: &Value, operations: &[Operation]) -> Option<Value> {
    let mut patched = object.clone();
    operations.iter().try_for_each(|operation| operation.apply(&mut patched))?;
    Some(patched)
}

impl Operation {
    fn apply(&self, object: &mut Value) -> Option<()> {
        let (parents, member) = self.path.rsplit_once('/')?;
        let parent = object.pointer_mut(parents)?.as_object_mut()?;
        let member = member.replace("~1", "/").replace("~0", "~");
        match &*self.op {
            "test" => {
                let found = parent.get(&member).unwrap_or(&Value::Null);
                (*found == self.value).then_some(())
            }
            "add" | "replace" => {
                parent.insert(member, self.value.clone());
                Some(())
            }
            "remove" => parent.remove(&member).map(drop),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The answers of kube-apiserver 1.36. `tests/e2e/conformance.rs` checks them against a real
    /// one.
    #[test]
    fn operations_succeed_and_fail_as_on_an_api_server() {
        let object = json!({"a": {"x/y": "1", "n": null}, "b": "2"});
        let patched = |operations: Value| {
            apply(&object, &serde_json::from_value::<Vec<Operation>>(operations).unwrap())
        };
        let op =
            |op: &str, path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
        let same = Some(object.clone());
        assert_eq!(patched(op("test", "/a/x~1y", json!("1"))), same);
        assert_eq!(patched(op("test", "/a/x~1y", json!("2"))), None);
        assert_eq!(patched(op("test", "/a/none", Value::Null)), same);
        assert_eq!(patched(json!([{"op": "test", "path": "/a/none"}])), same);
        assert_eq!(patched(op("test", "/none/x", Value::Null)), None);
        assert_eq!(patched(op("test", "/b/x", Value::Null)), None);
        for (verb, path) in [("add", "/c"), ("replace", "/c")] {
            let added = json!({"a": {"x/y": "1", "n": null}, "b": "2", "c": "3"});
            assert_eq!(patched(op(verb, path, json!("3"))), Some(added));
        }
        assert_eq!(patched(op("add", "/none/c", json!("3"))), None);
        assert_eq!(patched(op("remove", "/none", Value::Null)), None);
        assert_eq!(patched(op("remove", "/a", Value::Null)), Some(json!({"b": "2"})));
        assert_eq!(patched(op("frob", "/b", Value::Null)), None);
        let first_fails = json!([
            {"op": "test", "path": "/b", "value": "3"}, {"op": "remove", "path": "/b"},
        ]);
        assert_eq!(patched(first_fails), None);
    }
}
