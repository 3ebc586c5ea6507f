//! What the documentation says about causes: `docs/reference/causes.md` is generated from the table, and the
//! runbook has a section for each.

use std::path::Path;

use expect_test::expect_file;
use throughline::core::contract::cause::{AlertRule, Cause, CauseInfo, Hop, Severity, State};

const BEFORE_THE_TABLE: &str = "\
# Causes

Everything that can be wrong, by name. Log, Events, metrics, alerts, `status`, `trace` and `check` use the same names, sentences and remedies. A
name links to its section of the runbook: what users see, and what to do. Causes without a section have their remedy here, after →.

- **hop**: the hop that the cause delays.
- **state**: what it makes of the connectors concerned. `stuck` also fires the alert `ThroughlineStuck`.
- **sentence**: of two, the first whose facts are all known.

This table is generated from `crates/core/src/contract/cause.rs`.

| cause | severity | hop | state | Event | alerts | sentence |
|---|---|---|---|---|---|---|
";

const AFTER_THE_TABLE: &str = "
## One cause, one message

The log has a line one second after a cause began, at most one a minute while it changes, and one when it ended (`resolved`). Objects with one
cause in one cluster share a line, which names the first and counts the others; so do more than three clusters with one cause. Errors are
logged as ERROR, warnings as WARN, infos as DEBUG. The fields are `cause`, `cluster`, `count`, `since`, `error` and `remedy`.

## Kubernetes Events

`kubectl describe` and `kubectl events` show the causes of an object. The reason of an Event is the cause in CamelCase (`NotCarried`); its
message is the sentence, `Next:` and the remedy, without addresses and node ids. An Event `Resolved` follows when the cause has ended.
`LeaderElection` on the Lease reports a new leader, or the loss of leadership.

- Only the leader posts Events, or every instance if there is no election. A new leader posts after 10 s what is still open.
- Up to three objects of one cause get an Event each; more share one, on the first object.
- At most 30 a minute are sent to all clusters together; `throughline_events_total{result=\"dropped\"}` counts the others.
- A cluster that is only an upstream gets none, unless it holds the Lease. A dry run and `events.enabled: false` post none.
";

/// Whether the runbook has a section for it; the others share a table.
fn has_section(info: &CauseInfo) -> bool {
    info.severity != Severity::Info || !info.alert.is_empty()
}

#[test]
fn causes_md_is_the_table() {
    let mut page = BEFORE_THE_TABLE.to_owned();
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
        page += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    page += AFTER_THE_TABLE;
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/causes.md")].assert_eq(&page);
}

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/how-to/runbook.md");
    std::fs::read_to_string(page).unwrap()
}

/// The runbook's sections, by title, each in one line.
fn runbook() -> Vec<(String, String)> {
    let section = |text: &str| {
        let (title, body) = text.split_once('\n').unwrap();
        (title.to_owned(), body.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    page().split("\n## ").map(section).collect()
}

/// A form as the runbook has it, with capitals for what differs from case to case.
fn with_capitals(form: &str) -> String {
    let mut text = String::new();
    let mut rest = form;
    while let Some((before, place)) = rest.split_once('{') {
        let (name, after) = place.split_once('}').unwrap();
        match before.strip_suffix('@') {
            Some(before) => text += &format!("{before}kubectl --context "),
            None => text += before,
        }
        text += &name.to_uppercase();
        rest = after;
    }
    text + rest
}

/// A remedy up to the end of its first command; all of it where it has none.
fn up_to_the_first_command(remedy: &str) -> &str {
    let is_command = |code: &str| ["kubectl ", "throughline "].iter().any(|c| code.contains(c));
    let mut end = 0;
    for (i, part) in remedy.split('`').enumerate() {
        end += part.len();
        if i % 2 == 1 && is_command(part) {
            return &remedy[..end];
        }
        end += 1;
    }
    remedy.trim_end_matches('.')
}

#[test]
fn the_runbook_has_one_section_for_each_cause_that_a_person_must_act_on() {
    let sections = runbook();
    let (own, shared): (Vec<_>, Vec<_>) =
        Cause::ALL.into_iter().partition(|cause| has_section(cause.info()));
    let titles = sections.iter().map(|(title, _)| title.as_str());
    let titles: Vec<_> = titles.filter(|title| Cause::parse(title).is_some()).collect();
    assert_eq!(titles, own.iter().map(|cause| cause.as_str()).collect::<Vec<_>>());

    let (_, table) = sections.iter().find(|(title, _)| title == "Info causes").unwrap();
    for cause in shared {
        assert!(table.contains(&format!("`{}`", cause.as_str())), "{cause:?}");
    }
}

#[test]
fn the_runbook_says_of_each_cause_what_the_table_says() {
    for (title, section) in runbook() {
        let Some(cause) = Cause::parse(&title) else { continue };
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
}

/// Who is paged asks the leader first.
#[test]
fn the_runbook_begins_with_status_and_trace() {
    let page = page();
    let (_, block) = page.split_once("```sh\n").unwrap();
    let mut commands = block.lines().filter(|line| line.starts_with("throughline "));
    for command in ["throughline status --state $state ", "throughline trace connector "] {
        assert!(commands.next().unwrap().starts_with(command), "{command}");
    }
}
