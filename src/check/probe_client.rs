//! The requests that the checks send: reads, access reviews and dry runs. None changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::DATE;
use kube::api::ListParams;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::permissions::split_resource;
use crate::client::{self, CallError, ClusterClient, JSON, no_request, with_body};
use crate::clock::{millis, wall_clock_now};
use crate::core::data::objects::UPSTREAM_NAME;
use crate::core::data::time::UnixMillis;

/// How many objects a page of a list holds.
const PAGE_SIZE: u32 = 500;

/// A cluster's client, with a timeout for each request.
#[derive(Clone, Debug)]
pub(super) struct ProbeClient {
    pub(super) cluster: Arc<ClusterClient>,
    pub(super) timeout: Duration,
}

/// What the first answer of an API server shows.
pub(super) struct ServerInfo {
    /// `None` where we may not read it.
    pub(super) version: Option<String>,
    pub(super) response_time: Duration,
    /// How far our clock is ahead of the API server's, to half a second; negative when behind.
    pub(super) ahead_ms: Option<i64>,
}

/// An object, as far as the checks read it.
#[derive(Debug, Deserialize)]
pub(super) struct ListItem {
    pub(super) metadata: ItemMeta,
    #[serde(default)]
    pub(super) spec: Value,
    #[serde(default)]
    pub(super) status: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ItemMeta {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    managed_fields: Vec<ManagedFieldsEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ManagedFieldsEntry {
    manager: String,
    time: Option<String>,
    #[serde(rename = "fieldsV1")]
    fields: Value,
}

/// A field manager that owns an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnnotationOwner {
    pub(super) manager: String,
    pub(super) at: Option<UnixMillis>,
}

impl ItemMeta {
    /// `namespace/name`, or the name of a cluster-scoped object.
    pub(super) fn key(&self) -> String {
        match &*self.namespace {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }

    /// Who owns an annotation, by `managedFields`.
    pub(super) fn owners_of(&self, annotation: &str) -> Vec<AnnotationOwner> {
        let field = format!("f:{annotation}");
        let owns =
            |m: &&ManagedFieldsEntry| !m.fields["f:metadata"]["f:annotations"][&field].is_null();
        let owner = |m: &ManagedFieldsEntry| AnnotationOwner {
            manager: m.manager.clone(),
            at: m.time.as_deref().and_then(UnixMillis::parse_rfc3339),
        };
        self.managed_fields.iter().filter(owns).map(owner).collect()
    }

    /// Who wrote any of its fields.
    pub(super) fn managers(&self) -> impl Iterator<Item = &str> {
        self.managed_fields.iter().map(|entry| entry.manager.as_str())
    }

    /// Whether its labels name an upstream object.
    pub(super) fn has_upstream(&self) -> bool {
        self.labels.contains_key(UPSTREAM_NAME)
    }
}

impl ProbeClient {
    async fn call(&self, request: Request<Vec<u8>>) -> Result<Bytes, CallError> {
        self.cluster.call(request, self.timeout).await
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        parse(&self.call(client::get(path, JSON)?).await?)
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, CallError> {
        parse(&self.call(with_body(Request::post(path), body)?).await?)
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        parse(&self.call(with_body(Request::put(path), body)?).await?)
    }

    /// Sends the first request, to `/version`. A refusal to show the version is an answer, too.
    pub(super) async fn server_info(&self) -> Result<ServerInfo, CallError> {
        let (sent, sent_at) = (Instant::now(), wall_clock_now());
        let request = client::get("/version", JSON)?;
        let answer = self.cluster.call_with_head(request, self.timeout).await;
        let response_time = sent.elapsed();
        let answer = match answer {
            Err(CallError::Status { code: 403 | 404, .. }) => {
                return Ok(ServerInfo { version: None, response_time, ahead_ms: None });
            }
            answer => answer?,
        };
        let version: Value = parse(answer.body())?;
        let version = version["gitVersion"].as_str().map(str::to_owned);
        let date =
            answer.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(http_date);
        let ahead_ms = date.map(|date| {
            let ours = sent_at.plus(millis(response_time) / 2);
            // The header is cut to whole seconds: on average it is half a second late.
            let theirs = date.plus(500);
            let signed = |at: UnixMillis| i64::try_from(at.0).unwrap_or(i64::MAX);
            signed(ours) - signed(theirs)
        });
        Ok(ServerInfo { version, response_time, ahead_ms })
    }

    /// Lists all objects, page by page, and collects what `map` returns for each.
    pub(super) async fn list<T>(
        &self,
        path: impl Into<String>,
        map: impl Fn(ListItem) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        self.list_labelled(path, None, map).await
    }

    /// As [`Self::list`], restricted by a label selector.
    pub(super) async fn list_labelled<T>(
        &self,
        path: impl Into<String>,
        labels: Option<&str>,
        map: impl Fn(ListItem) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            metadata: PageMeta,
            items: Vec<ListItem>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct PageMeta {
            r#continue: String,
        }
        let all = kube::core::Request::new(path);
        let (mut found, mut next) = (Vec::new(), None);
        loop {
            let params = ListParams {
                label_selector: labels.map(str::to_owned),
                limit: Some(PAGE_SIZE),
                continue_token: next,
                ..ListParams::default()
            };
            let page = all.list(&params).map_err(|e| no_request(&e))?;
            let page: Page = parse(&self.call(page).await?)?;
            found.extend(page.items.into_iter().filter_map(&map));
            next = Some(page.metadata.r#continue).filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Whether a kind is served. Every authenticated user may read that.
    pub(super) async fn is_served(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<bool, CallError> {
        match self.get::<Value>(&format!("/apis/{group}/{version}")).await {
            Ok(list) => Ok(string_fields(&list["resources"], "name").any(|name| name == plural)),
            Err(CallError::Status { code: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many objects there are, by `remainingItemCount` of a page of one.
    pub(super) async fn count(&self, path: &str) -> Result<u64, CallError> {
        let page: Value = self.get(&format!("{path}?limit=1")).await?;
        let first = page["items"].as_array().map_or(0, Vec::len) as u64;
        Ok(first + page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
    }

    /// Whether our user may do this, and the authorizer's reason.
    pub(super) async fn is_allowed(
        &self,
        verb: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<(bool, String), CallError> {
        let (plural, group) = split_resource(resource);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb, "group": group, "resource": plural, "namespace": namespace } },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer: Value = self.post(path, &review).await?;
        let status = &answer["status"];
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        Ok((status["allowed"].as_bool().unwrap_or(false), reason))
    }
}

/// The strings that a list's members have in a field.
pub(super) fn string_fields<'a>(list: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    list.as_array().into_iter().flatten().filter_map(move |item| item[field].as_str())
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|e| CallError::Unreadable(e.to_string()))
}

/// The time of an HTTP `Date`, as servers write it: `Sat, 21 Nov 2026 19:10:39 GMT`.
fn http_date(text: &str) -> Option<UnixMillis> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split(' ').skip(1);
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    UnixMillis::parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_header_is_parsed() {
        let date = http_date("Sat, 21 Nov 2026 19:10:39 GMT");
        assert_eq!(date, UnixMillis::parse_rfc3339("2026-11-21T19:10:39Z"));
        assert!(date.is_some());
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn the_owner_of_an_annotation_comes_from_managed_fields() {
        let meta: ItemMeta = serde_json::from_value(json!({
            "namespace": "a", "name": "b",
            "managedFields": [
                { "manager": "x", "time": "2026-11-21T10:00:00Z",
                  "fieldsV1": { "f:metadata": { "f:annotations": { ".": {}, "f:k/a": {} } } } },
                { "manager": "y", "fieldsV1": { "f:spec": {} } },
            ],
        }))
        .unwrap();
        let at = UnixMillis::parse_rfc3339("2026-11-21T10:00:00Z");
        assert_eq!(meta.owners_of("k/a"), [AnnotationOwner { manager: "x".into(), at }]);
        assert_eq!(meta.owners_of("k/b"), []);
    }
}
