//! Lists and watches a kind, for the tests' own observations.

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use http::Request;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::task::JoinSet;

use super::rest::{Resource, Rest};

pub(crate) enum WatchUpdate {
    /// The complete list: what is not in it no longer exists.
    Listed(Vec<Value>),
    Applied(Value),
    Deleted(Value),
}

/// A task that ends when dropped.
pub(crate) type Task = JoinSet<()>;

/// Follows all objects of a kind, and lists again when the watch ends.
pub(crate) fn follow(
    rest: Rest,
    resource: Resource,
    mut see: impl FnMut(WatchUpdate) + Send + 'static,
) -> Task {
    Task::from_iter([async move {
        loop {
            let _ = list_and_watch(&rest, resource, &mut see).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }])
}

/// Until the watch ends.
async fn list_and_watch(
    rest: &Rest,
    resource: Resource,
    see: &mut (impl FnMut(WatchUpdate) + Send),
) -> anyhow::Result<()> {
    let (items, version) = rest.list(resource, "").await?;
    see(WatchUpdate::Listed(items));
    let path = format!("{}?watch=true&resourceVersion={version}", resource.path(""));
    let request = Request::get(path).body(Vec::new())?;
    let mut events = pin!(rest.0.request_events(request).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                see(WatchUpdate::Applied(object))
            }
            WatchEvent::Deleted(object) => see(WatchUpdate::Deleted(object)),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => break,
        }
    }
    Ok(())
}
