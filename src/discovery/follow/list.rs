//! The list that following begins with, and whether the API server still has the history that the watch
//! followed.

use kube::api::ListParams;
use kube::core::Request;
use tracing::warn;

use super::super::ledger::Missing;
use super::super::proof::Question;
use super::{End, Follower, Position, Reader, numeric};
use crate::client::no_request;
use crate::watch::page::{Page, Part};

impl<R: Reader> Follower<R> {
    /// Lists everything, page by page. Returns the resourceVersion to watch from.
    pub(super) async fn list(&mut self, position: &mut Position) -> Result<String, End> {
        let all = Request::new(self.objects.path.clone());
        let mut next = None;
        let mut has_started = false;
        loop {
            let params = ListParams {
                limit: Some(self.config.page_size),
                continue_token: next,
                label_selector: self.objects.label_selector.clone(),
                ..ListParams::default()
            };
            let request = all.list(&params).map_err(|e| no_request(&e))?;
            let mut page = Page::open(&position.host, request, self.timeout()).await?;
            let metadata = loop {
                let part = page.next().await?;
                if !std::mem::replace(&mut has_started, true) {
                    self.ledger.list_started().await?;
                }
                match part {
                    Part::Item(item) => {
                        // Half a list would be taken for a whole one: an object that can't be read
                        // fails it.
                        let offer = self.read(item)?;
                        self.ledger.listed(offer).await?;
                    }
                    Part::End(metadata) => break metadata,
                }
            };
            next = Some(metadata.next).filter(|next| !next.is_empty());
            if next.is_none() {
                let version = metadata.resource_version;
                let is_older = numeric(&version) < position.last_version;
                if is_older {
                    warn!(resource = self.objects.resource, before = position.last_version,
                        now = %version, "the resourceVersion went backwards: the API server was \
                        restored from an older state");
                }
                let missing = self.ledger.list_finished().await?;
                if !position.is_elsewhere && !is_older {
                    self.ask_for_proof(missing);
                }
                position.is_elsewhere = false;
                position.is_unsure = false;
                position.last_version = numeric(&version);
                return Ok(version);
            }
        }
    }

    /// A list that lacks many at once proves nothing about any of them.
    fn ask_for_proof(&self, missing: Missing) {
        let Some(proofs) = self.proofs.as_ref().filter(|_| !missing.is_suspicious) else { return };
        for cluster in missing.clusters {
            let _ = proofs.ask.send(Question::Deleted(cluster));
        }
    }

    /// An API server that was restored from an older state accepts a watch from a version that it
    /// has not reached, and stays silent. So this reads its current version.
    pub(super) async fn check_history(
        &self,
        position: &mut Position,
        version: &str,
    ) -> Result<(), End> {
        let one = Request::new(self.objects.path.clone()).list(&ListParams::default().limit(1));
        let one = one.map_err(|e| no_request(&e))?;
        let page = Page::open(&position.host, one, self.timeout()).await?.metadata().await?;
        if numeric(&page.resource_version) < numeric(version) {
            return Err(End::Expired);
        }
        position.is_unsure = false;
        Ok(())
    }
}
