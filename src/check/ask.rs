//! The requests of the checks: reads, questions about rights, and nothing that leaves a trace.

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

use super::need::parts;
use crate::client::{self, CallError, Cluster, JSON, no_request, with_body};
use crate::clock::{millis, wall};
use crate::core::objects::UPSTREAM_NAME;
use crate::core::time::UnixMillis;

/// Objects a page of a list.
const PAGE: u32 = 500;

/// A cluster that is asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) cluster: Arc<Cluster>,
    pub(super) timeout: Duration,
}

/// What a first answer tells beside what it says.
pub(super) struct Hello {
    pub(super) version: Option<String>,
    pub(super) took: Duration,
    /// How far the own clock is ahead of the API server's, in milliseconds, to half a second.
    pub(super) ahead_ms: Option<i64>,
}

/// An object as far as the checks look at it.
#[derive(Debug, Deserialize)]
pub(super) struct Item {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: Value,
    #[serde(default)]
    pub(super) status: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    managed_fields: Vec<Managed>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Managed {
    manager: String,
    time: Option<String>,
    #[serde(rename = "fieldsV1")]
    fields: Value,
}

/// Who stands behind a value, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) manager: String,
    pub(super) at: Option<UnixMillis>,
}

impl Meta {
    pub(super) fn key(&self) -> String {
        match &*self.namespace {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }

    /// Whose value an annotation is, by `managedFields`.
    pub(super) fn writers(&self, annotation: &str) -> Vec<Writer> {
        let field = format!("f:{annotation}");
        let owns = |m: &&Managed| !m.fields["f:metadata"]["f:annotations"][&field].is_null();
        let writer = |m: &Managed| Writer {
            manager: m.manager.clone(),
            at: m.time.as_deref().and_then(UnixMillis::parse_rfc3339),
        };
        self.managed_fields.iter().filter(owns).map(writer).collect()
    }

    /// Its labels tie it to an upstream object.
    pub(super) fn is_replica(&self) -> bool {
        self.labels.contains_key(UPSTREAM_NAME)
    }
}

impl Asked {
    async fn call(&self, request: Request<Vec<u8>>) -> Result<Bytes, CallError> {
        self.cluster.call(request, self.timeout).await
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        read(&self.call(client::get(path, JSON)?).await?)
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, CallError> {
        read(&self.call(with_body(Request::post(path), body)?).await?)
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        read(&self.call(with_body(Request::put(path), body)?).await?)
    }

    /// The first request: whether there is an answer at all. Who may not read the version is
    /// answered all the same.
    pub(super) async fn hello(&self) -> Result<Hello, CallError> {
        let (began, at) = (Instant::now(), wall());
        let answer = self.cluster.answer(client::get("/version", JSON)?, self.timeout).await;
        let took = began.elapsed();
        let answer = match answer {
            Err(CallError::Status { code: 403 | 404, .. }) => {
                return Ok(Hello { version: None, took, ahead_ms: None });
            }
            answer => answer?,
        };
        let version: Value = read(answer.body())?;
        let version = version["gitVersion"].as_str().map(str::to_owned);
        let date =
            answer.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(http_date);
        // It is cut to whole seconds.
        let ahead_ms = date.map(|date| {
            let own = at.plus(millis(took) / 2);
            let signed = |at: UnixMillis| i64::try_from(at.0).unwrap_or(i64::MAX);
            signed(own) - signed(date.plus(500))
        });
        Ok(Hello { version, took, ahead_ms })
    }

    /// Lists everything, page by page, and keeps what `keep` makes of each object.
    pub(super) async fn list<T>(
        &self,
        path: impl Into<String>,
        keep: impl Fn(Item) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        self.list_labelled(path, None, keep).await
    }

    /// The same, of those objects that a label selector takes.
    pub(super) async fn list_labelled<T>(
        &self,
        path: impl Into<String>,
        labels: Option<&str>,
        keep: impl Fn(Item) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            metadata: PageMeta,
            items: Vec<Item>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct PageMeta {
            r#continue: String,
        }
        let all = kube::core::Request::new(path);
        let (mut kept, mut next) = (Vec::new(), None);
        loop {
            let params = ListParams {
                label_selector: labels.map(str::to_owned),
                limit: Some(PAGE),
                continue_token: next,
                ..ListParams::default()
            };
            let page = all.list(&params).map_err(|e| no_request(&e))?;
            let page: Page = read(&self.call(page).await?)?;
            kept.extend(page.items.into_iter().filter_map(&keep));
            next = Some(page.metadata.r#continue).filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(kept);
            }
        }
    }

    /// Whether a kind is served. Everybody who is known may ask this.
    pub(super) async fn serves(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<bool, CallError> {
        match self.get::<Value>(&format!("/apis/{group}/{version}")).await {
            Ok(list) => Ok(texts(&list["resources"], "name").any(|name| name == plural)),
            Err(CallError::Status { code: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many objects there are, by the first page alone.
    pub(super) async fn count(&self, path: &str) -> Result<u64, CallError> {
        let page: Value = self.get(&format!("{path}?limit=1")).await?;
        let first = page["items"].as_array().map_or(0, Vec::len) as u64;
        Ok(first + page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
    }

    /// Whether the own user may do this; with the reason of who says no.
    pub(super) async fn may(
        &self,
        verb: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<(bool, String), CallError> {
        let (plural, group) = parts(resource);
        let asked = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb, "group": group, "resource": plural, "namespace": namespace } },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer: Value = self.post(path, &asked).await?;
        let status = &answer["status"];
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        Ok((status["allowed"].as_bool().unwrap_or(false), reason))
    }
}

/// The texts that a list's members have in a field.
pub(super) fn texts<'a>(list: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    list.as_array().into_iter().flatten().filter_map(move |item| item[field].as_str())
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallError> {
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
    fn dates_of_servers_are_read() {
        let date = http_date("Sat, 21 Nov 2026 19:10:39 GMT");
        assert_eq!(date, UnixMillis::parse_rfc3339("2026-11-21T19:10:39Z"));
        assert!(date.is_some());
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn who_owns_an_annotation_is_read_from_managed_fields() {
        let meta: Meta = serde_json::from_value(json!({
            "namespace": "a", "name": "b",
            "managedFields": [
                { "manager": "x", "time": "2026-11-21T10:00:00Z",
                  "fieldsV1": { "f:metadata": { "f:annotations": { ".": {}, "f:k/a": {} } } } },
                { "manager": "y", "fieldsV1": { "f:spec": {} } },
            ],
        }))
        .unwrap();
        let at = UnixMillis::parse_rfc3339("2026-11-21T10:00:00Z");
        assert_eq!(meta.writers("k/a"), [Writer { manager: "x".into(), at }]);
        assert_eq!(meta.writers("k/b"), []);
    }
}
