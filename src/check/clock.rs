//! Checks whether the clusters' clocks and ours agree. One clock that is wrong is one finding: if all
//! clusters agree with each other, it is this machine's.

use super::cluster::CheckedCluster;
use super::finding::FindingGroup;
use crate::report::duration;

/// The `Date` of an answer is exact to half a second only.
const CLOCK_SKEW_MAX_MS: u64 = 3_000;

const REMEDY: &str = "the age of a route, and so whether it may be deleted, is computed from both \
                      clocks, and the logs of several machines are compared by their times. Turn on \
                      time synchronisation";

/// Adds a finding to each cluster that sent its time.
pub(super) fn report(clusters: &mut [CheckedCluster]) {
    let ahead: Vec<_> = clusters.iter().filter_map(|cluster| cluster.ahead_ms).collect();
    let ours_is_off = is_ours_off(&ahead);
    let mut is_first = true;
    for cluster in clusters {
        let Some(ahead_ms) = cluster.ahead_ms else { continue };
        let mut clock = FindingGroup::new(cluster.group.name());
        if ours_is_off && !is_first {
            clock.passed("clock", "its clock agrees with that of the other clusters");
        } else {
            report_one(&mut clock, ahead_ms, ours_is_off.then_some(ahead.len()));
        }
        is_first = false;
        cluster.group.insert_after("version", clock);
    }
}

/// Whether several clusters agree with each other, and none of them with us.
fn is_ours_off(ahead: &[i64]) -> bool {
    let (Some(min), Some(max)) = (ahead.iter().min(), ahead.iter().max()) else { return false };
    let is_off = ahead.iter().all(|ms| ms.unsigned_abs() > CLOCK_SKEW_MAX_MS);
    ahead.len() > 1 && is_off && min.abs_diff(*max) <= CLOCK_SKEW_MAX_MS
}

/// `agreeing`: so many clusters, this one among them, agree with each other.
fn report_one(group: &mut FindingGroup, ahead_ms: i64, agreeing: Option<usize>) {
    let skew_ms = ahead_ms.unsigned_abs();
    if skew_ms <= CLOCK_SKEW_MAX_MS {
        group.passed("clock", "its clock agrees with ours");
        return;
    }
    let (skew, side) = (duration(skew_ms), if ahead_ms > 0 { "ahead of" } else { "behind" });
    let (what, place) = match agreeing {
        Some(clusters) => (
            format!("the clock of this machine is {skew} {side} those of all {clusters} clusters"),
            "here, on this machine",
        ),
        None => (
            format!("our clock is {skew} {side} its clock"),
            "on the machine whose clock is wrong, this one or that of its API server",
        ),
    };
    let remedy = format!("{REMEDY} {place}:\ntimedatectl set-ntp true");
    group.warned("clock", what, "compared with the Date header of its answer", remedy);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    #[test]
    fn clock_skew_is_a_warning() {
        for (ahead_ms, level, text) in [
            (2_900, Level::Passed, "agrees"),
            (-2_900, Level::Passed, "agrees"),
            (61_000, Level::Warning, "ahead of"),
            (-61_000, Level::Warning, "behind"),
        ] {
            let mut group = FindingGroup::new("g");
            report_one(&mut group, ahead_ms, None);
            let finding = group.into_findings().remove(0);
            assert_eq!(finding.level, level);
            assert!(finding.what.contains(text), "{}", finding.what);
        }
    }

    #[test]
    fn our_clock_is_off_only_where_several_clusters_agree_against_it() {
        for (ahead, is_off) in [
            (&[61_000, 61_400, 60_800][..], true),
            (&[-61_000, -60_000], true),
            (&[61_000], false),
            (&[61_000, 500], false),
            (&[61_000, -61_000], false),
            (&[100, 200], false),
            (&[], false),
        ] {
            assert_eq!(is_ours_off(ahead), is_off, "{ahead:?}");
        }
    }
}
