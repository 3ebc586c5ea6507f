//! The fleet says the same as the open problems, whatever happened.

use throughline_core::view::fleet::Fleet;

use crate::stage::*;

pub(crate) fn assert_consistent(stage: &Stage) {
    let fleet = stage.fleet();
    let json = serde_json::to_string(&fleet).unwrap();
    assert_eq!(serde_json::from_str::<Fleet>(&json).unwrap(), fleet);

    let states = fleet.connectors.iter().map(|connector| connector.state);
    let mut counts: BTreeMap<_, u64> = State::ALL.into_iter().map(|state| (state, 0)).collect();
    states.for_each(|state| *counts.entry(state).or_default() += 1);
    assert_eq!(fleet.counts, counts);

    for connector in &fleet.connectors {
        assert_worst_first(connector);
        connector.hops.iter().for_each(|hop| assert_explained(stage, hop));
    }
    fleet.unpaired.iter().for_each(|hop| assert_explained(stage, hop));
    stage.open.values().for_each(|problem| assert_shown(&fleet, problem));
}

/// A connector has the worst of its hops, and shows the first of these.
fn assert_worst_first(connector: &Connector) {
    let states: Vec<_> = connector.hops.iter().map(|hop| hop.state).collect();
    assert_eq!(Some(&connector.state), states.iter().max(), "{connector:#?}");
    let first = states.iter().position(|state| *state == connector.state);
    let shown = first.filter(|_| connector.state > State::Ok).map(|n| &connector.hops[n]);
    assert_eq!(connector.worst(), shown);
    assert!(connector.hops.is_sorted_by_key(|hop| (hop.hop, &hop.cluster, &hop.object)));
}

/// Whatever has a cause has its texts, and a hop that waits for somebody has a cause of its state.
fn assert_explained(stage: &Stage, hop: &HopView) {
    let HopView { state, cause, message, remedy, .. } = hop;
    let has_remedy = cause.is_some_and(|cause| !cause.info().remedy.is_empty());
    assert_eq!((message.is_some(), remedy.is_some()), (cause.is_some(), has_remedy), "{hop:#?}");
    for text in message.iter().chain(remedy) {
        assert!(!text.contains("unknown ") && !text.contains(" 0 of "), "{hop:#?}");
    }
    let makes = cause.and_then(|cause| cause.info().state);
    match state {
        State::Ok | State::Pending => assert_eq!(makes, None, "{hop:#?}"),
        State::Held | State::Stuck => {
            assert_eq!(makes, Some(*state), "{hop:#?}");
            assert!(hop.since_ms.is_some() || *state == State::Held, "{hop:#?}");
        }
        State::Unknown => {
            assert!(makes.is_none_or(|makes| makes == State::Unknown), "{hop:#?}");
            assert!(cause.is_none() || hop.since_ms.is_some(), "{hop:#?}");
        }
    }
    assert!(hop.since_ms.is_none_or(|since| since.0 <= stage.now), "{hop:#?}");
    let is_due = hop.next_attempt_ms.is_none_or(|at| at.0 > stage.now);
    let is_done = matches!(state, State::Ok | State::Held);
    let is_written = !is_done || *cause == Some(Cause::Deferred);
    assert!(is_due && (hop.next_attempt_ms.is_none() || is_written), "{hop:#?}");
}

/// What is wrong with an object at a hub or an edge shows at the connectors that it is of, unless nobody
/// can know.
fn assert_shown(fleet: &Fleet, problem: &Problem) {
    let (Some(kind), Some(object)) = (problem.about.kind, &problem.about.object) else { return };
    let Some(makes) = problem.cause.info().state else { return };

    for connector in &fleet.connectors {
        let is_of = |hop: &&HopView| {
            (&hop.cluster, hop.kind, hop.object.as_ref())
                == (&problem.about.cluster, kind, Some(object))
        };
        let mut hops = connector.hops.iter().filter(is_of).peekable();
        let is_mirrored = hops.peek().is_some_and(|hop| hop.hop == Hop::Mirrored);
        let is_upstream = hops.peek().is_some_and(|hop| hop.hop == Hop::Upstream);
        if hops.peek().is_none() || is_upstream {
            continue;
        }
        let shows = |hop: &HopView| hop.state >= makes || hop.state == State::Unknown;
        let is_nudged = is_mirrored && connector.hops_of(Hop::Carried).any(shows);
        assert!(is_nudged || hops.any(shows), "{problem:#?} {connector:#?}");
    }
}
