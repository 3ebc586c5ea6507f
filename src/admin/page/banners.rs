//! What stands above the rows: one banner for each cause, with how many connectors it concerns.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::core::contract::note::Hop;
use crate::trace::{self, HopCause, Snapshot, StatusRow};

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

/// The causes, the worst first: what is stuck, and what `throughline status` says above its rows.
pub(super) fn banners(snapshot: &Snapshot, rows: &[StatusRow]) -> Vec<Banner> {
    let mut banners = limited(stuck(rows), "causes");
    let told = trace::banners(snapshot, rows).into_iter().map(told);
    banners.extend(limited(told.collect(), "remarks"));
    banners.extend(others(snapshot));
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

/// What is stuck, by hop, cluster and reason, the most frequent first.
fn stuck(rows: &[StatusRow]) -> Vec<Banner> {
    let mut causes: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for stuck in rows.iter().filter_map(|row| row.stuck.as_ref()) {
        let place = format!("{} ({})", hop_word(stuck.hop), stuck.cluster);
        *causes.entry((place, &stuck.why)).or_default() += 1;
    }
    let banner = |((place, why), connectors): ((String, &str), usize)| Banner {
        level: Level::Bad,
        place,
        text: why.to_owned(),
        connectors,
    };
    let mut banners: Vec<_> = causes.into_iter().map(banner).collect();
    banners.sort_by_key(|banner| std::cmp::Reverse(banner.connectors));
    banners
}

/// Its text has the number of connectors.
fn told(banner: trace::Banner) -> Banner {
    let level = match banner.cause {
        Some(HopCause::WatchNotLive) => Level::Bad,
        Some(_) => Level::Warn,
        None => Level::Info,
    };
    let text = match banner.remedy {
        Some(remedy) => format!("{}; {remedy}", banner.what),
        None => banner.what,
    };
    Banner { level, place: String::new(), text, connectors: 0 }
}

fn hop_word(hop: Hop) -> &'static str {
    match hop {
        Hop::Upstream => "upstream",
        Hop::Mirrored => "mirrored",
        Hop::Arrived => "carried",
        Hop::Touched => "announced",
    }
}

fn others(snapshot: &Snapshot) -> Vec<Banner> {
    let view = &snapshot.view;
    let mut banners = Vec::new();
    if !view.orphans.is_empty() {
        let text = format!(
            "orphaned HTTPRoutes: {}; `throughline orphans` lists them",
            view.orphans.len()
        );
        banners.push(Banner { level: Level::Warn, place: "hub".to_owned(), text, connectors: 0 });
    }
    if view.lease_wait.is_none() && !view.leads {
        let text = match &view.holder {
            Some(holder) => format!("this instance is a standby: {holder} leads"),
            None => "this instance does not lead, and knows no leader".to_owned(),
        };
        banners.push(Banner { level: Level::Info, place: String::new(), text, connectors: 0 });
    }
    banners
}
