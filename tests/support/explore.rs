//! Explores everything that a model can come to, breadth first, so that the way to what is wrong
//! is a shortest one. States are told apart by 64-bit fingerprints.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Something that steps from state to state.
pub trait Model {
    /// All there is to know at one moment.
    type State: Clone + Hash + Debug;
    /// One thing that may happen.
    type Step: Clone + Debug;

    /// Where it begins.
    fn initial(&self) -> Vec<Self::State>;
    /// What may happen, and what it leads to.
    fn steps(&self, state: &Self::State) -> Vec<(Self::Step, Self::State)>;
    /// What is wrong in this state.
    fn wrong(&self, state: &Self::State) -> Option<String>;
    /// Faults have stopped: what happens next. `None`: it is as well as it should be.
    fn calm(&self, state: &Self::State) -> Option<Self::State>;
    /// After so many calm steps it must be well.
    fn calm_steps(&self) -> usize;
}

/// What was explored.
#[derive(Debug, Default)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps from a beginning to the farthest of them.
    pub depth: usize,
    /// What is wrong, and the way there.
    pub wrong: Option<String>,
}

fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Explores all states within so many steps, or until one is wrong.
pub fn explore<M: Model>(model: &M, steps_max: usize) -> Explored {
    let mut came_from: HashMap<u64, (u64, M::Step)> = HashMap::new();
    let mut ends_well = HashSet::new();
    let mut explored = Explored::default();
    let mut layer = Vec::new();
    let mut known = HashSet::new();
    for state in model.initial() {
        let print = fingerprint(&state);
        if known.insert(print) {
            layer.push((print, state));
        }
    }
    while !layer.is_empty() && explored.depth <= steps_max {
        let mut next = Vec::new();
        for (print, state) in layer {
            explored.states += 1;
            let wrong = model.wrong(&state).or_else(|| never_well(model, &state, &mut ends_well));
            if let Some(wrong) = wrong {
                explored.wrong = Some(told(&came_from, print, &wrong, &state));
                return explored;
            }
            for (step, state) in model.steps(&state) {
                let to = fingerprint(&state);
                if !known.contains(&to)
                    && let Entry::Vacant(place) = came_from.entry(to)
                {
                    place.insert((print, step));
                    next.push((to, state));
                }
            }
        }
        explored.depth += usize::from(!next.is_empty());
        layer = next;
    }
    explored
}

/// Follows the calm from here until it is well, or as another state's that ended well.
fn never_well<M: Model>(
    model: &M,
    state: &M::State,
    ends_well: &mut HashSet<u64>,
) -> Option<String> {
    let mut way = Vec::new();
    let mut at = model.calm(state);
    while let Some(state) = at {
        let print = fingerprint(&state);
        if ends_well.contains(&print) {
            break;
        }
        if way.len() >= model.calm_steps() {
            return Some(format!("not well after {} calm steps: {state:#?}", way.len()));
        }
        way.push(print);
        at = model.calm(&state);
    }
    ends_well.extend(way);
    None
}

fn told<Step: Debug>(
    came_from: &HashMap<u64, (u64, Step)>,
    end: u64,
    wrong: &str,
    state: &impl Debug,
) -> String {
    let mut steps = Vec::new();
    let mut at = end;
    while let Some((before, step)) = came_from.get(&at) {
        steps.push(step);
        at = *before;
    }
    let mut text = format!("{wrong}\n");
    for step in steps.iter().rev() {
        writeln!(text, "  {step:?}").unwrap();
    }
    write!(text, "{state:#?}").unwrap();
    text
}
