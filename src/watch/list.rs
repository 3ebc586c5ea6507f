//! The list at the start of a watch, and the check that the API server still has the history that the
//! watch followed.

use std::sync::Arc;

use kube::api::ListParams;
use kube::core::Request;
use tokio::time::Instant;
use tracing::{info, warn};

use super::end::WatchEnd;
use super::page::{Page, Pages, Part, followable};
use super::wire;
use super::{WatchTask, numeric};
use crate::client::{current_version, no_request, path};
use crate::clock::millis;
use crate::core::contract::event::EventKind;
use crate::core::data::ids::Role;

/// The resourceVersions of the API server.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The highest one observed; 0 before the first list is complete.
    pub(super) last: u64,
    /// The watch broke, was silent or ended early, so the API server may have another history by now:
    /// its next resourceVersion is compared first.
    pub(super) is_unsure: bool,
}

impl History {
    pub(super) fn reached(&mut self, version: &str) {
        self.last = self.last.max(numeric(version));
    }
}

impl WatchTask {
    /// Lists all objects, page by page, and sends each as it arrives. Returns the resourceVersion to
    /// watch from.
    pub(super) async fn list(&mut self, pages: Pages) -> Result<String, WatchEnd> {
        let began = Instant::now();
        let all = Request::new(path(self.kind, None));
        let cluster = self.cluster.clone();
        let mut next = String::new();
        let mut objects = 0_u64;
        let mut has_started = false;
        let limit = (pages == Pages::Limited).then_some(self.shared.config.page_size);
        loop {
            let token = Some(next).filter(|token| !token.is_empty());
            let is_first = token.is_none();
            let params = ListParams { limit, continue_token: token, ..ListParams::default() };
            let request = all.list(&params).map_err(|e| no_request(&e))?;
            let page = Page::open(&cluster, request, self.timeout(), pages);
            let mut page = match self.wait_for(page).await? {
                Err(error) if error.code() == Some(410) => {
                    if is_first {
                        return Err(WatchEnd::Failed(error));
                    }
                    // Rare: the list took longer than the API server keeps its history. If that happens
                    // each time, a list with pages would never finish; client-go, too, then lists
                    // without them.
                    warn!(%error, "a later page of the list has expired; listing everything at once");
                    return Err(WatchEnd::Expired(error, Pages::AllAtOnce));
                }
                page => page?,
            };
            let metadata = loop {
                let part = self.wait_for(page.next()).await??;
                if !std::mem::replace(&mut has_started, true) {
                    // Not earlier: the machine forgets nothing until an API server answers.
                    self.list_started().await?;
                }
                let item = match part {
                    Part::Item(item) => item,
                    Part::End(metadata) => break metadata,
                };
                objects += 1;
                match wire::item(&item, self.kind)? {
                    Ok(object) => {
                        let object = Arc::new(object);
                        self.send(|cluster, _| EventKind::Listed { cluster, object }).await?;
                    }
                    Err(error) => self.no_object(error).await?,
                }
            };
            next = metadata.next;
            if next.is_empty() {
                let version = metadata.resource_version;
                self.check_regression(numeric(&version)).await?;
                self.list_finished(objects, began).await?;
                return Ok(version);
            }
        }
    }

    async fn list_started(&mut self) -> Result<(), WatchEnd> {
        self.metrics.list_started();
        self.send(|cluster, kind| EventKind::ListStarted { cluster, kind }).await?;
        self.lost = None;
        self.unknown_at = None;
        self.list_at = None;
        Ok(())
    }

    async fn list_finished(&mut self, objects: u64, began: Instant) -> Result<(), WatchEnd> {
        self.history.is_unsure = false;
        self.metrics.list_finished();
        self.send(|cluster, kind| EventKind::ListFinished { cluster, kind }).await?;
        if self.list_at.is_some() {
            // Restart the wait after the list, however long the list took.
            self.list_later();
        }
        if self.shared.is_crowd() {
            self.shared.log.listed(objects);
        } else {
            info!(objects, ms = millis(began.elapsed()), "listed");
        }
        Ok(())
    }

    /// The API server's version, if it is a number. Fails if the API server has not reached the version
    /// that a watch resumes at.
    pub(super) async fn check_history(&mut self, version: &str) -> Result<Option<u64>, WatchEnd> {
        let cluster = self.cluster.clone();
        let path = path(self.kind, None);
        let now = self.wait_for(current_version(&cluster, &path, self.timeout())).await??;
        followable(&now)?;
        let now = numeric(&now);
        if now >= numeric(version) {
            return Ok(Some(now).filter(|now| *now > 0));
        }
        self.history.reached(version);
        self.check_regression(now).await?;
        Err(WatchEnd::went_backwards())
    }

    /// A list with a lower version than the last one observed means that the API server was restored
    /// from an older state. For an upstream the machine must know that.
    async fn check_regression(&mut self, now: u64) -> Result<(), WatchEnd> {
        let before = std::mem::replace(&mut self.history.last, now);
        if now < before {
            warn!(
                before,
                now,
                "the resourceVersion went backwards: the API server was restored from an older state"
            );
            if self.cluster.roles().contains(&Role::Upstream) {
                self.send(|cluster, kind| EventKind::ResourceVersionRegressed { cluster, kind })
                    .await?;
            }
        }
        Ok(())
    }
}
