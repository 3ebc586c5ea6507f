//! The admin port: probes, metrics, and what the machine believes, as JSON.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::config::StateAccess;
use crate::metrics::Metrics;

/// What the loop is asked from outside.
#[derive(Debug)]
pub enum Query {
    /// Answered at once by a loop that turns.
    Ping(oneshot::Sender<()>),
    /// What the machine believes, as a JSON document.
    State(oneshot::Sender<Bytes>),
}

/// Serves until `stop` resolves.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    _listener: tokio::net::TcpListener,
    _access: StateAccess,
    _metrics: Arc<Metrics>,
    _queries: mpsc::Sender<Query>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    stop.await;
    Ok(())
}
