//! Problems outside the machine: with the Lease, the configuration file and the event log.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::core::contract::cause::Problem;
use crate::core::contract::note::NoteKind;

/// Reports the problem of one component, at most one at a time. Each component has a clone. A default
/// value reports nothing.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    notes: Option<UnboundedSender<NoteKind>>,
    open: Option<Problem>,
}

impl Outside {
    pub fn channel() -> (Self, UnboundedReceiver<NoteKind>) {
        let (notes, reported) = unbounded_channel();
        (Self { notes: Some(notes), open: None }, reported)
    }

    /// Sets the component's current problem.
    pub fn set(&mut self, problem: Option<Problem>) {
        let mut problem = problem;
        let is_same = |old: &Problem| problem.as_ref().is_some_and(|new| new.id() == old.id());
        if let Some(over) = self.open.take_if(|old| !is_same(old)) {
            self.send(NoteKind::Ended(over));
        }
        if let Some((new, old)) = problem.as_mut().zip(self.open.as_ref()) {
            new.since = old.since;
        }
        if let Some(new) = problem.filter(|new| self.open.as_ref() != Some(new)) {
            self.send(NoteKind::Began(new.clone()));
            self.open = Some(new);
        }
    }

    fn send(&self, note: NoteKind) {
        if let Some(notes) = &self.notes {
            // Without a receiver the run has ended.
            drop(notes.send(note));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contract::cause::{About, Cause};
    use crate::core::data::time::UnixMillis;

    #[test]
    fn what_changes_is_reported_once() {
        let (mut lease, mut reported) = Outside::channel();
        let problem =
            |cause, at| Problem::new(cause, About::cluster(&"hub".into()), UnixMillis(at));
        let unusable = problem(Cause::LeaseUnusable, 1);
        lease.set(Some(unusable.clone()));
        lease.set(Some(problem(Cause::LeaseUnusable, 2)));
        assert_eq!(reported.try_recv(), Ok(NoteKind::Began(unusable.clone())));
        assert!(reported.try_recv().is_err(), "it is the same, and as old");

        lease.set(None);
        lease.set(None);
        assert_eq!(reported.try_recv(), Ok(NoteKind::Ended(unusable)));
        assert!(reported.try_recv().is_err());
    }
}
