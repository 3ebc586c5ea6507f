//! The configuration of a running instance follows its file.
//!
//! A task looks at the file's metadata every few seconds. A file that changed is taken once two looks
//! in a row show the same, so that one which is being written is never read half. What is loaded is
//! compared with what is in force; a file that is broken, or that would do too much harm for a file
//! alone, is refused, and the former configuration stays. SIGHUP is a person's word: it looks at once,
//! and such a file is applied.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::load::{load, load_offline, load_text, read};
use super::reload_plan::{ReloadedConfig, list};
use super::{ClusterConfig, Config, ConfigErrors, LoadedConfig, Overrides};
use crate::environment::blocking;
use crate::logging;
use crate::metrics::{Metrics, ReloadResult};

/// How often the file's metadata is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// The time between the two looks that must show the same.
const STABLE_FOR: Duration = Duration::from_secs(1);

/// Where a configuration comes from; flags override the file.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    pub file: Option<PathBuf>,
    pub overrides: Overrides,
}

impl ConfigSource {
    /// As [`load`].
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(&self) -> Result<LoadedConfig, ConfigErrors> {
        load(self.file.as_deref(), &self.overrides)
    }

    /// As [`load_offline`].
    ///
    /// # Errors
    /// As [`load_offline`].
    pub fn load_offline(&self) -> Result<LoadedConfig, ConfigErrors> {
        load_offline(self.file.as_deref(), &self.overrides)
    }
}

/// Follows the source's file and SIGHUP, from inside a Tokio runtime, for as long as somebody receives:
/// each configuration that is to take the place of the one before, `in_force` first. What can't change
/// at run time is in each as it is in `in_force`. Without a file there is nothing to read again, and a
/// terminal that closes ends the run.
///
/// # Errors
/// The signal can't be listened for.
pub(crate) fn follow(
    source: ConfigSource,
    in_force: &Config,
    metrics: Arc<Metrics>,
) -> io::Result<mpsc::Receiver<Config>> {
    let (configs, followed) = mpsc::channel(1);
    let Some(file) = source.file else { return Ok(followed) };
    let mut hangups = signal(SignalKind::hangup())?;
    let (asks, asked) = mpsc::channel(1);
    tokio::spawn(
        async move { while hangups.recv().await.is_some() && asks.send(()).await.is_ok() {} },
    );
    let follower = Follower::new(file, source.overrides, in_force.clone(), metrics, configs);
    tokio::spawn(follower.run(asked));
    Ok(followed)
}

/// What tells a file from its earlier version without reading it: inode, size, and the time of the last
/// change of content or inode. `None` while it can't be read. A ConfigMap's files are symbolic links
/// through a directory that is swapped; the file that they lead to counts.
type Stamp = Option<(u64, u64, (i64, i64))>;

/// One look at the file.
#[derive(Clone, PartialEq, Eq)]
struct Look {
    stamp: Stamp,
    text: Result<String, String>,
}

/// What became of a look.
struct Refused {
    look: Look,
    /// What the log says about it.
    message: String,
    /// Whether another look at the same file may end otherwise: a kubeconfig may be there by then.
    may_pass: bool,
}

struct Follower {
    file: PathBuf,
    overrides: Overrides,
    in_force: Config,
    /// The cluster that holds the Lease since the start.
    lease: Option<ClusterConfig>,
    metrics: Arc<Metrics>,
    configs: mpsc::Sender<Config>,
    /// The file as it was last taken; `None` until the first look.
    taken: Option<Look>,
    /// A changed file that must look the same once more.
    candidate: Option<Look>,
    refused: Option<Refused>,
}

impl Follower {
    fn new(
        file: PathBuf,
        overrides: Overrides,
        in_force: Config,
        metrics: Arc<Metrics>,
        configs: mpsc::Sender<Config>,
    ) -> Self {
        let lease = in_force.election_cluster().cloned();
        let (taken, candidate, refused) = (None, None, None);
        Self { file, overrides, in_force, lease, metrics, configs, taken, candidate, refused }
    }

    /// Looks now and then, and at once when asked to by a person.
    async fn run(mut self, mut asked: mpsc::Receiver<()>) {
        loop {
            let pause = if self.candidate.is_some() { STABLE_FOR } else { LOOK_EVERY };
            tokio::select! {
                () = self.configs.closed() => return,
                Some(()) = asked.recv() => {
                    info!("SIGHUP: reading {} again", self.file.display());
                    self.look_now().await;
                }
                () = sleep(pause) => self.look().await,
            }
        }
    }

    async fn look(&mut self) {
        let file = self.file.clone();
        let known = self.candidate.as_ref().or(self.refused.as_ref().map(|r| &r.look));
        let known = known.or(self.taken.as_ref()).map(|look| look.stamp);
        let is_settled = self.candidate.is_none()
            && !self.refused.as_ref().is_some_and(|refused| refused.may_pass);
        let Some(look) = blocking(move || {
            // Unchanged, and nothing is open: the file is not even read.
            (!is_settled || known != Some(stamp(&file))).then(|| Look::at(&file))
        })
        .await
        .flatten() else {
            return;
        };
        if let Some(refused) = &mut self.refused
            && refused.look.text == look.text
        {
            refused.look.stamp = look.stamp;
            self.candidate = None;
            if refused.may_pass {
                self.load(look, false).await;
            }
        } else if self.candidate.as_ref() == Some(&look) {
            self.candidate = None;
            self.load(look, false).await;
        } else if self.refused.is_none()
            && self.taken.as_ref().is_some_and(|taken| taken.text == look.text)
        {
            // Touched, or written with the same content.
            (self.taken, self.candidate) = (Some(look), None);
        } else {
            self.candidate = Some(look);
        }
    }

    async fn look_now(&mut self) {
        let file = self.file.clone();
        if let Some(look) = blocking(move || Look::at(&file)).await {
            self.candidate = None;
            self.load(look, true).await;
        }
    }

    /// Loads what a look showed, and takes or refuses it.
    async fn load(&mut self, look: Look, is_asked: bool) {
        let (file, overrides) = (self.file.clone(), self.overrides.clone());
        let text = look.text.clone();
        let Some(loaded) = blocking(move || load_text(&file, text, &overrides)).await else {
            return;
        };
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(errors) => return self.refuse(look, errors.to_string(), true, is_asked),
        };
        let plan = ReloadedConfig::new(&self.in_force, self.lease.as_ref(), loaded.config);
        if let Some(harm) = plan.harm(&self.in_force).filter(|_| !is_asked) {
            let message = format!(
                "{harm}. A changed file alone may not do that: if it is meant, send SIGHUP to \
                 this process (kill -HUP), or restart it"
            );
            return self.refuse(look, message, false, is_asked);
        }
        let is_first = self.taken.replace(look).is_none();
        let was_refused = self.refused.take().is_some();
        if is_first && !was_refused && !is_asked && plan.is_empty() && plan.waiting.is_empty() {
            // The file is as it was at the start.
            return;
        }
        for warning in &loaded.warnings {
            warn!("{warning}");
        }
        info!("configuration reloaded: {}", plan.describe());
        if !plan.waiting.is_empty() {
            let waiting = list(&plan.waiting);
            warn!("configuration reloaded, but not in full: these wait for a restart: {waiting}");
        }
        self.metrics.config_reloaded(ReloadResult::Applied);
        let level = &plan.config.log.level;
        if *level != self.in_force.log.level
            && let Err(error) = logging::set_level(level)
        {
            warn!("log.level: {error}");
        }
        self.in_force = plan.config.clone();
        if !plan.is_empty() {
            let _ = self.configs.send(plan.config).await;
        }
    }

    /// The same refusal of the same content is logged once, unless a person asked.
    fn refuse(&mut self, look: Look, message: String, may_pass: bool, is_asked: bool) {
        let is_known = |r: &Refused| r.look.text == look.text && r.message == message;
        if is_asked || !self.refused.as_ref().is_some_and(is_known) {
            let file = self.file.display();
            error!("{file} is not used; the configuration in force stays: {message}");
            self.metrics.config_reloaded(ReloadResult::Refused);
        }
        self.refused = Some(Refused { look, message, may_pass });
    }
}

impl Look {
    fn at(file: &Path) -> Self {
        // Before the content: what is written in between shows as a change later.
        Self { stamp: stamp(file), text: read(file) }
    }
}

fn stamp(file: &Path) -> Stamp {
    let file = fs::metadata(file).ok()?;
    Some((file.ino(), file.len(), (file.ctime(), file.ctime_nsec())))
}

#[cfg(test)]
mod tests;
