//! Explores every state that a model can reach, breadth first, so that the path to a wrong state is a
//! shortest one. 64-bit fingerprints tell states apart.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Something that steps from state to state.
pub trait Model {
    type State: Clone + Hash + Debug;
    /// One thing that can happen.
    type Step: Clone + Debug;

    fn initial(&self) -> Vec<Self::State>;
    /// Every step that is possible in a state, and the state that it leads to.
    fn steps(&self, state: &Self::State) -> Vec<(Self::Step, Self::State)>;
    /// What is wrong in this state.
    fn wrong(&self, state: &Self::State) -> Option<String>;
    /// The next state after faults have stopped; `None` once everything is right.
    fn calm(&self, state: &Self::State) -> Option<Self::State>;
    /// After this many calm steps everything must be right.
    fn calm_steps(&self) -> usize;
}

/// The result of an exploration.
#[derive(Debug, Default)]
pub struct Explored {
    pub states: usize,
    /// Steps from an initial state to the farthest one.
    pub depth: usize,
    /// The first wrong state, and the path to it.
    pub wrong: Option<String>,
}

fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Explores all states within `steps_max` steps, or until one is wrong.
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
                explored.wrong = Some(describe_path(&came_from, print, &wrong, &state));
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

/// Follows the calm steps until everything is right, or until a state that is known to end right.
fn never_well<M: Model>(
    model: &M,
    state: &M::State,
    ends_well: &mut HashSet<u64>,
) -> Option<String> {
    let mut path = Vec::new();
    let mut at = model.calm(state);
    while let Some(state) = at {
        let print = fingerprint(&state);
        if ends_well.contains(&print) {
            break;
        }
        if path.len() >= model.calm_steps() {
            return Some(format!("not right after {} calm steps: {state:#?}", path.len()));
        }
        path.push(print);
        at = model.calm(&state);
    }
    ends_well.extend(path);
    None
}

fn describe_path<Step: Debug>(
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
