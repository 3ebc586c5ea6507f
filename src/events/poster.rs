//! Selects the problems that become Events: those that the leader reports, and their end.
//!
//! Only the leader posts: it observes everything that a standby does. A standby that becomes leader has
//! the same open problems, and posts those still open ten seconds later.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, ObjectReference};

use super::Recorder;
use super::event::{again, reference, shortened};
use crate::core::contract::cause::{Problem, ProblemId, Severity};
use crate::core::contract::event::EventKind;
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::core::view::group::{GroupView, Place};
use crate::problems::{FEW, GATHER_MS, Problems, Report, Stage};

/// The time for a new leader to repair its predecessor's problems before it posts them.
const TAKEOVER_GRACE_MS: u64 = 10_000;
/// The most Events about problems to remember; without one, the end of a problem is not posted.
const POSTED_MAX: usize = 256;

/// Turns reports of problems into Events.
#[derive(Debug)]
pub struct Poster {
    recorder: Recorder,
    leadership: Leadership,
    /// The Events about problems that are open, or have just ended.
    posted: BTreeMap<ProblemId, Posted>,
}

#[derive(Debug, PartialEq, Eq)]
enum Leadership {
    Standby,
    /// Leads, but posts nothing before this time.
    TakesOver(UnixMillis),
    Leads,
}

#[derive(Debug)]
struct Posted {
    cluster: ClusterName,
    event: Event,
    /// False if another instance has led since, so that the Event may have expired.
    is_fresh: bool,
    ended_at: Option<UnixMillis>,
}

impl Poster {
    pub fn new(recorder: Recorder) -> Self {
        Self { recorder, leadership: Leadership::Standby, posted: BTreeMap::new() }
    }

    /// Follows changes of leadership.
    pub fn on_event(&mut self, at: UnixMillis, kind: &EventKind) {
        match kind {
            EventKind::LeadershipAcquired => {
                self.leadership = Leadership::TakesOver(at.plus(TAKEOVER_GRACE_MS));
            }
            EventKind::LeadershipLost => {
                self.leadership = Leadership::Standby;
                self.posted.retain(|_, posted| posted.ended_at.is_none());
                self.posted.values_mut().for_each(|posted| posted.is_fresh = false);
            }
            _ => {}
        }
    }

    /// Handles the start of a problem, perhaps a repeated one before its end was posted.
    pub fn begin(&mut self, problem: &Problem) {
        if let Some(posted) = self.posted.get_mut(&problem.id()) {
            posted.ended_at = None;
        }
    }

    /// Handles the end of a problem. No Event is posted on a deleted object.
    pub fn end(&mut self, at: UnixMillis, problem: &Problem, is_object_there: bool) {
        let id = problem.id();
        let Some(posted) = self.posted.get_mut(&id) else { return };
        let has_place = is_object_there || !id.is_about_object();
        if has_place && self.leadership != Leadership::Standby {
            posted.ended_at = Some(at);
        } else {
            self.posted.remove(&id);
        }
    }

    /// Posts on the objects of a report; for many clusters, on one for all.
    pub fn report(&mut self, now: UnixMillis, report: &Report) {
        if self.leadership != Leadership::Leads || report.stage == Stage::Ended {
            return;
        }
        let Some(group) = report.groups.first() else { return };
        let for_all = (report.groups.len() > 1).then(|| report.text());
        let places = if for_all.is_some() { 1 } else { FEW };
        for place in group.places.iter().take(places) {
            let message = for_all.as_ref().unwrap_or(&place.message);
            self.post(now, group, place, message);
        }
    }

    fn post(&mut self, at: UnixMillis, group: &GroupView, place: &Place, message: &str) {
        let message = shortened(&format!("{message} Next: {}", place.remedy));
        if let Some(posted) = self.posted.get_mut(&place.id) {
            if posted.is_fresh && posted.event.message.as_ref() == Some(&message) {
                return;
            }
            let again = again(&posted.event, at, &message);
            if self.recorder.post(&posted.cluster, &again) {
                posted.event = again;
                posted.is_fresh = true;
            }
            return;
        }
        let Some((cluster, object)) = self.object_of(place) else { return };
        let event_type = if group.severity == Severity::Info { "Normal" } else { "Warning" };
        let about = (event_type, format!("{:?}", group.cause));
        let event = self.recorder.event(at, object, about, &message);
        if self.recorder.post(&cluster, &event) && self.posted.len() < POSTED_MAX {
            let posted = Posted { cluster, event, is_fresh: true, ended_at: None };
            self.posted.insert(place.id.clone(), posted);
        }
    }

    /// The object to post on: the problem's, or else the Lease, if it is about none.
    fn object_of(&self, place: &Place) -> Option<(ClusterName, ObjectReference)> {
        match &place.object {
            _ if !place.id.cause.info().event => None,
            Some(object) => Some((object.cluster.clone(), reference(object.clone()))),
            None if place.id.is_about_object() => None,
            None => self.recorder.lease(),
        }
    }

    /// When to call [`Poster::poll`] next.
    pub fn due(&self) -> Option<UnixMillis> {
        let ends = self.posted.values().filter_map(|posted| posted.ended_at);
        let ends = ends.map(|at| at.plus(GATHER_MS));
        match self.leadership {
            Leadership::Standby => None,
            Leadership::TakesOver(at) => Some(at),
            Leadership::Leads => ends.min(),
        }
    }

    /// Posts ended problems, and after a takeover the open ones.
    pub fn poll(&mut self, now: UnixMillis, problems: &Problems) {
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        if self.leadership != Leadership::Leads {
            self.leadership = Leadership::Leads;
            for report in problems.all() {
                self.report(now, &report);
            }
        }
        let is_over = |posted: &Posted| posted.ended_at.is_some_and(|at| at.plus(GATHER_MS) <= now);
        for (id, posted) in self.posted.extract_if(.., |_, posted| is_over(posted)) {
            let about = ("Normal", "Resolved".to_owned());
            let message = format!("{:?}", id.cause);
            let event = self.recorder.event(now, posted.event.involved_object, about, &message);
            self.recorder.post(&posted.cluster, &event);
        }
    }
}

#[cfg(test)]
mod tests;
