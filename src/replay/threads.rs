//! Work on threads beside the machine's: reading the log, and the search for outages.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::{Scope, ScopedJoinHandle};

use super::{ConnectorNames, ReplayBuilder};
use crate::core::contract::action::Decision;
use crate::core::contract::event::Event;
use crate::event_log::{LogEntry, LogError, LogReader};
use crate::outage::{Outage, OutageTracker};

/// How many lines or events one message carries.
pub(super) const BATCH_LEN: usize = 256;
/// How many batches of lines the reader may be ahead.
pub(super) const BATCHES_MAX: usize = 16;

pub(super) type LineBatch = Result<Vec<LogEntry>, LogError>;

/// What nobody needs any longer. The thread that made it drops it, because an allocator takes back
/// memory of another thread slowly, and locks out that thread meanwhile.
pub(super) enum Used {
    Events(#[expect(dead_code, reason = "it is only dropped")] Vec<Event>),
    Actions(#[expect(dead_code, reason = "it is only dropped")] Vec<Decision>),
}

/// Reads the log to its end; `ahead` are lines that were read before.
pub(super) fn read_batches<R: BufRead>(
    reader: &mut LogReader<R>,
    ahead: Vec<LogEntry>,
    batches: &SyncSender<LineBatch>,
    used: &Receiver<Used>,
    progress: &mut impl FnMut(&LogReader<R>),
) {
    let mut batch = ahead;
    loop {
        match reader.next_line() {
            Ok(Some(line)) => batch.push(line),
            Ok(None) => {
                let _ = batches.send(Ok(batch));
                return;
            }
            Err(error) => {
                let _ = batches.send(Ok(batch));
                let _ = batches.send(Err(error));
                return;
            }
        }
        progress(reader);
        if batch.len() >= BATCH_LEN {
            used.try_iter().for_each(drop);
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_LEN));
            if batches.send(Ok(full)).is_err() {
                return;
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timeline {
    Recorded,
    Replayed,
}

pub(super) type EventBatch = (Timeline, Vec<Event>);

/// What the search for outages found.
pub(super) struct Outages {
    pub(super) connectors: Vec<ConnectorNames>,
    pub(super) recorded: Vec<Outage>,
    pub(super) replayed: Vec<Outage>,
}

/// Searches both timelines for outages.
pub(super) struct OutageThread<'scope> {
    pub(super) events: Sender<EventBatch>,
    pub(super) thread: ScopedJoinHandle<'scope, Outages>,
}

impl<'scope> OutageThread<'scope> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, '_>,
        builder: &ReplayBuilder,
        used: Sender<Used>,
    ) -> std::io::Result<Self> {
        let (events, batches) = channel::<EventBatch>();
        let (clusters, settings) = (&builder.replay.clusters, &builder.replay.settings);
        let tracker = |platform_key_heals| {
            OutageTracker::new(clusters, settings, platform_key_heals)
                .with_node_ids(builder.node_ids)
        };
        let (mut recorded, mut replayed) = (tracker(true), tracker(false));
        let search = move || {
            for (timeline, events) in batches {
                let tracker = match timeline {
                    Timeline::Recorded => &mut recorded,
                    Timeline::Replayed => &mut replayed,
                };
                for event in &events {
                    tracker.observe(event);
                }
                if timeline == Timeline::Recorded {
                    // Once all is read, nobody takes it.
                    let _ = used.send(Used::Events(events));
                }
            }
            Outages {
                connectors: recorded.connectors(),
                recorded: recorded.finish(),
                replayed: replayed.finish(),
            }
        };
        let named = std::thread::Builder::new().name("replay-outages".to_owned());
        let thread = named.spawn_scoped(scope, search)?;
        Ok(Self { events, thread })
    }
}
