//! The list that a watch begins with, and whether the API server still has the history that the watch
//! followed.

use std::sync::Arc;

use kube::api::ListParams;
use kube::core::Request;
use tokio::time::Instant;
use tracing::{info, warn};

use super::end::WatchEnd;
use super::page::{Page, Part};
use super::wire;
use super::{WatchTask, numeric};
use crate::client::{CallError, no_request, path};
use crate::clock::millis;
use crate::core::contract::event::EventKind;
use crate::core::data::ids::Role;

impl WatchTask {
    /// Lists everything, page by page, and sends each object as it arrives. Returns the resourceVersion
    /// to watch from.
    pub(super) async fn list(&mut self) -> Result<String, WatchEnd> {
        let began = Instant::now();
        let all = Request::new(path(self.kind, None));
        let cluster = self.cluster.clone();
        let mut next = String::new();
        let mut objects = 0_u64;
        let mut has_started = false;
        // If that fails, too, it may be too large: the next list is one of pages again.
        let is_at_once = std::mem::take(&mut self.lists_at_once);
        loop {
            let limit = (!is_at_once).then_some(self.shared.config.page_size);
            let token = Some(next).filter(|token| !token.is_empty());
            let is_first = token.is_none();
            let params = ListParams { limit, continue_token: token, ..ListParams::default() };
            let request = all.list(&params).map_err(|e| no_request(&e))?;
            let mut page = match Page::open(&cluster, request, self.timeout()).await {
                Err(error) if error.code() == Some(410) => {
                    return Err(self.list_expired(error, is_first));
                }
                page => page?,
            };
            let metadata = loop {
                let part = page.next().await?;
                if !std::mem::replace(&mut has_started, true) {
                    // Not before: the machine forgets nothing until an API server answers.
                    self.list_started().await?;
                }
                let item = match part {
                    Part::Item(item) => item,
                    Part::End(metadata) => break metadata,
                };
                objects += 1;
                let event = match wire::item(item, self.kind)? {
                    Ok(object) => {
                        let cluster = self.cluster_name();
                        EventKind::Listed { cluster, object: Arc::new(object) }
                    }
                    Err(error) => self.unreadable(item, &error),
                };
                self.send(event).await?;
            };
            next = metadata.next;
            if next.is_empty() {
                let version = metadata.resource_version;
                self.check_regression(&version).await?;
                self.is_history_unsure = false;
                self.metrics.list_finished(objects);
                let (cluster, kind) = (self.cluster_name(), self.kind);
                self.send(EventKind::ListFinished { cluster, kind }).await?;
                let ms = millis(began.elapsed());
                self.was_listed = true;
                if self.shared.is_crowd() {
                    self.shared.log.listed(self.watch_name(), objects);
                } else {
                    self.shared.log.resumed(self.watch_name());
                    info!(cluster = %self.cluster.name(), kind = %self.kind, objects, ms, "listed");
                }
                return Ok(version);
            }
        }
    }

    async fn list_started(&mut self) -> Result<(), WatchEnd> {
        self.metrics.list_started();
        let (cluster, kind) = (self.cluster_name(), self.kind);
        self.send(EventKind::ListStarted { cluster, kind }).await?;
        self.lost = None;
        self.unreadable_logged = false;
        Ok(())
    }

    /// A page that expires is rare: the list took longer than the API server keeps its history. Where
    /// it expires each time, pages would never end; client-go, too, then lists without them.
    fn list_expired(&mut self, error: CallError, is_first_page: bool) -> WatchEnd {
        if is_first_page {
            return WatchEnd::Failed(error);
        }
        warn!(cluster = %self.cluster.name(), kind = %self.kind, %error,
            "a later page of the list has expired; listing everything at once");
        self.lists_at_once = true;
        WatchEnd::Expired(error)
    }

    /// An API server that was restored from an older state accepts a watch from a resourceVersion
    /// that it has not reached, and stays silent until it has. So this reads its current version.
    pub(super) async fn check_history(&mut self, version: &str) -> Result<(), WatchEnd> {
        let one = Request::new(path(self.kind, None)).list(&ListParams::default().limit(1));
        let one = one.map_err(|e| no_request(&e))?;
        let page = Page::open(&self.cluster, one, self.timeout()).await?.metadata().await?;
        if numeric(&page.resource_version) >= numeric(version) {
            return Ok(());
        }
        self.last_version = self.last_version.max(numeric(version));
        self.check_regression(&page.resource_version).await?;
        Err(WatchEnd::went_back())
    }

    /// Where a list's version is lower than the last one seen, the API server was restored from an
    /// older state. The machine must know that about an upstream.
    async fn check_regression(&mut self, version: &str) -> Result<(), WatchEnd> {
        let now = numeric(version);
        let before = std::mem::replace(&mut self.last_version, now);
        if now < before {
            warn!(cluster = %self.cluster.name(), kind = %self.kind, before, now,
                "the resourceVersion went backwards: the API server was restored from an older state");
            if self.cluster.roles().contains(&Role::Upstream) {
                let (cluster, kind) = (self.cluster_name(), self.kind);
                self.send(EventKind::ResourceVersionRegressed { cluster, kind }).await?;
            }
        }
        Ok(())
    }
}
