//! What a check found, and how findings are gathered.

use serde::Serialize;

/// How well it is; the greater, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Passed,
    /// It could not be looked at, and a live run does not need it.
    Skipped,
    /// It works, and may be meant; or it will not work well.
    Warning,
    /// Something does not work.
    Failed,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The topic and the cluster, e.g. `cluster hub (downstream)`.
    pub group: String,
    /// Which check it is, by a name that stays.
    pub check: &'static str,
    /// How well it is.
    pub level: Level,
    /// What is so, in one line.
    pub what: String,
    /// What was tried and what came back, where that is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Everything that was found, group by group, in an order that stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was found.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Nothing failed.
    pub fn is_well(&self) -> bool {
        self.count(Level::Failed) == 0
    }

    /// How many are of this level.
    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|f| f.level == level).count()
    }

    /// What failed, group and all, in few words: what is waited for.
    pub fn failures(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.level == Level::Failed)
    }
}

/// The findings of one group.
#[derive(Debug)]
pub(super) struct Group {
    name: String,
    findings: Vec<Finding>,
}

impl Group {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), findings: Vec::new() }
    }

    fn add(&mut self, check: &'static str, level: Level, words: [String; 3]) {
        let group = self.name.clone();
        // Some numbers are tied to their units, which programs need not know.
        let [what, detail, remedy] =
            words.map(|text| text.replace(['\u{a0}', '\n'], " ").trim().to_owned());
        let (detail, remedy) = (said(detail), said(remedy));
        self.findings.push(Finding { group, check, level, what, detail, remedy });
    }

    pub(super) fn passed(&mut self, check: &'static str, what: impl Into<String>) {
        self.add(check, Level::Passed, [what.into(), String::new(), String::new()]);
    }

    /// It could not be looked at, because of `detail`.
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

    pub(super) fn findings(self) -> Vec<Finding> {
        self.findings
    }
}

fn said(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// `patch`, `list and watch`, `get, create and update`.
pub(super) fn and(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

/// Some of many, for a person: `a, b, c and 7 more`.
pub(super) fn some(words: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = words.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match words.len().saturating_sub(SHOWN) {
        0 => and(&shown),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
