//! What the reader warns of: short texts, and not more of them than anybody reads, whatever the log holds.

use super::parse::Parser;
use crate::outside_text::brief;

/// The most warnings of one log.
const WARNINGS_MAX: usize = 1_000;

/// The most kinds that are named as skipped. Kubernetes has fewer, with a hundred operators.
const KINDS_MAX: usize = 500;

impl Parser {
    pub(super) fn warn(&mut self, line_number: u64, text: &str) {
        self.warning_count += 1;
        if self.warning_count < WARNINGS_MAX {
            self.warnings.push((line_number, brief(text).into_owned()));
        } else if self.warning_count == WARNINGS_MAX {
            let text = format!("there are more than {WARNINGS_MAX} warnings; no more are shown");
            self.warnings.push((line_number, text));
        }
    }

    pub(super) fn take_warnings(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.warnings)
    }

    pub(super) fn take_gaps(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.gaps)
    }

    /// Warns about missing lines.
    pub(super) fn gap(&mut self, line_number: u64, text: &str) {
        self.has_gaps = true;
        self.missing(line_number, text);
    }

    /// Warns that something which entered the machine is missing.
    pub(super) fn missing(&mut self, line_number: u64, text: &str) {
        if self.warning_count < WARNINGS_MAX {
            self.gaps.push((line_number, brief(text).into_owned()));
        }
        self.warn(line_number, text);
    }

    /// Warns once that a kind is skipped.
    pub(super) fn skip(&mut self, text: &str, kind: &str, line_number: u64) {
        let kind = brief(kind);
        if self.skipped_kinds.len() < KINDS_MAX && !self.skipped_kinds.contains(&*kind) {
            self.skipped_kinds.insert(kind.into_owned());
            self.warn(line_number, &format!("{}; skipping all its lines", brief(text)));
        }
    }
}
