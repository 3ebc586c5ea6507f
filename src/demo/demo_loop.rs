//! Plays the recording while the run reacts: one loop, until everything has converged.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::clusters::DemoClusters;
use super::play::Player;
use super::story::RunStory;
use crate::clock::sleep_until_opt;
use crate::core::contract::cause::State;
use crate::instance;
use crate::replay::not_converged;
use crate::report::Notice;

/// After the recording, the demo checks for convergence once the run has been quiet for this long. It
/// is longer than any delay of the machine that is invisible in the clusters' state.
const QUIET_TIME: Duration = Duration::from_millis(1_500);
/// The demo ends without convergence once the run has been quiet for this long.
const GIVE_UP_TIME: Duration = Duration::from_secs(60);

/// The longest time for the run to return its state.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How the demo ended.
pub(super) enum DemoEnd {
    Converged { held: u64 },
    Stopped,
    NotConverged(Vec<String>),
}

/// Plays the recording while the run reacts, and prints the story.
pub(super) struct DemoLoop<'a> {
    pub(super) player: &'a mut Player,
    pub(super) clusters: &'a DemoClusters,
    pub(super) story: &'a mut RunStory,
    /// The run's admin port.
    pub(super) page: &'a str,
    pub(super) is_playing: bool,
    /// The run's last activity when convergence was last checked.
    pub(super) checked_at_activity: Option<Instant>,
}

impl DemoLoop<'_> {
    pub(super) async fn run(
        &mut self,
        running: &mut JoinHandle<anyhow::Result<()>>,
        stop: &mut watch::Receiver<bool>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<DemoEnd> {
        loop {
            if !self.is_playing && self.story.has_listed_all() {
                self.is_playing = true;
                self.player.start();
                self.announce_next();
            }
            let due = sleep_until_opt(self.due_at());
            tokio::select! {
                observation = self.story.next() => self.story.apply(observation),
                () = self.player.hub_changed() => {}
                () = due => if let Some(ended) = self.do_what_is_due(out).await? {
                    return Ok(ended);
                },
                ended = &mut *running => {
                    ended.context("the run crashed")??;
                    anyhow::bail!("the run ended before the demo did");
                }
                Ok(_) = stop.wait_for(|stop| *stop) => return Ok(DemoEnd::Stopped),
            }
        }
    }

    /// Keeps everything running until `stop` turns true.
    pub(super) async fn linger(
        &mut self,
        running: &mut JoinHandle<anyhow::Result<()>>,
        stop: &mut watch::Receiver<bool>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<()> {
        self.story.print(out)?;
        writeln!(out, "\n  the recording is over; throughline keeps running: {}", self.page)?;
        writeln!(out, "  Ctrl-C ends it")?;
        out.flush()?;
        loop {
            let due = sleep_until_opt(self.player.carrier_due_at());
            tokio::select! {
                observation = self.story.next() => self.story.apply(observation),
                () = self.player.hub_changed() => {}
                () = due => self.player.advance_carrier(),
                ended = &mut *running => {
                    ended.context("the run crashed")??;
                    anyhow::bail!("the run ended before the demo did");
                }
                Ok(_) = stop.wait_for(|stop| *stop) => return Ok(()),
            }
        }
    }

    fn play_at(&self) -> Option<Instant> {
        self.player.next_at().filter(|_| self.is_playing)
    }

    /// When to check for convergence.
    fn check_at(&self) -> Option<Instant> {
        let last = self.story.last_activity;
        let wait = if self.checked_at_activity == Some(last) { GIVE_UP_TIME } else { QUIET_TIME };
        (self.is_playing && self.player.is_finished()).then(|| last + wait)
    }

    fn due_at(&self) -> Option<Instant> {
        let carrier_at = self.player.carrier_due_at();
        let all = [self.play_at(), carrier_at, self.story.print_at(), self.check_at()];
        all.into_iter().flatten().min()
    }

    async fn do_what_is_due(
        &mut self,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<Option<DemoEnd>> {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.player.carrier_due_at()) {
            self.player.advance_carrier();
        }
        if is_due(self.story.print_at()) {
            self.story.print(out)?;
        }
        if is_due(self.play_at()) {
            if let Some(line) = self.player.play_next(self.clusters) {
                self.story.add_line(line);
            }
            self.story.last_activity = now;
            self.announce_next();
        } else if is_due(self.check_at()) {
            return self.check().await;
        }
        Ok(None)
    }

    /// Adds a line about a shortened pause, or about the end of the recording.
    fn announce_next(&mut self) {
        if let Some(text) = self.player.announcement() {
            self.story.add_line(Notice::Text(text));
        }
    }

    /// Whether everything has converged, according to the run; if not, gives up at the second check
    /// without new activity.
    async fn check(&mut self) -> anyhow::Result<Option<DemoEnd>> {
        let is_second_check = self.checked_at_activity == Some(self.story.last_activity);
        self.checked_at_activity = Some(self.story.last_activity);
        let fleet = instance::fleet(self.page, ANSWER_WITHIN).await?;
        let mut problems = not_converged(&fleet);
        if self.player.carrier_due_at().is_some() {
            problems.push("the carrier is still copying changes to an edge".to_owned());
        }
        Ok(match problems.is_empty() {
            true => Some(DemoEnd::Converged { held: fleet.count(State::Held) }),
            false => is_second_check.then_some(DemoEnd::NotConverged(problems)),
        })
    }
}
