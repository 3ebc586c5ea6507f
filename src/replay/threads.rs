//! What goes on beside the machine: reading the log, and looking for outages.

use std::io::BufRead;
use std::sync::mpsc::{Sender, SyncSender, channel};
use std::thread::{Scope, ScopedJoinHandle};

use super::{Story, Way};
use crate::core::event::Event;
use crate::event_log::{Line, LogError, Reader};
use crate::outage::{Outage, Outages};

/// Lines and events are handed on so many at a time, and so many batches may wait.
pub(super) const BATCH: usize = 256;
pub(super) const BATCHES: usize = 16;

pub(super) type Lines = Result<Vec<Line>, LogError>;

pub(super) fn read_batches<R: BufRead>(
    reader: &mut Reader<R>,
    ahead: Vec<Line>,
    batches: &SyncSender<Lines>,
    progress: &mut impl FnMut(&Reader<R>),
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
        if batch.len() >= BATCH
            && batches.send(Ok(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)))).is_err()
        {
            return;
        }
    }
}

/// Which of the two timelines an event belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timeline {
    Recorded,
    Replayed,
}

pub(super) type Observed = (Timeline, Vec<Event>);
pub(super) type Found = (Vec<Way>, Vec<Outage>, Vec<Outage>);

/// Follows both timelines beside the machine.
pub(super) struct OutageThread<'scope> {
    pub(super) send: Sender<Observed>,
    pub(super) thread: ScopedJoinHandle<'scope, Found>,
}

impl<'scope> OutageThread<'scope> {
    pub(super) fn new(scope: &'scope Scope<'scope, '_>, story: &Story) -> Self {
        let (send, receive) = channel::<Observed>();
        let (clusters, settings) = (&story.replay.clusters, &story.replay.settings);
        let mut recorded = Outages::new(clusters, settings, true);
        let mut replayed = Outages::new(clusters, settings, false);
        let thread = scope.spawn(move || {
            for (timeline, events) in receive {
                let outages =
                    if timeline == Timeline::Recorded { &mut recorded } else { &mut replayed };
                for event in &events {
                    outages.observe(event);
                }
            }
            let way =
                |(cluster, source, replica)| Way { upstream: Some((cluster, source)), replica };
            let ways = recorded.ways().into_iter().map(way).collect();
            (ways, recorded.finish(), replayed.finish())
        });
        Self { send, thread }
    }
}
