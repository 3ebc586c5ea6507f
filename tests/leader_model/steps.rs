//! What may happen in the model, what is wrong in it, and how it goes on when faults stop.

use throughline::leader::election::{Record, Request};

use super::breaks::Break;
use super::explore::Model;
use super::world::{Fault, NEW, NOW, RULES, Replica, Setup, Step, World};

/// Takes what may happen, and what it changes.
type May<'a> = dyn FnMut(Step, &dyn Fn(&mut World)) + 'a;

impl Model for Setup {
    type State = World;
    type Step = Step;

    fn initial(&self) -> Vec<World> {
        let replica = |i| self.replica(format!("{i}a"));
        let replicas = (0..self.clocks.len()).map(replica).collect();
        let mut world = World { lease: None, replicas, faults: 0, overwrote: false };
        if self.led {
            while let Some(next) = self.calm(&world) {
                world = next;
            }
        }
        world.faults = self.faults.0;
        vec![world]
    }

    fn steps(&self, world: &World) -> Vec<(Step, World)> {
        let mut steps = vec![(Step::Tick, self.tick(world))];
        let mut may = |step: Step, change: &dyn Fn(&mut World)| {
            let mut next = world.clone();
            change(&mut next);
            steps.push((step, self.told(&next, &[0; 3])));
        };
        for (i, replica) in world.replicas.iter().enumerate() {
            let is_open = self.gate(replica).is_some();
            if is_open && self.is(Break::WorkNotStartedAgain) {
                may(Step::WorkFails(i), &|world| world.replicas[i].ended = true);
            }
            if self.freezes && is_open && replica.frozen.is_none() {
                may(Step::Freezes(i), &|world| world.replicas[i].frozen = Some(false));
            }
            if self.freezes && is_open {
                may(Step::Writes(i), &|world| {
                    for other in world.replicas.iter_mut().filter(|r| r.me != replica.me) {
                        other.frozen = other.frozen.map(|_| true);
                    }
                });
            }
            if let Some(overtaken) = replica.frozen {
                may(Step::Thaws(i), &|world| {
                    world.replicas[i].frozen = None;
                    // The object has another resourceVersion by then.
                    world.overwrote |= overtaken && self.is(Break::NoFence);
                });
            }
            if replica.ended {
                continue;
            }
            if let Some((request, _)) = &replica.call {
                may(Step::Answered(i), &|world| self.answer(world, i));
                may(Step::TimesOut(i), &|world| {
                    world.replicas[i].call = None;
                    self.failed(world, i, request);
                });
            } else {
                may(Step::Attempts(i), &|world| {
                    self.attempt(world, i, false);
                    if !self.slow {
                        self.answer(world, i);
                    }
                });
                if !self.slow {
                    may(Step::TimesOut(i), &|world| {
                        self.attempt(world, i, false);
                        if let Some((request, _)) = world.replicas[i].call.take() {
                            self.failed(world, i, &request);
                        }
                    });
                }
                may(Step::Loses(i), &|world| self.attempt(world, i, true));
            }
        }
        if world.faults > 0 {
            self.faults(world, &mut |step, change| {
                may(step, &|world| {
                    world.faults -= 1;
                    change(world);
                });
            });
        }
        steps
    }

    fn wrong(&self, world: &World) -> Option<String> {
        if world.overwrote {
            return Some("a late write changed what a later leader had written".to_owned());
        }
        let is_open: Vec<_> = world.replicas.iter().map(|r| self.gate(r).is_some()).collect();
        let under_way = |i: usize| world.replicas[i].open_until.is_some() || is_open[i];
        let pairs = (0..is_open.len()).flat_map(|i| (0..is_open.len()).map(move |j| (i, j)));
        let (i, j) = pairs.into_iter().find(|&(i, j)| i != j && is_open[j] && under_way(i))?;
        Some(format!("{j} may write, and a write of {i} may land"))
    }

    fn calm(&self, world: &World) -> Option<World> {
        let mut leaders = world.replicas.iter().filter(|r| self.gate(r).is_some());
        if leaders.next().is_some() {
            return None;
        }
        let mut world = self.tick(world);
        world.faults = 0;
        for i in 0..world.replicas.len() {
            if world.replicas[i].ended {
                continue;
            }
            if world.replicas[i].leaves {
                self.restart(&mut world, i);
            }
            if world.replicas[i].call.is_none() {
                self.attempt(&mut world, i, false);
                world = self.told(&world, &[0; 3]);
            }
            self.answer(&mut world, i);
            let replica = &mut world.replicas[i];
            (replica.adrift, replica.frozen, replica.open_until) = (None, None, None);
            world = self.told(&world, &[0; 3]);
        }
        Some(world)
    }

    fn calm_steps(&self) -> usize {
        // A lease until the last holder's word is over, another before the next one leads.
        2 * 4 + 4
    }
}

impl Setup {
    /// Everything of these kinds that may go wrong.
    fn faults(&self, world: &World, may: &mut May<'_>) {
        for fault in self.faults.1 {
            match fault {
                Fault::Hand => Self::hands(world, may),
                Fault::Process => self.processes(world, may),
                Fault::Late => {
                    for (i, replica) in world.replicas.iter().enumerate() {
                        let Some(request) = &replica.adrift else { continue };
                        may(Step::LandsLate(i), &|world| {
                            world.replicas[i].adrift = None;
                            self.lands(world, request);
                        });
                    }
                }
            }
        }
    }

    fn processes(&self, world: &World, may: &mut May<'_>) {
        for (i, replica) in world.replicas.iter().enumerate().filter(|(_, r)| !r.ended) {
            may(Step::Restarts(i), &|world| self.restart(world, i));
            if !replica.leaves && replica.election.leads_from().is_some() {
                may(Step::Leaves(i), &|world| {
                    let replica = &mut world.replicas[i];
                    replica.leaves = true;
                    if self.is(Break::ReleasedUnled) {
                        let past = |t: u64| t.min(NOW - 1);
                        let same = &mut str::to_owned;
                        replica.election = replica.election.mapped(|t| t, past, same);
                    }
                    replica.election.leave();
                    if !self.is(Break::ReleasedAtWork) {
                        (replica.open_until, replica.frozen) = (None, None);
                    }
                });
            }
        }
    }

    fn hands(world: &World, may: &mut May<'_>) {
        let Some((record, _)) = &world.lease else { return };
        may(Step::Deleted, &|world| world.lease = None);
        may(Step::Annotated, &|world| world.lease = Some((record.clone(), NEW.to_owned())));
        let mut holders: Vec<_> = world.replicas.iter().map(|r| r.me.clone()).collect();
        holders.extend([String::new(), "somebody".to_owned()]);
        for holder in holders.into_iter().filter(|holder| *holder != record.holder) {
            may(Step::Edited(holder.clone()), &|world| {
                // A lease of one second without a holder is a released one: no hand writes that.
                let lease_ms = RULES.lease_ms;
                let edited = Record { holder: holder.clone(), lease_ms, ..record.clone() };
                world.lease = Some((edited, NEW.to_owned()));
            });
        }
    }

    fn restart(&self, world: &mut World, i: usize) {
        let old = world.replicas[i].clone();
        let holder = world.lease.as_ref().map_or("", |(record, _)| &record.holder);
        let adrift = match &old.adrift {
            Some(Request::Create(record) | Request::Update(record, _)) => &record.holder,
            _ => "",
        };
        let taken = [holder, adrift, &old.me];
        let mut names = ["a", "b", "c", "d"].map(|self_| format!("{i}{self_}")).into_iter();
        let me = names.find(|name| !taken.contains(&name.as_str())).unwrap();
        let Replica { adrift, open_until, frozen, .. } = old;
        world.replicas[i] = Replica { adrift, open_until, frozen, ..self.replica(me) };
    }
}
