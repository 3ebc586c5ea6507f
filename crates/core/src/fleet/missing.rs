//! Clusters that their source shows no longer: they leave, unless they are too many.

use super::looks::Look;
use super::{MISSING_SHARE, REPORT_MS, Roster, WINDOW_MS};
use crate::contract::membership::SourceName;
use crate::data::time::UnixMillis;
use crate::machine::Machine;

/// Whether so many of them are missing that the source is more likely wrong than right.
fn is_too_many(missing: usize, known: usize) -> bool {
    missing > 1 && missing * MISSING_SHARE > known
}

impl Roster {
    /// Counts the missing clusters of a source with those that left within the last minute, both among
    /// its members and among all that it offers.
    fn has_too_many_missing(&mut self, name: SourceName, now: UnixMillis) -> bool {
        let members = self.members_of(name).count();
        let Some(source) = self.sources.get_mut(&name) else { return false };
        while source.left.front().is_some_and(|(at, _)| at.plus(WINDOW_MS) <= now) {
            source.left.pop_front();
        }
        let left_members = source.left.iter().filter(|(_, was_member)| *was_member).count();
        let left = source.left.len();
        let (missing, known) = (source.missing.len() + left, source.offers.len() + left);
        let missing_members = source.missing.iter().filter(|cluster| {
            self.members.get(*cluster).is_some_and(|member| member.source == name)
        });
        let missing_members = missing_members.count() + left_members;
        is_too_many(missing, known) || is_too_many(missing_members, members + left_members)
    }
}

impl Machine {
    /// Has a source's missing clusters leave, unless they are too many: then they all stay, until the
    /// source shows them again or knows so many others that they are few.
    pub(super) fn settle_missing(&mut self, name: SourceName) {
        let now = self.ctx.now;
        let is_held = self.roster.has_too_many_missing(name, now);
        let Some(source) = self.roster.sources.get_mut(&name) else { return };
        if source.missing.is_empty() && !source.is_held {
            return;
        }
        source.is_held = is_held;
        if is_held && let Some((left_at, _)) = source.left.front() {
            self.roster.looks.no_later(Look::Missing(name), left_at.plus(WINDOW_MS));
        }
        let missing =
            if is_held { Default::default() } else { std::mem::take(&mut source.missing) };
        self.roster.looks.no_later(Look::Report(name), now.plus(REPORT_MS));
        for cluster in missing {
            let is_member = self.roster.is_member_of(name, &cluster);
            let source = self.roster.sources.get_mut(&name);
            let Some(offer) = source.and_then(|source| {
                source.left.push_back((now, is_member));
                source.drop_offer(&cluster)
            }) else {
                continue;
            };
            if let Some(reason) = offer.missing.filter(|_| is_member) {
                self.roster.leave(&cluster, reason);
            }
            self.departed(name, &cluster, &offer);
            // Another source may offer one of that name.
            self.join_if_wanted(&cluster);
        }
    }
}
