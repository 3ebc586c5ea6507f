//! What the checks found.

use serde::Serialize;

/// In ascending order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Passed,
    /// It could not be checked, and a live run does not need it.
    Skipped,
    /// It works badly, or works and may be intended.
    Warning,
    /// A live run would not work, or not fully.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The topic and the cluster, e.g. `cluster hub (hub)`.
    pub group: String,
    /// The check's name, which does not change between versions.
    pub check: &'static str,
    pub level: Level,
    /// The result in one line.
    pub what: String,
    /// What was tried and what the answer was, unless the check passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do. The first line is an explanation, each further line a command to paste.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All findings, group by group, in an order that does not change between runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Whether nothing failed.
    pub fn is_passed(&self) -> bool {
        self.count(Level::Failed) == 0
    }

    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|f| f.level == level).count()
    }

    pub fn failures(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.level == Level::Failed)
    }
}

#[derive(Debug)]
pub(super) struct FindingGroup {
    name: String,
    findings: Vec<Finding>,
}

impl FindingGroup {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), findings: Vec::new() }
    }

    fn add(&mut self, check: &'static str, level: Level, texts: [String; 3]) {
        let group = self.name.clone();
        // Durations hold no-break spaces, which are for terminals only.
        let [what, detail, remedy] =
            texts.map(|text| text.replace('\u{a0}', " ").trim().to_owned());
        // Answers of API servers may have several lines; the lines of a remedy are commands.
        let [what, detail] = [what, detail].map(|text| text.replace('\n', " "));
        let (detail, remedy) = (non_empty(detail), non_empty(remedy));
        self.findings.push(Finding { group, check, level, what, detail, remedy });
    }

    pub(super) fn passed(&mut self, check: &'static str, what: impl Into<String>) {
        self.add(check, Level::Passed, [what.into(), String::new(), String::new()]);
    }

    pub(super) fn skipped(
        &mut self,
        check: &'static str,
        what: impl Into<String>,
        detail: impl Into<String>,
    ) {
        self.add(check, Level::Skipped, [what.into(), detail.into(), String::new()]);
    }

    pub(super) fn warned(
        &mut self,
        check: &'static str,
        what: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Level::Warning, [what.into(), detail.into(), remedy.into()]);
    }

    pub(super) fn failed(
        &mut self,
        check: &'static str,
        what: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Level::Failed, [what.into(), detail.into(), remedy.into()]);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Inserts findings after those of a check, or at the end if there are none of it.
    pub(super) fn insert_after(&mut self, check: &str, findings: FindingGroup) {
        let last = self.findings.iter().rposition(|finding| finding.check == check);
        let at = last.map_or(self.findings.len(), |last| last + 1);
        self.findings.splice(at..at, findings.findings);
    }

    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// `patch`, `list and watch`, `get, create and update`.
pub(super) fn join_with_and(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

/// The first few words: `a, b, c, d, e and 7 more`.
pub(super) fn join_first(words: &[impl AsRef<str>]) -> String {
    const SHOWN_MAX: usize = 5;
    let shown: Vec<&str> = words.iter().take(SHOWN_MAX).map(AsRef::as_ref).collect();
    match words.len().saturating_sub(SHOWN_MAX) {
        0 => join_with_and(&shown),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
