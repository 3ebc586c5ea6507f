//! Whatever a discovery shows, in whatever order: nobody joins who is not offered, and nobody leaves
//! without proof. The seed is printed.

use std::collections::{BTreeMap, BTreeSet};

use super::stage::{Fleet, projects};
use throughline_core::contract::event::EventKind;
use throughline_core::contract::membership::{
    JoinRule, LeaveReason, Membership, OfferState, SourceName,
};
use throughline_core::contract::settings::Settings;
use throughline_core::data::time::UnixMillis;
use throughline_core::machine::Machine;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What the test knows to be true.
#[derive(Default)]
struct Truth {
    /// The uid of each offer that is shown, and whether it is ready.
    offers: BTreeMap<String, (u64, bool)>,
    /// The uid with which each member joined.
    members: BTreeMap<String, u64>,
    named: BTreeMap<String, bool>,
    unnamed_since: BTreeMap<String, u64>,
    left_at: Vec<u64>,
}

impl Truth {
    fn check(&mut self, now: u64, change: &Membership) {
        match change {
            Membership::Join { cluster, .. } => {
                let name = cluster.to_string();
                let (uid, is_ready) = self.offers.get(&name).copied().expect("it is offered");
                assert!(is_ready && self.named.get(&name) == Some(&true), "{name} joins");
                assert_eq!(self.members.insert(name, uid), None, "{cluster} joins twice");
            }
            Membership::Leave { cluster, reason } => {
                let name = cluster.to_string();
                let member = self.members.remove(&name).expect("it had joined");
                let offer = self.offers.get(&name).map(|(uid, _)| *uid);
                match reason {
                    LeaveReason::Replaced => assert!(offer.is_some_and(|uid| uid != member)),
                    LeaveReason::Withdrawn | LeaveReason::NotListed => {
                        assert_eq!(offer, None, "{name}");
                        self.left_at.push(now);
                    }
                    LeaveReason::NotNeeded => {
                        let since = self.unnamed_since.get(&name).expect("nothing names it");
                        assert!(now >= since + 600_000, "{name}");
                    }
                    other => panic!("{name} leaves: {}", other.as_str()),
                }
            }
        }
    }
}

#[test]
fn nobody_joins_unseen_and_nobody_leaves_without_proof() {
    for seed in 1..=60 {
        println!("seed {seed}");
        run(seed);
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let names = projects(12);
    let mut fleet = Fleet::needed();
    let mut truth = Truth::default();
    let mut listing: Option<BTreeSet<String>> = Some(BTreeSet::new());
    for _ in 0..600 {
        let name = names[usize::try_from(random.below(12)).unwrap()].clone();
        match random.below(12) {
            0..=3 => {
                let old = truth.offers.get(&name).map_or(1, |(uid, _)| *uid);
                let uid = old + u64::from(random.below(6) == 0);
                let state = [OfferState::Ready, OfferState::Ready, OfferState::NotReady];
                let state = state[usize::try_from(random.below(3)).unwrap()].clone();
                truth.offers.insert(name.clone(), (uid, state == OfferState::Ready));
                if let Some(listed) = &mut listing {
                    listed.insert(name.clone());
                }
                fleet.offer(&name, &uid.to_string(), state);
            }
            4 => {
                if let Some((uid, _)) = truth.offers.remove(&name) {
                    fleet.withdraw(&name, &uid.to_string());
                }
            }
            5 => {
                let (source, join) = (SourceName::Milo, JoinRule::Needed);
                listing = Some(BTreeSet::new());
                fleet.event(EventKind::DiscoveryStarted { source, join });
            }
            6 => {
                if let Some(listed) = listing.take() {
                    truth.offers.retain(|name, _| listed.contains(name));
                    fleet.finish();
                }
            }
            7 => fleet.lost(),
            8 | 9 => {
                truth.named.insert(name.clone(), true);
                truth.unnamed_since.remove(&name);
                fleet.name(&name);
            }
            10 => {
                if truth.named.insert(name.clone(), false) == Some(true) {
                    truth.unnamed_since.insert(name.clone(), fleet.now);
                    fleet.unname(&name);
                }
            }
            _ => {
                let ms = [1, 2_000, 30_000, 700_000][usize::try_from(random.below(4)).unwrap()];
                fleet.pass(ms);
            }
        }
        let asked = fleet.memberships();
        for change in &asked {
            truth.check(fleet.now, change);
        }
        if random.below(4) > 0 {
            for change in asked {
                fleet.event(match change {
                    Membership::Join { cluster, roles, .. } => {
                        EventKind::ClusterAdded { cluster, roles }
                    }
                    Membership::Leave { cluster, .. } => EventKind::ClusterRemoved { cluster },
                });
            }
        } else {
            carry_out_late(&mut fleet, asked, &mut truth);
        }
    }
    replays(&fleet);
}

/// The shell takes a second, in which nothing else happens.
fn carry_out_late(fleet: &mut Fleet, asked: Vec<Membership>, truth: &mut Truth) {
    fleet.pass(1_000);
    let late = fleet.memberships();
    for change in &late {
        truth.check(fleet.now, change);
    }
    for change in asked.into_iter().chain(late) {
        fleet.event(match change {
            Membership::Join { cluster, roles, .. } => EventKind::ClusterAdded { cluster, roles },
            Membership::Leave { cluster, .. } => EventKind::ClusterRemoved { cluster },
        });
    }
}

/// The same events have the same clusters join and leave.
fn replays(fleet: &Fleet) {
    let mut machines = [Settings::default(), Settings::default()].map(Machine::new);
    for event in &fleet.events {
        let asked = machines.each_mut().map(|machine| {
            machine.handle_event(event);
            std::iter::from_fn(|| machine.poll_membership()).collect::<Vec<_>>()
        });
        assert_eq!(asked[0], asked[1], "{}", UnixMillis(event.at.0));
    }
    assert_eq!(machines[0].membership_counts(), fleet.machine.membership_counts());
}
