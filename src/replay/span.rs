//! Problems over time, from beginning to end.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::core::contract::cause::{About, Cause, Hop, Problem, ProblemId, Severity, State};
use crate::core::contract::note::{Note, NoteKind};
use crate::core::data::time::UnixMillis;

/// A problem over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub cause: Cause,
    pub severity: Severity,
    /// The hop that it delays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<Hop>,
    pub about: About,
    pub since_ms: UnixMillis,
    /// A late hop is reported once it is late.
    pub reported_ms: UnixMillis,
    pub ended_ms: Option<UnixMillis>,
    /// The sentence with the last known facts.
    pub message: String,
    /// The index of its beginning in the notes.
    #[serde(skip)]
    pub began_at: usize,
    #[serde(skip)]
    pub ended_at: Option<usize>,
}

impl Span {
    fn new(at: usize, note: &Note, problem: &Problem) -> Self {
        let info = problem.cause.info();
        Self {
            cause: problem.cause,
            severity: info.severity,
            hop: info.hop,
            about: problem.about.clone(),
            since_ms: problem.since,
            reported_ms: note.at,
            ended_ms: None,
            message: problem.sentence(),
            began_at: at,
            ended_at: None,
        }
    }

    /// All problems in these notes, ordered by the time of their report.
    pub fn all(notes: &[Note]) -> Vec<Self> {
        let mut spans: Vec<Self> = Vec::new();
        let mut open: BTreeMap<ProblemId, usize> = BTreeMap::new();
        for (at, note) in notes.iter().enumerate() {
            match &note.kind {
                NoteKind::Began(problem) => {
                    let new = Self::new(at, note, problem);
                    match open.get(&problem.id()).and_then(|i| spans.get_mut(*i)) {
                        Some(span) => {
                            span.about = new.about;
                            span.message = new.message;
                        }
                        None => {
                            open.insert(problem.id(), spans.len());
                            spans.push(new);
                        }
                    }
                }
                NoteKind::Ended(problem) => {
                    let ended = open.remove(&problem.id());
                    if let Some(span) = ended.and_then(|i| spans.get_mut(i)) {
                        span.ended_ms = Some(note.at);
                        span.ended_at = Some(at);
                    }
                }
                NoteKind::HopPassed { .. } | NoteKind::Symptom { .. } => {}
            }
        }
        spans
    }

    pub fn is_open(&self) -> bool {
        self.ended_ms.is_none()
    }

    /// Whether it still keeps connectors out of sync with upstream.
    pub fn is_stuck(&self) -> bool {
        self.is_open() && self.cause.info().state == Some(State::Stuck)
    }
}
