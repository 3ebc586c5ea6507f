//! Prints connectors hop by hop: the value, the last writer, the cause and the remedy.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::status::{align, put_remedy, since_text, style};
use super::{not_writing, origin};
use crate::core::contract::cause::{Cause, Hop, Kubectl, State};
use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::{Connector, Fleet, HopView, LivenessView, Source};
use crate::outside_text::one_line;
use crate::report::ReportOptions;
use crate::report::style::{Style, TextWriter, duration, unbroken};

const GATEWAY_NAMES_MAX: usize = 3;

/// Writes connectors of a fleet, each with all of its hops.
///
/// # Errors
/// Those of `out`.
pub fn connectors(
    fleet: &Fleet,
    connectors: &[Connector],
    kubectl: Kubectl<'_>,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    for (i, connector) in connectors.iter().enumerate() {
        if i > 0 {
            writer.gap()?;
        }
        put_connector(fleet, connector, kubectl, &mut writer)?;
    }
    writer.finish()
}

fn put_connector(
    fleet: &Fleet,
    connector: &Connector,
    kubectl: Kubectl<'_>,
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let upstream = connector.upstream.as_ref().map(ToString::to_string);
    let name = connector.name.as_ref().map(|name| format!("{name} at hub and edges"));
    let names: Vec<_> = upstream.into_iter().chain(name).collect();
    let subject = match names.is_empty() {
        true => connector.hops.iter().find_map(|hop| hop.object.as_ref()).map(ToString::to_string),
        false => Some(names.join("; ")),
    };
    writer.put(0, 2, &[(Style::Bold, &one_line(&subject.unwrap_or_default()))])?;
    writer.put(2, 2, &[(Style::Dim, &origin(fleet))])?;
    writer.gap()?;

    let groups = group_gateways(&connector.hops);
    put_lines(&groups, fleet.at_ms, writer)?;
    writer.gap()?;
    if groups.iter().all(|group| group[0].message.is_none()) && connector.state == State::Ok {
        writer.put(0, 2, &[(Style::Green, "Every hop agrees.")])?;
    }
    let mut told = BTreeSet::new();
    for group in &groups {
        let message = group[0].message.as_deref();
        let is_new = message.is_some_and(|message| told.insert(message));
        put_details(group, is_new, fleet.at_ms, writer)?;
    }
    put_lease(fleet, connector, writer)?;
    put_events(fleet, connector, kubectl, writer)?;
    put_notes(fleet, connector, writer)
}

/// Groups the equal gateways of one edge.
fn group_gateways(hops: &[HopView]) -> Vec<Vec<&HopView>> {
    let mut groups: Vec<Vec<&HopView>> = Vec::new();
    for hop in hops {
        let manager = |hop: &HopView| hop.writer.as_ref().map(|writer| writer.manager.clone());
        let is_alike = |other: &HopView| {
            hop.hop == Hop::Announced
                && (other.hop, &other.cluster) == (hop.hop, &hop.cluster)
                && (other.state, other.cause) == (hop.state, hop.cause)
                && manager(other) == manager(hop)
        };
        match groups.iter_mut().find(|group| is_alike(group[0])) {
            Some(group) => group.push(hop),
            None => groups.push(vec![hop]),
        }
    }
    groups
}

fn liveness(says: &LivenessView) -> String {
    match says {
        LivenessView { online: true, node: Some(node) } => format!("online {node}"),
        LivenessView { online: true, node: None } => "online".to_owned(),
        LivenessView { online: false, .. } => "offline".to_owned(),
    }
}

/// The value of a group's objects, and the desired one if that differs.
fn says(group: &[&HopView]) -> String {
    let hop = group[0];
    let has = match (hop.hop, &hop.says) {
        (Hop::Announced, _) => return gateways(group),
        (_, Some(says)) => liveness(says),
        (_, None) if hop.state == State::Unknown => return "?".to_owned(),
        (Hop::Upstream, None) => return "no Connector".to_owned(),
        _ if matches!(hop.cause, Some(Cause::NotReplicated | Cause::NotPlaced)) => {
            return "no Connector".to_owned();
        }
        (_, None) => "no annotation".to_owned(),
    };
    let is_open = matches!(hop.state, State::Pending | State::Stuck);
    match hop.expected.as_ref().filter(|expected| is_open && Some(*expected) != hop.says.as_ref()) {
        Some(expected) => format!("{has} (expected {})", liveness(expected)),
        None => has,
    }
}

fn gateways(group: &[&HopView]) -> String {
    let names: Vec<_> = group.iter().filter_map(|hop| Some(hop.object.as_ref()?.name())).collect();
    match names.len() {
        0 if group[0].state == State::Unknown => "?".to_owned(),
        0 => "no gateway".to_owned(),
        n if n <= GATEWAY_NAMES_MAX => names.join(", "),
        n => format!("{} and {} more", names[0], n - 1),
    }
}

fn put_lines(
    groups: &[Vec<&HopView>],
    now: UnixMillis,
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let latest =
        |group: &[&HopView]| group.iter().filter_map(|h| Some((h.since_ms?, h.at_least))).max();
    let cells = |group: &Vec<&HopView>| {
        let hop = group[0];
        let age = latest(group).map_or(String::new(), |(at, more)| since_text(at, more, now));
        [
            // As wide as the usual states and the longest hop, so that all connectors have the same
            // columns.
            format!("{:7}", hop.state.as_str()),
            format!("{:9}", hop.hop.as_str()),
            hop.cluster.to_string(),
            says(group),
            age,
        ]
    };
    let mut table: Vec<_> = groups.iter().map(cells).collect();
    align(&mut table);
    for (group, [state, rest @ ..]) in groups.iter().zip(&table) {
        let hop = group[0];
        let last = group.iter().filter_map(|hop| hop.writer.as_ref()).max_by_key(|w| w.at_ms);
        let by = last.map_or(String::new(), |last| {
            format!("by {}, {} ago", one_line(&last.manager), duration(now.since(last.at_ms)))
        });
        let rest = format!("  {}  ", rest.join("  "));
        let parts = [(style(hop.state), &**state), (Style::Plain, &rest), (Style::Dim, &by)];
        writer.put(2, 22, &parts)?;
    }
    Ok(())
}

/// `carried (edge)`, `announced (edge, app-1)`.
fn place(group: &[&HopView]) -> String {
    let hop = group[0];
    let name = hop.hop.as_str();
    let cluster = &hop.cluster;
    match hop.hop {
        Hop::Announced if hop.object.is_some() => {
            format!("{name} ({cluster}, {})", gateways(group))
        }
        _ => format!("{name} ({cluster})"),
    }
}

/// The cause of a hop that is not ok, its remedy and further evidence. `is_new`: its message was not
/// printed for an earlier hop.
fn put_details(
    group: &[&HopView],
    is_new: bool,
    now: UnixMillis,
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let hop = group[0];
    let facts = evidence(group);
    let head = format!("{} at {}", hop.state.as_str(), place(group));
    if let (Some(cause), Some(message)) = (hop.cause, &hop.message) {
        let message = if is_new { one_line(message) } else { "as above.".into() };
        let head = format!("{head}, {}: ", cause.as_str());
        writer.put(0, 2, &[(style(hop.state), &head), (Style::Plain, &message)])?;
        if let Some(remedy) = hop.remedy.as_ref().filter(|_| is_new) {
            put_remedy(remedy, writer)?;
        }
    } else if hop.state != State::Ok {
        writer.put(0, 2, &[(style(hop.state), &head)])?;
    } else if !facts.is_empty() {
        writer.put(0, 2, &[(Style::Plain, &place(group))])?;
    }
    for fact in facts {
        writer.put(2, 4, &[(Style::Dim, "- "), (Style::Dim, &one_line(fact))])?;
    }
    if let Some(at) = hop.next_attempt_ms {
        let text = format!("- the next attempt is in {}", duration(at.since(now)));
        writer.put(2, 4, &[(Style::Dim, &text)])?;
    }
    Ok(())
}

/// Writes the problems of the Lease if the connector waits for a write at the hub: no connector has
/// them among its problems.
fn put_lease(fleet: &Fleet, connector: &Connector, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let is_waiting = |hop: &HopView| matches!(hop.state, State::Pending | State::Stuck);
    if !connector.hops_of(Hop::Mirrored).any(is_waiting) {
        return Ok(());
    }
    let of_lease =
        |cause| matches!(cause, Cause::NoLeader | Cause::LeaseUnusable | Cause::ShardUnheld);
    for group in fleet.problems.iter().filter(|group| of_lease(group.cause)) {
        let head = format!("{}, {}: ", group.cluster, group.cause.as_str());
        writer.put(0, 2, &[(Style::Red, &head), (Style::Plain, &one_line(&group.message))])?;
        put_remedy(&group.remedy, writer)?;
    }
    Ok(())
}

/// The evidence that a whole group shares, without the trigger of announced gateways.
fn evidence<'h>(group: &[&'h HopView]) -> Vec<&'h str> {
    let hop = group[0];
    if hop.hop == Hop::Announced && hop.state == State::Ok && hop.expected.is_some() {
        return Vec::new();
    }
    let of_all = |fact: &&String| group.iter().all(|hop| hop.evidence.contains(fact));
    hop.evidence.iter().filter(of_all).map(String::as_str).collect()
}

/// Commands that print the Kubernetes Events about its Connector, one for each tier; with several
/// clusters in a tier, for the one with the worst hop. None if every hop is ok, and none for a log,
/// whose Events have expired.
fn put_events(
    fleet: &Fleet,
    connector: &Connector,
    kubectl: Kubectl<'_>,
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let is_past = matches!(fleet.source, Source::Log | Source::Recording);
    if is_past || connector.state == State::Ok {
        return Ok(());
    }
    let mut commands = Vec::new();
    for tier in [Hop::Upstream, Hop::Mirrored, Hop::Carried] {
        let worst = connector.hops_of(tier).filter(|hop| hop.object.is_some());
        let Some(hop) = worst.max_by_key(|hop| hop.state) else { continue };
        let Some(object) = &hop.object else { continue };
        let (namespace, name) = (object.namespace(), object.name());
        let at = kubectl(&hop.cluster).unwrap_or_else(|| format!("at {}: kubectl", hop.cluster));
        let command = format!("{at} -n {namespace} events --for {}/{name}", hop.kind.plural());
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    if commands.is_empty() {
        return Ok(());
    }
    let head = "Kubernetes Events about it, which API servers keep for an hour:";
    writer.put(0, 2, &[(Style::Bold, head)])?;
    commands.iter().try_for_each(|command| writer.put(2, 4, &[(Style::Plain, &unbroken(command))]))
}

fn put_notes(fleet: &Fleet, connector: &Connector, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let mut notes = Vec::new();
    let says_offline = |hop: &HopView| hop.says.as_ref().is_some_and(|says| !says.online);
    let upstream = connector.hops_of(Hop::Upstream).find(|hop| says_offline(hop));
    if let Some(upstream) = upstream.filter(|_| connector.state == State::Ok) {
        notes.push(format!(
            "nothing is stuck: {} itself says offline; check the tunnel's agent and its Lease there",
            upstream.cluster
        ));
    }
    notes.extend(not_writing(fleet).filter(|_| connector.state != State::Ok));
    if connector.hops.iter().all(|hop| hop.writer.is_none()) {
        notes.push(
            match fleet.source {
                Source::Instance => {
                    "/state does not include the last writers; without --state the trace shows them"
                }
                _ => "the last writers are not known: the objects have no managedFields",
            }
            .to_owned(),
        );
    }
    for note in notes {
        writer.put(0, 2, &[(Style::Dim, "Note: "), (Style::Plain, &format!("{note}."))])?;
    }
    Ok(())
}
