//! A snapshot of a running instance: `GET /state` at its admin port, over plain HTTP.

use std::time::Duration;

use anyhow::Context;

use super::Snapshot;
use crate::instance;

/// Fetches the state of the instance at `url` (`http://HOST:PORT`), for at most `within`.
///
/// # Errors
/// The instance can't be reached, refuses, or answers something else; each says what to do.
pub async fn snapshot(url: &str, within: Duration) -> anyhow::Result<Snapshot> {
    let body = instance::state(url, within).await?;
    let view = serde_json::from_slice(&body).with_context(|| {
        format!("{url}: the answer is not the state of a throughline of this version")
    })?;
    Ok(Snapshot::of_instance(view))
}
