//! The proxy's rules: which requests get which fault, and how often.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline_sim::apiserver::reason_of;
use tokio::sync::watch;

use super::until;

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The proxy answers with a `Status` object; the request does not reach the API server.
    Status(u16),
    /// The request reaches the API server after this delay.
    Delay(Duration),
    /// The request waits until the gate is opened.
    Hold(Arc<Gate>),
    /// The connection is closed; the request does not reach the API server.
    Cut,
    /// The API server handles the request, and the connection is closed instead of the answer.
    LoseAnswer,
    /// No answer; the connection stays open.
    Freeze,
    /// The proxy answers with this body; the request does not reach the API server.
    Answer(Value),
    /// The connection is closed after half of the answer.
    Truncate,
    /// The watch is accepted, and its first event is an ERROR with code 410.
    Expire,
}

/// Where requests of `Fault::Hold` wait.
#[derive(Debug)]
pub(crate) struct Gate(watch::Sender<bool>);

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(false)))
    }

    /// Waits until a request waits.
    pub(crate) async fn holds_one(&self) {
        until("a request is held", async || self.waiting() > 0).await;
    }

    /// The number of requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.receiver_count()
    }

    /// Lets all requests pass, also later ones.
    pub(crate) fn release(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn pass(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// The object or collection that a request is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) method: String,
    /// The plural, such as `connectors`; the whole path if it is not a resource.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) is_watch: bool,
}

impl Target {
    pub(super) fn of(method: &str, path: &str, query: &str) -> Self {
        let is_watch = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
        let (namespace, resource, name) = match *path.split('/').skip(1).collect::<Vec<_>>() {
            ["api", _, "namespaces", namespace, resource, ref name @ ..]
            | ["apis", _, _, "namespaces", namespace, resource, ref name @ ..] => {
                (namespace, resource, name.first().copied())
            }
            ["api", _, resource, ref name @ ..] | ["apis", _, _, resource, ref name @ ..] => {
                ("", resource, name.first().copied())
            }
            _ => ("", path, None),
        };
        let [method, resource, namespace] = [method, resource, namespace].map(str::to_owned);
        let name = name.unwrap_or_default().to_owned();
        Self { method, resource, namespace, name, is_watch }
    }

    pub(crate) fn is_write(&self) -> bool {
        self.method != "GET"
    }
}

/// A fault, and the requests that get it: all, unless narrowed down.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    fault: Fault,
    method: Option<&'static str>,
    resource: Option<&'static str>,
    name: Option<String>,
    is_watch: Option<bool>,
    /// How many requests get it yet.
    pub(super) left: usize,
    /// How many got it.
    pub(super) applied: usize,
}

impl Rule {
    pub(crate) fn new(fault: Fault) -> Self {
        let (method, resource, name, is_watch) = (None, None, None, None);
        Self { fault, method, resource, name, is_watch, left: usize::MAX, applied: 0 }
    }

    /// Answers with this code.
    pub(crate) fn status(code: u16) -> Self {
        Self::new(Fault::Status(code))
    }

    pub(crate) fn method(self, method: &'static str) -> Self {
        Self { method: Some(method), ..self }
    }

    /// `resource` is the plural, such as `connectors`.
    pub(crate) fn resource(self, resource: &'static str) -> Self {
        Self { resource: Some(resource), ..self }
    }

    pub(crate) fn name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    pub(crate) fn watches(self, is_watch: bool) -> Self {
        Self { is_watch: Some(is_watch), ..self }
    }

    /// Only the next `times` requests.
    pub(crate) fn times(self, times: usize) -> Self {
        Self { left: times, ..self }
    }

    /// The fault, if the request gets it.
    pub(super) fn take(&mut self, target: &Target) -> Option<Fault> {
        let is_it = self.left > 0
            && self.method.is_none_or(|method| method == target.method)
            && self.resource.is_none_or(|resource| resource == target.resource)
            && self.name.as_ref().is_none_or(|name| *name == target.name)
            && self.is_watch.is_none_or(|is_watch| is_watch == target.is_watch);
        if !is_it {
            return None;
        }
        self.left -= 1;
        self.applied += 1;
        Some(self.fault.clone())
    }
}

/// The body of an answer that comes from the proxy.
pub(super) fn status_body(code: u16) -> Value {
    let reason = reason_of(code);
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{reason}: sent by the test's proxy"),
        "reason": reason, "code": code, "details": {},
    })
}
