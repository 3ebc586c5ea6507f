//! A hub Connector that a person has paused by annotation. `scenes.rs` has a paused Gateway.

use crate::stage::*;

#[test]
fn a_paused_hub_connector_is_not_mirrored_until_it_is_resumed() {
    let mut stage = Stage::settled(Settings::default());
    let mirrored = |stage: &Stage| stage.fleet().connectors[0].worst().unwrap().clone();
    let is_held = |hop: &HopView| (hop.hop, hop.state) == (Hop::Mirrored, State::Held);
    let mut paused = with_uid(UP.copy("lab", N1), "u-hub");
    paused["metadata"]["annotations"][PAUSED] = json!("true");
    stage.applied("hub", paused);
    assert!(is_held(&mirrored(&stage)), "also while nothing is behind");
    stage.upstream(OFFLINE).quiet_to(600_000 + 48 * HOUR);
    assert_eq!(stage.causes(), [(true, Cause::Paused)], "what is paused is not late");
    assert_eq!(stage.wrong(), [Cause::Paused]);
    let hop = mirrored(&stage);
    assert!(is_held(&hop), "{hop:?}");
    assert_eq!(hop.since_ms, Some(UnixMillis(START + 600_000)), "since the pause began");
    let message = format!("Connector ns-{UID}/lab in hub is paused by annotation.");
    assert_eq!(hop.message, Some(message));

    let mirror = stage.hub(N1).only_action();
    assert_eq!(time_of(&mirror), stage.time(), "at once");
    assert_eq!(mirror.action.annotations, [(STATUS.to_owned(), OFFLINE.map(str::to_owned))]);
    assert_eq!(stage.succeed(&mirror).causes(), [(false, Cause::Paused)], "nor is it late now");
    assert_eq!(stage.wrong(), []);
    // The time of the pause is nobody's delay.
    let timed = stage.edge(OFFLINE).hops();
    assert!(timed.iter().all(|(.., after_ms)| after_ms.is_none_or(|ms| ms < HOUR)), "{timed:?}");
}
