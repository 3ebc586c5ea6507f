//! Lists: pages of one snapshot, and the tokens for the next page.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};

use super::Server;
use super::body::Body;
use super::request::{QueryParams, RequestTarget};
use super::selector::LabelSelector;
use super::status::{Failure, json_response};
use super::store::ServedObject;

/// Where the next page of a list starts.
#[derive(Debug, PartialEq, Eq)]
struct ContinueToken {
    /// The version of the list; `None` continues with the current objects.
    version: Option<u64>,
    /// The last key of the previous page.
    after: String,
}

impl ContinueToken {
    fn encode(&self) -> String {
        let version = self.version.map_or_else(|| "now".to_owned(), |v| v.to_string());
        let after: String = self.after.bytes().map(|b| format!("{b:02x}")).collect();
        format!("{version}.{after}")
    }

    fn decode(token: &str) -> Result<Self, Failure> {
        let parse = || {
            let (version, after) = token.split_once('.')?;
            let version = match version {
                "now" => None,
                number => Some(number.parse().ok()?),
            };
            let byte = |i| u8::from_str_radix(after.get(i..i + 2)?, 16).ok();
            let after: Option<Vec<u8>> = (0..after.len()).step_by(2).map(byte).collect();
            Some(Self { version, after: String::from_utf8(after?).ok()? })
        };
        parse().ok_or_else(|| {
            Failure::bad_request("invalid continue token: continue key is not valid")
        })
    }
}

/// Answers a list.
///
/// # Errors
/// A version or token that is malformed, too old (410) or not reached yet (504).
pub(super) fn list(
    server: &Server,
    target: &RequestTarget,
    params: &QueryParams,
) -> Result<Response<Body>, Failure> {
    let resource = target.resource;
    let namespace = target.namespace.as_deref();
    let mut cluster = server.lock();
    let now = cluster.listed_version();
    let selector = LabelSelector::parse(&params.label_selector)?;
    let key =
        |version| (version, resource, target.namespace.clone(), params.label_selector.clone());
    let mut limit = params.limit()?;
    let mut version = now;
    let mut after = None;
    if !params.continue_.is_empty() {
        let token = ContinueToken::decode(&params.continue_)?;
        version = token.version.unwrap_or(now);
        after = Some(token.after);
    } else if let Some(requested) = requested_version(&params.resource_version)? {
        if requested > now {
            return Err(Failure::too_new(requested, now));
        }
        if params.resource_version_match == "Exact" {
            version = requested;
        }
    } else if params.resource_version == "0" {
        // API servers answer this from the watch cache, without pages.
        limit = 0;
    }
    let has_expired = after.is_some() && cluster.state.do_pages_expire;
    let snapshot = cluster.state.snapshot(&key(version)).filter(|_| !has_expired);
    let items: Arc<[ServedObject]> = match snapshot {
        Some(items) => items,
        None if version == now && !has_expired => {
            let all = cluster.all_at(now, resource, namespace);
            let mut items = all.ok_or_else(Failure::list_too_old)?;
            items.retain(|item| params.only_name().is_none_or(|name| item.key().name() == name));
            items.retain(|item| selector.matches(item));
            items.into()
        }
        None => {
            return Err(after.map_or_else(Failure::list_too_old, |after| {
                Failure::continue_too_old(&ContinueToken { version: None, after }.encode())
            }));
        }
    };
    let name = |item: &ServedObject| item.key().to_string();
    let start = after.map_or(0, |after| items.partition_point(|i| name(i) <= after));
    let end = if limit == 0 { items.len() } else { items.len().min(start.saturating_add(limit)) };
    let mut metadata = json!({"resourceVersion": version.to_string()});
    let last = items.get(end.wrapping_sub(1)).filter(|_| end < items.len());
    if let Some(last) = last {
        let token = ContinueToken { version: Some(version), after: name(last) };
        metadata["continue"] = token.encode().into();
        if selector.is_everything() {
            metadata["remainingItemCount"] = (items.len() - end).into();
        }
        cluster.state.save_snapshot(key(version), items.clone());
    }
    drop(cluster);
    let page = items.get(start..end).unwrap_or_default();
    let values: Vec<Value> =
        page.iter().map(|item| list_item(item, resource.is_built_in())).collect();
    let list = json!({
        "apiVersion": resource.api_version(),
        "kind": format!("{}List", resource.kind()),
        "metadata": metadata,
        "items": values,
    });
    Ok(json_response(200, &list))
}

/// Lists of built-in kinds omit `apiVersion` and `kind` of their items.
fn list_item(item: &ServedObject, is_built_in: bool) -> Value {
    let mut value = item.to_value();
    if let Some(members) = value.as_object_mut().filter(|_| is_built_in) {
        members.remove("apiVersion");
        members.remove("kind");
    }
    value
}

/// The resourceVersion that a query requests; `None` if it requests none, or any.
pub(super) fn requested_version(text: &str) -> Result<Option<u64>, Failure> {
    match text {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| Failure::bad_version(text, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_tokens_survive_encoding_and_decoding() {
        for token in [
            ContinueToken { version: Some(12), after: "ns-a/x".into() },
            ContinueToken { version: None, after: "/üb".into() },
        ] {
            assert_eq!(ContinueToken::decode(&token.encode()).unwrap(), token);
        }
        for broken in ["", "garbage", "1.zz", "x.00", "1.0", "1.ff", "1.ü"] {
            assert!(ContinueToken::decode(broken).is_err(), "{broken}");
        }
    }
}
