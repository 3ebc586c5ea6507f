//! The observer of a live run.

use crate::core::contract::action::Decision;
use crate::core::contract::event::Event;
use crate::core::contract::note::Note;

/// Sees everything that enters and leaves the machine of a live run, in order. Its methods are
/// called in the loop and must not block.
pub trait Observer: Send {
    /// An event entered the machine.
    fn on_event(&mut self, event: &Event);
    /// The machine decided on an action.
    fn on_decision(&mut self, decision: &Decision);
    /// The machine emitted a note.
    fn on_note(&mut self, note: &Note);
}
