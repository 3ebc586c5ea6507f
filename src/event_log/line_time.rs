//! The times of a log's lines: those that no clock showed, and those that go back.

use super::LineError;
use super::line_text::column_of_time;
use super::parse::Parser;
use crate::core::data::time::UnixMillis;

/// A longer step from one line to the next is an error of whoever wrote the log.
const STEP_MAX_MS: u64 = 3_653 * 86_400_000;

impl Parser {
    /// Refuses a time that no clock showed.
    pub(super) fn check_time(&self, line: &str, at_ms: u64) -> Result<(), LineError> {
        let at = UnixMillis(at_ms);
        let step_ms = at.since(self.latest).max(self.latest.since(at));
        let defect = if at < UnixMillis::EARLIEST {
            "before the year 2000".to_owned()
        } else if at > UnixMillis::LATEST {
            "after the year 2199".to_owned()
        } else if self.latest > UnixMillis(0) && step_ms > STEP_MAX_MS {
            format!("more than ten years from {}, the latest time before it", self.latest.0)
        } else {
            return Ok(());
        };
        Err(LineError::BadTime { column: column_of_time(line), at_ms, defect })
    }

    /// The machine's clock never runs backwards, so the log's does not either.
    pub(super) fn at(&mut self, at_ms: u64, line_number: u64) -> UnixMillis {
        let at = UnixMillis(at_ms);
        if at >= self.latest {
            self.latest = at;
            return at;
        }
        let back_ms = self.latest.since(at);
        self.backward_count += 1;
        self.backward_max_ms = self.backward_max_ms.max(back_ms);
        if self.backward_count == 1 {
            let text = format!(
                "at_ms goes back by {back_ms} ms; the line counts as {}, the latest time before it",
                self.latest.0
            );
            self.warn(line_number, &text);
        }
        self.latest
    }
}
