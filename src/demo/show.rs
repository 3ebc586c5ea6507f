//! Hears everything that the run tells, and shows it as it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::core::action::{Decision, Note};
use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Kind, ObjectKey};
use crate::core::time::UnixMillis;
use crate::narrate::Listen;
use crate::outage::{Outage, Outages};
use crate::replay::Replay;
use crate::report::{self, Aside, Live};

/// What belongs together comes within this time: it is told together.
const BUNDLE: Duration = Duration::from_millis(300);
/// Nothing waits longer to be told.
const TELL_AFTER_MAX: Duration = Duration::from_millis(2_500);

/// One thing that the run tells.
pub(super) enum Heard {
    Event(Event),
    Decided(Decision),
    Noted(Note),
}

/// The run's end of it: never waits.
struct Ear(UnboundedSender<Heard>);

impl Ear {
    fn pass_on(&self, heard: Heard) {
        // Nobody listens any longer: then nobody wants to know.
        let _ = self.0.send(heard);
    }
}

impl Listen for Ear {
    fn event(&mut self, event: &Event) {
        self.pass_on(Heard::Event(event.clone()));
    }

    fn decided(&mut self, decision: &Decision) {
        self.pass_on(Heard::Decided(decision.clone()));
    }

    fn noted(&mut self, note: &Note) {
        self.pass_on(Heard::Noted(note.clone()));
    }
}

/// Hears, keeps what the end needs, and tells.
pub(super) struct Audience {
    heard: UnboundedReceiver<Heard>,
    live: Live,
    tells: bool,
    outages: Outages,
    /// What was written.
    pub(super) touched: BTreeSet<(ClusterName, ObjectKey)>,
    /// Lists that must be there before the play begins.
    awaited: BTreeSet<(ClusterName, Kind)>,
    /// All of them.
    known: BTreeSet<(ClusterName, Kind)>,
    lost: BTreeMap<ClusterName, BTreeSet<Kind>>,
    first_news: Option<Instant>,
    /// When something was heard last.
    pub(super) last_heard: Instant,
}

impl Audience {
    /// And what hears for it. `awaited` are the kinds that the run will list.
    pub(super) fn new(
        replay: &Replay,
        started: UnixMillis,
        awaited: BTreeSet<(ClusterName, Kind)>,
        options: Option<report::Options>,
    ) -> (Self, Box<dyn Listen>) {
        let (ear, heard) = unbounded_channel();
        let tells = options.is_some();
        let audience = Self {
            heard,
            live: Live::new(replay, started, options.unwrap_or_default()),
            tells,
            outages: Outages::new(&replay.clusters, &replay.settings, false),
            touched: BTreeSet::new(),
            known: awaited.clone(),
            awaited,
            lost: BTreeMap::new(),
            first_news: None,
            last_heard: Instant::now(),
        };
        (audience, Box::new(Ear(ear)))
    }

    /// Waits for the next thing; never resolves once the run has ended. Cancel-safe.
    pub(super) async fn hear(&mut self) -> Heard {
        match self.heard.recv().await {
            Some(heard) => heard,
            None => std::future::pending().await,
        }
    }

    /// What was heard and not taken yet, when the run has ended.
    pub(super) fn take_rest(&mut self) {
        while let Ok(heard) = self.heard.try_recv() {
            self.take(heard);
        }
    }

    /// Takes in what was heard.
    pub(super) fn take(&mut self, heard: Heard) {
        self.last_heard = Instant::now();
        match heard {
            Heard::Event(event) => {
                self.outages.observe(&event);
                self.take_event(event);
            }
            Heard::Decided(decision) => {
                let action = &decision.action;
                self.touched.insert((action.cluster.clone(), action.object.clone()));
                self.live.decided(decision);
            }
            Heard::Noted(note) => self.live.noted(note),
        }
        self.note_news();
    }

    fn take_event(&mut self, event: Event) {
        match event.what {
            Happened::ActionFinished { id, outcome } => self.live.finished(event.at, id, outcome),
            Happened::WatchLost { cluster, kind, error } => {
                // Of kinds that are not served it was told at the start.
                if !self.known.contains(&(cluster.clone(), kind)) {
                    return;
                }
                let lost = self.lost.entry(cluster.clone()).or_default();
                if lost.is_empty() {
                    self.live.aside(event.at, Aside::Lost { cluster, error });
                }
                lost.insert(kind);
            }
            Happened::ListFinished { cluster, kind } => {
                self.awaited.remove(&(cluster.clone(), kind));
                self.is_back(event.at, cluster, kind);
            }
            Happened::WatchResumed { cluster, kind } => self.is_back(event.at, cluster, kind),
            _ => {}
        }
    }

    fn is_back(&mut self, at: UnixMillis, cluster: ClusterName, kind: Kind) {
        if let Some(lost) = self.lost.get_mut(&cluster)
            && lost.remove(&kind)
            && lost.is_empty()
        {
            self.live.aside(at, Aside::Back { cluster });
        }
    }

    /// Something that the run does not tell.
    pub(super) fn aside(&mut self, at: UnixMillis, aside: Aside) {
        self.live.aside(at, aside);
        self.note_news();
    }

    fn note_news(&mut self) {
        if self.live.has_news() {
            self.first_news.get_or_insert_with(Instant::now);
        }
    }

    /// Whether the run has listed all that it was to list at the start.
    pub(super) fn has_seen_all(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Whether writes are under way.
    pub(super) fn is_waiting_for_writes(&self) -> bool {
        self.live.under_way() > 0
    }

    /// When there is something to tell.
    pub(super) fn tell_at(&self) -> Option<Instant> {
        let latest = self.first_news? + TELL_AFTER_MAX;
        let is_open = self.is_waiting_for_writes();
        Some(if is_open { latest } else { latest.min(self.last_heard + BUNDLE) })
    }

    /// Tells what there is to tell.
    pub(super) fn tell(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.first_news = None;
        match self.tells {
            true => self.live.tell(out),
            false => self.live.tell(&mut io::sink()),
        }
    }

    /// What users would have seen.
    pub(super) fn outages(self) -> Vec<Outage> {
        self.outages.finish()
    }
}
