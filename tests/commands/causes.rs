//! What the documentation says about causes: `docs/reference/causes.md` is generated from the table, and the
//! runbook has a section for each.

use std::path::Path;

use expect_test::expect_file;
use throughline::core::contract::cause::{AlertRule, Cause, CauseInfo, Hop, Severity, State};

const BEFORE_THE_TABLE: &str = "\
# Causes

Everything that can be wrong, by name. Log, Events, metrics, alerts, `status`, `trace` and `check` use these names, sentences and
remedies; the [runbook](../how-to/runbook.md) has a section for each. A cause may have two sentences or remedies: the first whose facts
are all known is used. `@{cluster}` stands for `kubectl --context NAME` where a context of your kubeconfig leads to that server, else
for `at CLUSTER: kubectl`.

The hop is the one that the cause delays, and the state is what it makes of the connectors concerned. The
[alert](../how-to/runbook.md) `ThroughlineStuck` follows from the state `stuck`.

This page is generated from `crates/core/src/contract/cause.rs`.

| cause | severity | hop | state | Event | alerts | sentence | remedy |
|---|---|---|---|---|---|---|---|
";

const AFTER_THE_TABLE: &str = "
## One cause, one message

The log has a line a second after a cause began, at most one a minute while it changes, and one when it is over (`resolved`). Objects of
one cause in one cluster share a line, which names the first and counts the others; so do more than three clusters with one cause.
Errors are ERROR, warnings WARN, and infos DEBUG. The fields are `cause`, `cluster`, `count`, `since`, `error` and `remedy`.

## Kubernetes Events

`kubectl describe` and `kubectl events` show what is wrong with an object. The reason of an Event is the name of the cause in
CamelCase (`NotCarried`), and its message is the sentence, `Next:` and the remedy. When the cause has ended, an Event with the reason
`Resolved` follows on the same object; its message is the former reason. `LeaderElection` on the Lease says that an instance became
leader, or stopped being leader.

- Only the leader posts Events; without an election, every instance does. A new leader waits 10 s, and posts what is still open then.
- Up to three objects of one cause get an Event each. More of them get one Event together, on the first object.
- At most 30 are sent in a minute, in all clusters together. Those that are left out are counted in
  `throughline_events_total{result=\"dropped\"}`.
- A dry run posts none, and a cluster that is only an upstream gets none, unless it holds the Lease. `events.enabled: false` switches
  them off.
- A message has no addresses and no node ids. It does not say since when: the Event's own time does.
";

#[test]
fn causes_md_is_the_table() {
    let mut page = BEFORE_THE_TABLE.to_owned();
    for cause in Cause::ALL {
        let info = cause.info();
        let alerts: Vec<_> = info.alert.iter().map(|rule: &AlertRule| rule.as_str()).collect();
        let cells = [
            format!("`{}`", cause.as_str()),
            info.severity.as_str().to_owned(),
            info.hop.map_or("", Hop::as_str).to_owned(),
            info.state.map_or("", State::as_str).to_owned(),
            if info.event { "yes" } else { "" }.to_owned(),
            alerts.join(", "),
            info.sentence.join(" *or* "),
            info.remedy.join(" *or* "),
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
    let has_section = |info: &CauseInfo| info.severity != Severity::Info || !info.alert.is_empty();
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
        let CauseInfo { sentence, remedy, .. } = cause.info();
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
    }
}

/// What a section begins with follows from the state and the alerts of its cause.
#[test]
fn the_runbook_says_of_each_cause_what_it_makes_of_connectors_and_who_is_paged() {
    for (title, section) in runbook() {
        let Some(cause) = Cause::parse(&title) else { continue };
        let CauseInfo { state, alert, .. } = cause.info();
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
