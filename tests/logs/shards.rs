//! Several shards together do what one instance does alone: each object is written by one of them, at the
//! same moment and with the same value.

use std::collections::BTreeMap;

use throughline::core::contract::action::Action;
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName};
use throughline::core::data::shard::Shard;
use throughline::core::data::time::UnixMillis;

use crate::fixtures::{names, replayed};

const SHARDS: u16 = 3;

type Written = (UnixMillis, Kind, ClusterName, NamespacedName, Vec<(String, Option<String>)>);

/// Here limits a second are reached, of which each shard has its part: all is written, at other times.
const LIMITED: [&str; 4] = [
    "careless-platform",
    "flip-while-500-addresses-wait",
    "three-hundred-gateways-due-at-once",
    "upstream-connectors-deleted-below-the-share",
];

fn writes(name: &str, shard: Shard) -> Vec<Written> {
    let (replay, _) = replayed(name, |settings| settings.shard = shard);
    let written = replay.actions.into_iter().map(|record| {
        let at = if LIMITED.contains(&name) { UnixMillis(0) } else { record.decision.at };
        let Action { kind, cluster, object, annotations, .. } = record.decision.action;
        (at, kind, cluster, object, annotations)
    });
    written.collect()
}

#[test]
fn shards_together_write_what_one_instance_writes() {
    for name in names("jsonl") {
        let mut alone = writes(&name, Shard::WHOLE);
        let mut together = Vec::new();
        let mut writers = BTreeMap::new();
        for index in 0..SHARDS {
            for write in writes(&name, Shard { index, of: SHARDS }) {
                let (_, kind, cluster, object, _) = &write;
                let object = (*kind, cluster.clone(), object.clone());
                let writer = *writers.entry(object).or_insert(index);
                assert_eq!(writer, index, "{name}: two shards write {write:?}");
                together.push(write);
            }
        }
        alone.sort();
        together.sort();
        assert_eq!(alone, together, "{name}");
    }
}
