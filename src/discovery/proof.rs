//! Proves that a Project does not exist by a GET at the root. It is asked for a Project that was
//! observed to be deleted, and for one that hub objects name and no list contains.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::{info, warn};

use super::follow::Question;
use crate::client::ProjectRoot;
use crate::client::projects::is_project_name;
use crate::core::contract::event::EventKind;
use crate::core::contract::membership::SourceName;
use crate::core::data::ids::ClusterName;
use crate::environment;

/// The most Projects requested in parallel.
const IN_FLIGHT_MAX: usize = 4;

/// After this many errors the Project's state is unknown, and its hub objects stay as they are.
const ATTEMPTS_MAX: usize = 12;

/// A name that no list contains is requested again later anyway ([`UNKNOWN_AGAIN`]).
const ATTEMPTS_UNKNOWN: usize = 2;

/// When to request a name again that no list contains although its Project exists, as with a label
/// selector, or whose request failed.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(3_600);

const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The time of the last request for each name that hub objects use and no list contains.
#[derive(Default)]
pub(super) struct UnknownNames {
    asked: BTreeMap<ClusterName, Instant>,
}

impl UnknownNames {
    /// The names to request now. Names no longer given are forgotten.
    pub(super) fn due(&mut self, names: Vec<ClusterName>) -> Vec<ClusterName> {
        let now = Instant::now();
        let before = std::mem::take(&mut self.asked);
        let mut due = Vec::new();
        for name in names.into_iter().filter(|name| is_project_name(name.as_str())) {
            let asked = before.get(&name).filter(|asked| **asked + UNKNOWN_AGAIN > now);
            self.asked.insert(name.clone(), asked.copied().unwrap_or(now));
            if asked.is_none() {
                due.push(name);
            }
        }
        due
    }
}

/// Reports to the machine which of the Projects in `questions` do not exist, until the channel closes.
pub(super) async fn run(
    root: Arc<ProjectRoot>,
    questions: mpsc::UnboundedReceiver<Question>,
    bus: mpsc::Sender<EventKind>,
) {
    let questions = UnboundedReceiverStream::new(questions);
    let answers = questions.map(|question| is_gone(root.clone(), question));
    let mut gone = answers.buffer_unordered(IN_FLIGHT_MAX).filter_map(std::future::ready);
    while let Some(cluster) = gone.next().await {
        info!(%cluster, "the Project does not exist any longer");
        let event = EventKind::ClusterGone { source: SourceName::Milo, cluster };
        let _ = bus.send(event).await;
    }
}

/// The names without a Project, each requested once. Names without an answer within `within` are left
/// out.
pub(super) async fn gone_among(
    root: &ProjectRoot,
    names: Vec<ClusterName>,
    within: Duration,
) -> Vec<ClusterName> {
    let answers = names.into_iter().map(|name| async move {
        let exists = root.exists(&name).await;
        matches!(exists, Ok(false)).then_some(name)
    });
    let answers = futures::stream::iter(answers).buffer_unordered(IN_FLIGHT_MAX);
    let gone = answers.filter_map(std::future::ready).take_until(sleep(within));
    gone.collect().await
}

/// The name, if no Project of it exists.
async fn is_gone(root: Arc<ProjectRoot>, question: Question) -> Option<ClusterName> {
    let (cluster, attempts) = match question {
        Question::Deleted(cluster) => (cluster, ATTEMPTS_MAX),
        Question::Unknown(cluster) => (cluster, ATTEMPTS_UNKNOWN),
    };
    let pauses = ExponentialBuilder::default()
        .with_min_delay(PAUSE_FIRST)
        .with_max_delay(PAUSE_MAX)
        .with_max_times(attempts)
        .with_jitter()
        .with_jitter_seed(environment::random());
    let mut pauses = pauses.build();
    loop {
        match root.exists(&cluster).await {
            Ok(false) => return Some(cluster),
            Ok(true) => {
                info!(%cluster, "the Project exists");
                return None;
            }
            Err(error) => {
                let Some(pause) = pauses.next() else {
                    warn!(%cluster, %error, "cannot tell whether the Project still exists: its hub \
                        objects do not count as those of a deleted project");
                    return None;
                };
                sleep(pause.max(error.retry_after().unwrap_or_default())).await;
            }
        }
    }
}
