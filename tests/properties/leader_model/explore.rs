//! Explores every state that a model can reach, breadth first, so that the path to a wrong state is a
//! shortest one. 64-bit fingerprints tell states apart.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::Xxh3Default;

use super::cluster_model::{ClusterModel, Setup, Step};

/// The state before each state, and the step between; none before the initial state.
type CameFrom = HashMap<u64, Option<(u64, Step)>>;

fn fingerprint(state: &ClusterModel) -> u64 {
    // std's hasher would be compiled here, without optimisation.
    let mut hasher = Xxh3Default::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Explores all states within `steps_max` steps, or until one is wrong. Returns how many there are, and the
/// path to the wrong one.
pub fn explore(setup: &Setup, steps_max: usize) -> (usize, Option<String>) {
    let initial = setup.initial();
    let mut came_from = CameFrom::from([(fingerprint(&initial), None)]);
    let mut layer = vec![(fingerprint(&initial), initial)];
    let mut ends_well = HashSet::new();
    let mut states = 0;
    for _ in 0..=steps_max {
        let mut next = Vec::new();
        for (print, state) in layer {
            states += 1;
            let wrong = setup.wrong(&state).or_else(|| never_well(setup, &state, &mut ends_well));
            if let Some(wrong) = wrong {
                return (states, Some(describe_path(&came_from, print, &wrong, &state)));
            }
            for (step, state) in setup.steps(&state) {
                let to = fingerprint(&state);
                if let Entry::Vacant(place) = came_from.entry(to) {
                    place.insert(Some((print, step)));
                    next.push((to, state));
                }
            }
        }
        if next.is_empty() {
            break;
        }
        layer = next;
    }
    (states, None)
}

/// Follows the calm steps until everything is right, or until a state that is known to end right.
fn never_well(setup: &Setup, state: &ClusterModel, ends_well: &mut HashSet<u64>) -> Option<String> {
    let mut path = Vec::new();
    let mut at = setup.calm(state);
    while let Some(state) = at {
        let print = fingerprint(&state);
        if ends_well.contains(&print) {
            break;
        }
        if path.len() >= Setup::CALM_STEPS {
            return Some(format!("not right after {} calm steps: {state:#?}", path.len()));
        }
        path.push(print);
        at = setup.calm(&state);
    }
    ends_well.extend(path);
    None
}

fn describe_path(came_from: &CameFrom, end: u64, wrong: &str, state: &ClusterModel) -> String {
    let mut steps = Vec::new();
    let mut at = end;
    while let Some((before, step)) = came_from[&at] {
        steps.push(step);
        at = before;
    }
    let mut text = format!("{wrong}\n");
    for (step, i) in steps.iter().rev() {
        writeln!(text, "  {i} {step}").unwrap();
    }
    write!(text, "{state:#?}").unwrap();
    text
}
