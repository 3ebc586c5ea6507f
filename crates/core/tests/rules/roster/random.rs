//! Whatever a discovery shows, in whatever order: nobody joins who is not offered, and nobody leaves
//! without proof. The seed is printed.

use super::stage::{listing, projects};
use crate::random::Random;
use crate::stage::*;

/// What the test knows to be true.
#[derive(Default)]
struct Truth {
    /// The uid of each offer that is shown, and whether it is ready.
    offers: BTreeMap<String, (u64, bool)>,
    /// The uid with which each member joined.
    members: BTreeMap<String, u64>,
    named: BTreeSet<String>,
    unnamed_since: BTreeMap<String, u64>,
    changes: Vec<Membership>,
}

impl Truth {
    fn check(&mut self, now: u64, changes: &[Membership]) {
        for change in changes {
            match change {
                Membership::Join { cluster, .. } => self.check_join(&cluster.to_string()),
                Membership::Leave { cluster, reason } => {
                    self.check_leave(now, &cluster.to_string(), *reason);
                }
            }
            self.changes.push(change.clone());
        }
    }

    fn check_join(&mut self, name: &str) {
        let (uid, is_ready) = self.offers.get(name).copied().expect("it is offered");
        assert!(is_ready && self.named.contains(name), "{name} joins");
        assert_eq!(self.members.insert(name.to_owned(), uid), None, "{name} joins twice");
    }

    fn check_leave(&mut self, now: u64, name: &str, reason: LeaveReason) {
        let member = self.members.remove(name).expect("it had joined");
        let offer = self.offers.get(name).map(|(uid, _)| *uid);
        match reason {
            LeaveReason::Replaced => assert!(offer.is_some_and(|uid| uid != member)),
            LeaveReason::Withdrawn | LeaveReason::NotListed => assert_eq!(offer, None, "{name}"),
            LeaveReason::NotNeeded => {
                let since = self.unnamed_since.get(name).expect("nothing names it");
                assert!(now >= since + 600_000, "{name}");
            }
            other => panic!("{name} leaves: {}", other.as_str()),
        }
    }
}

/// The same events have the same clusters join and leave.
#[test]
fn nobody_joins_unseen_and_nobody_leaves_without_proof() {
    for seed in 1..=60 {
        println!("seed {seed}");
        assert_eq!(run(seed), run(seed));
    }
}

fn run(seed: u64) -> Vec<Membership> {
    let mut random = Random(seed);
    let names = projects(12);
    let mut fleet = listing(JoinRule::Needed, Settings::default());
    let mut truth = Truth::default();
    let mut listing: Option<BTreeSet<String>> = Some(BTreeSet::new());
    for _ in 0..600 {
        let name = random.one_of(&names);
        match random.below(12) {
            0..=3 => {
                let old = truth.offers.get(name).map_or(1, |(uid, _)| *uid);
                let uid = old + u64::from(random.below(6) == 0);
                let state =
                    random.one_of(&[OfferState::Ready, OfferState::Ready, OfferState::NotReady]);
                truth.offers.insert(name.to_owned(), (uid, state == OfferState::Ready));
                if let Some(listed) = &mut listing {
                    listed.insert(name.to_owned());
                }
                fleet.offer(name, &uid.to_string(), state);
            }
            4 => {
                if let Some((uid, _)) = truth.offers.remove(name) {
                    fleet.withdraw(name, &uid.to_string());
                }
            }
            5 => {
                listing = Some(BTreeSet::new());
                fleet.started(JoinRule::Needed);
            }
            6 => {
                if let Some(listed) = listing.take() {
                    truth.offers.retain(|name, _| listed.contains(name));
                    fleet.finished();
                }
            }
            7 => _ = fleet.discovery_lost(),
            8 | 9 => {
                truth.named.insert(name.to_owned());
                truth.unnamed_since.remove(name);
                fleet.name(name);
            }
            10 => {
                if truth.named.remove(name) {
                    truth.unnamed_since.insert(name.to_owned(), fleet.now);
                    fleet.unname(name);
                }
            }
            _ => _ = fleet.pass(random.one_of(&[1, 2_000, 30_000, 700_000])),
        }
        let mut asked = fleet.memberships();
        truth.check(fleet.now, &asked);
        if random.below(4) == 0 {
            // The shell takes a second, in which nothing else happens.
            let late = fleet.pass(1_000).memberships();
            truth.check(fleet.now, &late);
            asked.extend(late);
        }
        fleet.obey(&asked);
    }
    // The source shows every project, and the shell follows those that are named.
    for _ in 0..5 {
        fleet.list_needed(&names).carry_out();
        fleet.pass(MINUTE).carry_out();
    }
    assert_eq!(fleet.pass(MINUTE).wrong(), [], "nothing is wrong with it");
    truth.changes
}
