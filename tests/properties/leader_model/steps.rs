//! The model's steps, its wrong states, and how it continues once faults stop.

use throughline::leader::election::{LeaseRecord, LeaseRequest};

use super::cluster_model::{
    BrokenRule, ClusterModel, Fault, FrozenWrite, Instance, NEW, NOW, Setup, Step, TIMINGS,
};

/// Takes a step that may happen, and the change it makes.
type May<'a> = dyn FnMut(Step, &dyn Fn(&mut ClusterModel)) + 'a;

impl Setup {
    /// After this many calm steps everything must be right: a lease duration until the last holder's tenure is
    /// over, another before the next one leads.
    pub const CALM_STEPS: usize = 2 * 4 + 4;

    pub fn initial(&self) -> ClusterModel {
        let instance = |i| self.instance(format!("{i}a"));
        let instances = (0..self.clocks.len()).map(instance).collect();
        let mut state =
            ClusterModel { lease: None, instances, faults: 0, overwrote: false, undone: false };
        if self.has_leader {
            while let Some(next) = self.calm(&state) {
                state = next;
            }
        }
        state.faults = self.faults.0;
        state
    }

    /// Every step that is possible in a state, and the state that it leads to.
    pub fn steps(&self, state: &ClusterModel) -> Vec<(Step, ClusterModel)> {
        let mut steps = vec![(("a step of time", 0), self.tick(state))];
        let mut may = |step: Step, change: &dyn Fn(&mut ClusterModel)| {
            let mut next = state.clone();
            change(&mut next);
            steps.push((step, self.normalised(next, &[0; 3])));
        };
        for (i, instance) in state.instances.iter().enumerate() {
            let is_open = self.gate(instance).is_some();
            if is_open && self.breaks(BrokenRule::WorkNotStartedAgain) {
                may(("has work that ends with an error", i), &|state| {
                    state.instances[i].ended = true
                });
            }
            if is_open && !self.overtaken.is_empty() && instance.frozen.is_none() {
                may(("freezes with a write that passed the gate", i), &|state| {
                    state.instances[i].frozen = Some(FrozenWrite::Current);
                });
            }
            if is_open {
                for becomes in self.overtaken {
                    may(("writes the object", i), &|state| {
                        let instances = state.instances.iter_mut();
                        for other in instances.filter(|r| r.me != instance.me) {
                            other.frozen = other.frozen.map(|_| *becomes);
                        }
                        state.undone &= self.breaks(BrokenRule::NotPutRight);
                    });
                }
            }
            if let Some(frozen) = instance.frozen {
                may(("goes on and its frozen write is carried out", i), &|state| {
                    state.instances[i].frozen = None;
                    // By then the object has another resourceVersion, or the annotation another
                    // value.
                    let lands = self.breaks(BrokenRule::NoFence);
                    state.overwrote |= frozen == FrozenWrite::Overtaken && lands;
                    state.undone |= frozen == FrozenWrite::Repeated;
                });
            }
            if instance.ended {
                continue;
            }
            if let Some((request, _)) = &instance.call {
                may(("gets its response", i), &|state| self.answer(state, i));
                may(("makes a write whose response is lost", i), &|state| {
                    state.instances[i].call = None;
                    self.failed(state, i, request);
                });
            } else {
                may(("makes an attempt", i), &|state| {
                    self.attempt(state, i, false);
                    if !self.slow {
                        self.answer(state, i);
                    }
                });
                if !self.slow {
                    may(("makes a write whose response is lost", i), &|state| {
                        self.attempt(state, i, false);
                        if let Some((request, _)) = state.instances[i].call.take() {
                            self.failed(state, i, &request);
                        }
                    });
                }
                may(("makes an attempt whose write is lost or late", i), &|state| {
                    self.attempt(state, i, true)
                });
            }
        }
        if state.faults > 0 {
            let mut may = |step: Step, change: &dyn Fn(&mut ClusterModel)| {
                may(step, &|state| {
                    state.faults -= 1;
                    change(state);
                });
            };
            for fault in self.faults.1 {
                match fault {
                    Fault::Edit => Self::edits(state, &mut may),
                    Fault::Process => self.processes(state, &mut may),
                    Fault::StandsDown => Self::stands_down(state, &mut may),
                    Fault::Late => self.late_writes(state, &mut may),
                }
            }
        }
        steps
    }

    /// What is wrong in this state.
    pub fn wrong(&self, state: &ClusterModel) -> Option<String> {
        if state.overwrote {
            return Some("a late write changed what a later leader had written".to_owned());
        }
        let is_open: Vec<_> = state.instances.iter().map(|r| self.gate(r).is_some()).collect();
        let may_be_in_flight = |i: usize| state.instances[i].open_until.is_some() || is_open[i];
        let pairs = (0..is_open.len()).flat_map(|i| (0..is_open.len()).map(move |j| (i, j)));
        let (i, j) =
            pairs.into_iter().find(|&(i, j)| i != j && is_open[j] && may_be_in_flight(i))?;
        Some(format!("{j} may write, and a write of {i} may take effect"))
    }

    /// The next state after faults have stopped; `None` once everything is right.
    pub fn calm(&self, state: &ClusterModel) -> Option<ClusterModel> {
        let mut leaders = state.instances.iter().filter(|r| self.gate(r).is_some());
        if leaders.next().is_some() {
            if !state.undone {
                return None;
            }
            // The leader's watch shows that the annotation is not as it should be.
            let undone = self.breaks(BrokenRule::NotPutRight);
            return Some(ClusterModel { undone, ..state.clone() });
        }
        let mut state = self.tick(state);
        state.faults = 0;
        for i in 0..state.instances.len() {
            if state.instances[i].ended {
                continue;
            }
            if state.instances[i].resigns {
                self.restart(&mut state, i);
            }
            state.instances[i].election.set_standing_down(false);
            if state.instances[i].call.is_none() {
                self.attempt(&mut state, i, false);
                state = self.normalised(state, &[0; 3]);
            }
            self.answer(&mut state, i);
            let instance = &mut state.instances[i];
            (instance.in_transit, instance.frozen, instance.open_until) = (None, None, None);
            state = self.normalised(state, &[0; 3]);
        }
        Some(state)
    }

    fn late_writes(&self, state: &ClusterModel, may: &mut May<'_>) {
        for (i, instance) in state.instances.iter().enumerate() {
            let Some(request) = &instance.in_transit else { continue };
            may(("has a late write that is carried out", i), &|state| {
                state.instances[i].in_transit = None;
                self.carry_out(state, request);
            });
        }
    }

    fn stands_down(state: &ClusterModel, may: &mut May<'_>) {
        for (i, instance) in state.instances.iter().enumerate() {
            let is_down = instance.election.is_standing_down();
            let step = if is_down { "takes part again" } else { "stands down" };
            may((step, i), &|state| {
                state.instances[i].election.set_standing_down(!is_down);
            });
        }
    }

    fn processes(&self, state: &ClusterModel, may: &mut May<'_>) {
        for (i, instance) in state.instances.iter().enumerate().filter(|(_, r)| !r.ended) {
            may(("dies and another one starts", i), &|state| self.restart(state, i));
            if !instance.resigns && instance.election.leads_from().is_some() {
                may(("resigns", i), &|state| {
                    let instance = &mut state.instances[i];
                    instance.resigns = true;
                    if self.breaks(BrokenRule::ReleasedBeforeLeading) {
                        let past = |t: u64| t.min(NOW - 1);
                        let same = &mut str::to_owned;
                        instance.election = instance.election.mapped(|t| t, past, same);
                    }
                    instance.election.resign();
                    if !self.breaks(BrokenRule::ReleasedWhileWriting) {
                        (instance.open_until, instance.frozen) = (None, None);
                    }
                });
            }
        }
    }

    fn edits(state: &ClusterModel, may: &mut May<'_>) {
        let Some((record, _)) = &state.lease else { return };
        may(("somebody deletes the Lease", 0), &|state| state.lease = None);
        may(("somebody annotates the Lease", 0), &|state| {
            state.lease = Some((record.clone(), NEW.to_owned()))
        });
        let mut holders: Vec<_> = state.instances.iter().map(|r| r.me.clone()).collect();
        holders.extend([String::new(), "somebody".to_owned()]);
        for (i, holder) in holders.into_iter().enumerate() {
            if holder == record.holder {
                continue;
            }
            may(("somebody writes another holder", i), &|state| {
                // A Lease without a holder and of one second is a released one, which no edit makes.
                let lease_ms = TIMINGS.lease_ms;
                let edited = LeaseRecord { holder: holder.clone(), lease_ms, ..record.clone() };
                state.lease = Some((edited, NEW.to_owned()));
            });
        }
    }

    fn restart(&self, state: &mut ClusterModel, i: usize) {
        let old = state.instances[i].clone();
        let holder = state.lease.as_ref().map_or("", |(record, _)| &record.holder);
        let in_transit = match &old.in_transit {
            Some(LeaseRequest::Create(record) | LeaseRequest::Update(record, _)) => &record.holder,
            _ => "",
        };
        let taken = [holder, in_transit, &old.me];
        let mut names = ["a", "b", "c", "d"].map(|self_| format!("{i}{self_}")).into_iter();
        let me = names.find(|name| !taken.contains(&name.as_str())).unwrap();
        let Instance { in_transit, open_until, frozen, .. } = old;
        state.instances[i] = Instance { in_transit, open_until, frozen, ..self.instance(me) };
    }
}
