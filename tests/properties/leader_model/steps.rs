//! The model's steps, its wrong states, and how it continues once faults stop.

use throughline::leader::election::{LeaseRecord, LeaseRequest};

use super::breaks::BrokenRule;
use super::cluster_model::{
    ClusterModel, Fault, FrozenWrite, Instance, NEW, NOW, Setup, Step, TIMINGS,
};
use super::explore::Model;

/// Takes a step that may happen, and the change it makes.
type May<'a> = dyn FnMut(Step, &dyn Fn(&mut ClusterModel)) + 'a;

impl Model for Setup {
    type State = ClusterModel;
    type Step = Step;

    fn initial(&self) -> Vec<ClusterModel> {
        let instance = |i| self.instance(format!("{i}a"));
        let instances = (0..self.clocks.len()).map(instance).collect();
        let mut model_state =
            ClusterModel { lease: None, instances, faults: 0, overwrote: false, undone: false };
        if self.has_leader {
            while let Some(next) = self.calm(&model_state) {
                model_state = next;
            }
        }
        model_state.faults = self.faults.0;
        vec![model_state]
    }

    fn steps(&self, model_state: &ClusterModel) -> Vec<(Step, ClusterModel)> {
        let mut steps = vec![(Step::Tick, self.tick(model_state))];
        let mut may = |step: Step, change: &dyn Fn(&mut ClusterModel)| {
            let mut next = model_state.clone();
            change(&mut next);
            steps.push((step, self.normalised(next, &[0; 3])));
        };
        for (i, instance) in model_state.instances.iter().enumerate() {
            let is_open = self.gate(instance).is_some();
            if is_open && self.breaks(BrokenRule::WorkNotStartedAgain) {
                may(Step::WorkFails(i), &|model_state| model_state.instances[i].ended = true);
            }
            if self.freezes && is_open && instance.frozen.is_none() {
                may(Step::Freezes(i), &|model_state| {
                    model_state.instances[i].frozen = Some(FrozenWrite::Current);
                });
            }
            if self.freezes && is_open {
                let outcomes = [FrozenWrite::Overtaken, FrozenWrite::Repeated];
                let values = if self.by_annotation { &outcomes[..] } else { &outcomes[..1] };
                for becomes in values {
                    may(Step::Writes(i), &|model_state| {
                        let instances = model_state.instances.iter_mut();
                        for other in instances.filter(|r| r.me != instance.me) {
                            other.frozen = other.frozen.map(|_| *becomes);
                        }
                        model_state.undone &= self.breaks(BrokenRule::NotPutRight);
                    });
                }
            }
            if let Some(frozen) = instance.frozen {
                may(Step::Thaws(i), &|model_state| {
                    model_state.instances[i].frozen = None;
                    // By then the object has another resourceVersion, or the annotation another
                    // value.
                    let lands = self.breaks(BrokenRule::NoFence);
                    model_state.overwrote |= frozen == FrozenWrite::Overtaken && lands;
                    model_state.undone |= frozen == FrozenWrite::Repeated;
                });
            }
            if instance.ended {
                continue;
            }
            if let Some((request, _)) = &instance.call {
                may(Step::Answered(i), &|model_state| self.answer(model_state, i));
                may(Step::TimesOut(i), &|model_state| {
                    model_state.instances[i].call = None;
                    self.failed(model_state, i, request);
                });
            } else {
                may(Step::Attempts(i), &|model_state| {
                    self.attempt(model_state, i, false);
                    if !self.slow {
                        self.answer(model_state, i);
                    }
                });
                if !self.slow {
                    may(Step::TimesOut(i), &|model_state| {
                        self.attempt(model_state, i, false);
                        if let Some((request, _)) = model_state.instances[i].call.take() {
                            self.failed(model_state, i, &request);
                        }
                    });
                }
                may(Step::Loses(i), &|model_state| self.attempt(model_state, i, true));
            }
        }
        if model_state.faults > 0 {
            self.faults(model_state, &mut |step, change| {
                may(step, &|model_state| {
                    model_state.faults -= 1;
                    change(model_state);
                });
            });
        }
        steps
    }

    fn wrong(&self, model_state: &ClusterModel) -> Option<String> {
        if model_state.overwrote {
            return Some("a late write changed what a later leader had written".to_owned());
        }
        let is_open: Vec<_> =
            model_state.instances.iter().map(|r| self.gate(r).is_some()).collect();
        let may_be_in_flight =
            |i: usize| model_state.instances[i].open_until.is_some() || is_open[i];
        let pairs = (0..is_open.len()).flat_map(|i| (0..is_open.len()).map(move |j| (i, j)));
        let (i, j) =
            pairs.into_iter().find(|&(i, j)| i != j && is_open[j] && may_be_in_flight(i))?;
        Some(format!("{j} may write, and a write of {i} may take effect"))
    }

    fn calm(&self, model_state: &ClusterModel) -> Option<ClusterModel> {
        let mut leaders = model_state.instances.iter().filter(|r| self.gate(r).is_some());
        if leaders.next().is_some() {
            if !model_state.undone {
                return None;
            }
            // The leader's watch shows that the annotation is not as it should be.
            let undone = self.breaks(BrokenRule::NotPutRight);
            return Some(ClusterModel { undone, ..model_state.clone() });
        }
        let mut model_state = self.tick(model_state);
        model_state.faults = 0;
        for i in 0..model_state.instances.len() {
            if model_state.instances[i].ended {
                continue;
            }
            if model_state.instances[i].resigns {
                self.restart(&mut model_state, i);
            }
            model_state.instances[i].election.set_standing_down(false);
            if model_state.instances[i].call.is_none() {
                self.attempt(&mut model_state, i, false);
                model_state = self.normalised(model_state, &[0; 3]);
            }
            self.answer(&mut model_state, i);
            let instance = &mut model_state.instances[i];
            (instance.in_transit, instance.frozen, instance.open_until) = (None, None, None);
            model_state = self.normalised(model_state, &[0; 3]);
        }
        Some(model_state)
    }

    fn calm_steps(&self) -> usize {
        // A lease duration until the last holder's tenure is over, another before the next one leads.
        2 * 4 + 4
    }
}

impl Setup {
    /// The steps of these kinds of faults.
    fn faults(&self, model_state: &ClusterModel, may: &mut May<'_>) {
        for fault in self.faults.1 {
            match fault {
                Fault::Edit => Self::edits(model_state, may),
                Fault::Process => self.processes(model_state, may),
                Fault::StandsDown => Self::stands_down(model_state, may),
                Fault::Late => {
                    for (i, instance) in model_state.instances.iter().enumerate() {
                        let Some(request) = &instance.in_transit else { continue };
                        may(Step::LandsLate(i), &|model_state| {
                            model_state.instances[i].in_transit = None;
                            self.carry_out(model_state, request);
                        });
                    }
                }
            }
        }
    }

    fn stands_down(model_state: &ClusterModel, may: &mut May<'_>) {
        for (i, instance) in model_state.instances.iter().enumerate() {
            let is_down = instance.election.is_standing_down();
            let step = if is_down { Step::StandsUp(i) } else { Step::StandsDown(i) };
            may(step, &|model_state| {
                model_state.instances[i].election.set_standing_down(!is_down);
            });
        }
    }

    fn processes(&self, model_state: &ClusterModel, may: &mut May<'_>) {
        for (i, instance) in model_state.instances.iter().enumerate().filter(|(_, r)| !r.ended) {
            may(Step::Restarts(i), &|model_state| self.restart(model_state, i));
            if !instance.resigns && instance.election.leads_from().is_some() {
                may(Step::Resigns(i), &|model_state| {
                    let instance = &mut model_state.instances[i];
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

    fn edits(model_state: &ClusterModel, may: &mut May<'_>) {
        let Some((record, _)) = &model_state.lease else { return };
        may(Step::Deleted, &|model_state| model_state.lease = None);
        may(Step::Annotated, &|model_state| {
            model_state.lease = Some((record.clone(), NEW.to_owned()))
        });
        let mut holders: Vec<_> = model_state.instances.iter().map(|r| r.me.clone()).collect();
        holders.extend([String::new(), "somebody".to_owned()]);
        for holder in holders.into_iter().filter(|holder| *holder != record.holder) {
            may(Step::Edited(holder.clone()), &|model_state| {
                // A Lease without a holder and of one second is a released one, which no edit makes.
                let lease_ms = TIMINGS.lease_ms;
                let edited = LeaseRecord { holder: holder.clone(), lease_ms, ..record.clone() };
                model_state.lease = Some((edited, NEW.to_owned()));
            });
        }
    }

    fn restart(&self, model_state: &mut ClusterModel, i: usize) {
        let old = model_state.instances[i].clone();
        let holder = model_state.lease.as_ref().map_or("", |(record, _)| &record.holder);
        let in_transit = match &old.in_transit {
            Some(LeaseRequest::Create(record) | LeaseRequest::Update(record, _)) => &record.holder,
            _ => "",
        };
        let taken = [holder, in_transit, &old.me];
        let mut names = ["a", "b", "c", "d"].map(|self_| format!("{i}{self_}")).into_iter();
        let me = names.find(|name| !taken.contains(&name.as_str())).unwrap();
        let Instance { in_transit, open_until, frozen, .. } = old;
        model_state.instances[i] = Instance { in_transit, open_until, frozen, ..self.instance(me) };
    }
}
