//! `/state`: built by the loop at a limited rate, and rendered outside it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::time::{Instant, sleep_until, timeout};

use super::access::StateReader;
use super::{Admin, NoAnswer, Query, accepts};
use crate::core::contract::cause::Cause;
use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::Fleet;
use crate::outside_text::plain_json::PlainJson;
use crate::outside_text::without_secrets;

/// After an answer the loop gets no query for the state for this many times the answer's duration, so
/// that these queries take at most a tenth of its time, and a change of liveness never waits for more
/// than one.
pub(super) const PAUSE_FACTOR: u32 = 9;

/// The longest pause, however long the answer took.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The longest time that a request waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(10);

/// This process.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstanceInfo {
    pub(super) version: &'static str,
    pub(super) commit: &'static str,
    /// When it started to serve its admin port.
    pub(super) since_ms: UnixMillis,
}

/// The machine's state, and the instance that reports it.
#[derive(Debug, Serialize)]
pub(super) struct InstanceState {
    instance: InstanceInfo,
    #[serde(flatten)]
    pub(super) fleet: Fleet,
}

/// On one line for programs, indented for people.
pub(super) async fn state(
    State(admin): State<Arc<Admin>>,
    _: StateReader,
    headers: HeaderMap,
) -> Result<Response, NoAnswer> {
    let is_program = accepts(&headers, "application/json");
    let state = known(&admin).await?;
    let json = encode(move || {
        let mut json = Vec::new();
        let out = PlainJson::new(&mut json);
        if is_program {
            serde_json::to_writer(out, &state)?;
        } else {
            serde_json::to_writer_pretty(out, &state)?;
        }
        json.push(b'\n');
        Ok(json)
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], json.await?).into_response())
}

/// Encodes on a separate thread: a large installation has megabytes, which must not delay requests to
/// clusters.
pub(super) async fn encode<T: Send + 'static>(
    work: impl FnOnce() -> serde_json::Result<T> + Send + 'static,
) -> Result<T, NoAnswer> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

/// Replaces the addresses and secrets that errors of API servers may contain, as the log does.
fn cleaned(mut fleet: Fleet) -> Fleet {
    let of_connectors = fleet.connectors.iter_mut().flat_map(|connector| &mut connector.hops);
    let hops = of_connectors.chain(&mut fleet.unpaired);
    let texts = hops.flat_map(|hop| hop.message.iter_mut().chain(&mut hop.evidence));
    let of_orphans = fleet.orphans.iter_mut().filter_map(|orphan| orphan.error.as_mut());
    for text in texts.chain(of_orphans) {
        if let Cow::Owned(clean) = without_secrets(text) {
            *text = clean;
        }
    }
    fleet
}

/// The state, once it is this request's turn.
pub(super) async fn known(admin: &Admin) -> Result<InstanceState, NoAnswer> {
    let turn = async {
        let turn = admin.turn.lock().await;
        sleep_until(*turn).await;
        turn
    };
    let mut turn = timeout(TURN_WITHIN, turn).await.map_err(|_| NoAnswer::Busy)?;
    let asked = Instant::now();
    // The client may disconnect before the answer.
    *turn = asked + PAUSE_MAX;
    let fleet = admin.ask(Query::State).await?;
    *turn = Instant::now() + (asked.elapsed() * PAUSE_FACTOR).min(PAUSE_MAX);
    let mut fleet = encode(move || Ok(cleaned(fleet))).await?;

    let is_led = !fleet.problems.iter().any(|group| group.cause == Cause::NoLeader);
    fleet.leader.holder = admin.metrics.lease_holder().filter(|_| is_led);
    fleet.add_received(admin.metrics.received(fleet.at_ms));
    Ok(InstanceState { instance: admin.instance, fleet })
}
