//! What stands above the rows: one banner for each cause, with how many connectors it concerns.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::core::contract::note::Hop;
use crate::core::data::ids::Kind;
use crate::core::view::phase::Phase;
use crate::core::view::{View, WatchState};
use crate::trace::{HopState, StatusRow};

/// The banners of one sort that are shown; the others are counted.
const EACH_MAX: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Bad,
    Warn,
    Info,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Banner {
    level: Level,
    /// Where: a cluster, or a hop and a cluster.
    place: String,
    text: String,
    /// How many connectors it concerns; 0 where that is not known.
    connectors: usize,
}

/// The causes, the worst first.
pub(super) fn banners(view: &View, rows: &[StatusRow]) -> Vec<Banner> {
    let mut banners = limited(lost_watches(view), "clusters with lost watches");
    banners.extend(limited(stuck(rows), "causes"));
    banners.extend(unconfigured(view));
    banners.extend(others(view));
    banners.sort_by_key(|banner| banner.level);
    banners
}

fn limited(mut banners: Vec<Banner>, what: &str) -> Vec<Banner> {
    let rest = banners.split_off(banners.len().min(EACH_MAX));
    if !rest.is_empty() {
        let connectors = rest.iter().map(|banner| banner.connectors).sum();
        let text = format!("{} more {what}", rest.len());
        banners.push(Banner { level: rest[0].level, place: String::new(), text, connectors });
    }
    banners
}

/// The clusters with the same error are one banner.
fn lost_watches(view: &View) -> Vec<Banner> {
    let mut lost: BTreeMap<(&str, Vec<Kind>), Vec<&str>> = BTreeMap::new();
    for cluster in &view.clusters {
        let kinds = cluster.watches.iter().filter(|(_, state)| **state == WatchState::Lost);
        let kinds: Vec<_> = kinds.map(|(kind, _)| *kind).collect();
        if let Some(first) = kinds.first() {
            let error = cluster.errors.get(first).map_or("see the log", String::as_str);
            lost.entry((error, kinds)).or_default().push(cluster.name.as_str());
        }
    }
    let banner = |((error, kinds), clusters): ((&str, Vec<Kind>), Vec<&str>)| {
        let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
        let place = match clusters[..] {
            [one] => one.to_owned(),
            _ => format!("{} clusters, such as {}", clusters.len(), clusters[0]),
        };
        let text = format!("watch of {} lost: {error}", kinds.join(", "));
        Banner { level: Level::Bad, place, text, connectors: 0 }
    };
    lost.into_iter().map(banner).collect()
}

/// What is stuck or unknown, by hop, cluster and reason, the most frequent first.
fn stuck(rows: &[StatusRow]) -> Vec<Banner> {
    let mut causes: BTreeMap<(HopState, String, &str), usize> = BTreeMap::new();
    for row in rows {
        let Some(stuck) = &row.stuck else { continue };
        let place = format!("{} ({})", hop_word(stuck.hop), stuck.cluster);
        *causes.entry((row.state, place, &stuck.why)).or_default() += 1;
    }
    let level = |state| if state == HopState::Wrong { Level::Bad } else { Level::Warn };
    let banner = |((state, place, why), connectors): ((HopState, String, &str), usize)| Banner {
        level: level(state),
        place,
        text: why.to_owned(),
        connectors,
    };
    let mut banners: Vec<_> = causes.into_iter().map(banner).collect();
    banners.sort_by_key(|banner| (banner.level, usize::MAX - banner.connectors));
    banners
}

fn hop_word(hop: Hop) -> &'static str {
    match hop {
        Hop::Upstream => "upstream",
        Hop::Mirrored => "mirrored",
        Hop::Arrived => "carried",
        Hop::Touched => "announced",
    }
}

/// Hub Connectors that name an upstream which is not a cluster of this run.
fn unconfigured(view: &View) -> Vec<Banner> {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    let found = view.connectors.iter().filter(|c| c.phase == Phase::Unconfigured);
    for upstream in found.filter_map(|c| c.upstream.as_ref()).filter(|up| !up.gone) {
        *named.entry(upstream.cluster.as_str()).or_default() += 1;
    }
    let banner = |(upstream, connectors): (&str, usize)| Banner {
        level: Level::Warn,
        place: upstream.to_owned(),
        text: "hub Connectors name this upstream, which is not configured".to_owned(),
        connectors,
    };
    limited(named.into_iter().map(banner).collect(), "upstreams that are not configured")
}

fn others(view: &View) -> Vec<Banner> {
    let banner = |level, place: &str, text: String, connectors| Banner {
        level,
        place: place.to_owned(),
        text,
        connectors,
    };
    let mut banners = Vec::new();
    for gone in &view.gone {
        let connectors = usize::try_from(gone.connectors).unwrap_or(usize::MAX);
        let text = "this project is deleted, and hub objects still name it".to_owned();
        banners.push(banner(Level::Warn, gone.cluster.as_str(), text, connectors));
    }
    if !view.orphans.is_empty() {
        let text = format!(
            "orphaned HTTPRoutes: {}; `throughline orphans` lists them",
            view.orphans.len()
        );
        banners.push(banner(Level::Warn, "hub", text, 0));
    }
    for cluster in &view.clusters {
        if let Some(waiting) = cluster.touches_waiting {
            banners.push(banner(Level::Info, cluster.name.as_str(), waiting.to_string(), 0));
        }
    }
    if let Some(wait) = &view.lease_wait {
        banners.push(banner(Level::Info, "", wait.to_string(), 0));
    } else if !view.leads {
        let text = match &view.holder {
            Some(holder) => format!("this instance is a standby: {holder} leads"),
            None => "this instance does not lead, and knows no leader".to_owned(),
        };
        banners.push(banner(Level::Info, "", text, 0));
    }
    limited(banners, "remarks")
}
