//! What the documentation says about causes: `docs/reference/causes.md` is generated from the table, and the
//! runbook has a section for each.

use std::fs;

use regex::{Captures, Regex};
use throughline::core::contract::cause::{AlertRule, Cause, CauseInfo, Hop, Severity, State};

use crate::config::pages::assert_table;

/// Whether the runbook has a section for it; the others share a table.
fn has_section(info: &CauseInfo) -> bool {
    info.severity != Severity::Info || !info.alert.is_empty()
}

#[test]
fn causes_md_is_the_table() {
    let mut rows = String::new();
    for cause in Cause::ALL {
        let info = cause.info();
        let alerts: Vec<_> = info.alert.iter().map(|rule: &AlertRule| rule.as_str()).collect();
        let mut name = format!("`{}`", cause.as_str());
        let mut sentence = info.sentence.join(" *or* ");
        if has_section(info) {
            name = format!("[{name}](../how-to/runbook.md#{})", cause.as_str());
        } else if !info.remedy.is_empty() {
            sentence += &format!(" → {}", info.remedy.join(" *or* "));
        }
        let cells = [
            name,
            info.severity.as_str().to_owned(),
            info.hop.map_or("", Hop::as_str).to_owned(),
            info.state.map_or("", State::as_str).to_owned(),
            if info.event { "yes" } else { "" }.to_owned(),
            alerts.join(", "),
            sentence,
        ];
        rows += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    assert_table(
        "causes.md",
        "| cause | severity | hop | state | Event | alerts | sentence |",
        &rows,
    );
}

/// The runbook's sections, by title, each in one line.
fn runbook() -> Vec<(String, String)> {
    let section = |text: &str| {
        let (title, body) = text.split_once('\n').unwrap();
        (title.to_owned(), body.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let page = fs::read_to_string("docs/how-to/runbook.md").unwrap();
    page.split("\n## ").map(section).collect()
}

/// A form as the runbook has it, with capitals for what differs from case to case.
fn with_capitals(form: &str) -> String {
    let form = form.replace("@{", "kubectl --context {");
    let name = Regex::new(r"\{([^}]*)\}").unwrap();
    name.replace_all(&form, |name: &Captures<'_>| name[1].to_uppercase()).into()
}

/// A remedy up to the end of its first command; all of it where it has none.
fn up_to_the_first_command(remedy: &str) -> &str {
    let command = Regex::new("^([^`]*`[^`]*`)*?[^`]*`[^`]*(kubectl|throughline) [^`]*").unwrap();
    command.find(remedy).map_or(remedy.trim_end_matches('.'), |found| found.as_str())
}

/// Each cause that a person must act on has a section; the others are in a table.
#[test]
fn the_runbook_says_of_each_cause_what_the_table_says() {
    let mut own = Cause::ALL.into_iter().filter(|cause| has_section(cause.info()));
    for (title, section) in runbook() {
        if title == "Info causes" {
            let shared = Cause::ALL.into_iter().filter(|cause| !has_section(cause.info()));
            let lacking = shared.map(Cause::as_str).find(|c| !section.contains(&format!("`{c}`")));
            assert_eq!(lacking, None);
        }
        let Some(cause) = Cause::parse(&title) else { continue };
        assert_eq!(Some(cause), own.next());
        let CauseInfo { sentence, remedy, state, alert, .. } = cause.info();
        for form in *sentence {
            let quoted = format!("*{}*", with_capitals(form));
            assert!(section.contains(&quoted), "{title} does not quote {quoted}");
        }
        let (_, to_do) = section.split_once("**Do:** ").unwrap_or_else(|| panic!("{title}"));
        let forms: Vec<_> = remedy.iter().map(|form| with_capitals(form)).collect();
        let mut begins = forms.iter().map(|form| up_to_the_first_command(form));
        assert!(begins.any(|begin| to_do.starts_with(begin)), "{title}: {to_do}\nnot {forms:#?}");
        let says_users = ["**Users", "(#cluster-not-watched)"].iter().any(|s| section.contains(s));
        assert!(says_users, "{title} does not say what users see");

        // It begins with what it makes of connectors, and who is paged.
        let (begin, _) = section.split_once(" *").unwrap();
        let makes = match state {
            Some(State::Stuck) => "Makes connectors stuck (",
            Some(State::Unknown) => "Makes connectors unknown (",
            Some(State::Held) => "Holds connectors (",
            _ if alert.is_empty() => "No alert",
            _ => "Ticket",
        };
        assert!(begin.starts_with(makes), "{title}: {begin}");
        let pages = |rule: &AlertRule| !matches!(rule, AlertRule::Ticket | AlertRule::Paused);
        let is_paging = *state == Some(State::Stuck) || alert.iter().any(pages);
        assert_eq!(begin.contains("pages"), is_paging, "{title}: {begin}");
        let is_ticket = alert.iter().any(|rule| !pages(rule));
        assert_eq!(begin.to_lowercase().contains("ticket"), is_ticket, "{title}: {begin}");
    }
    assert_eq!(own.next(), None, "it has no section");
}
