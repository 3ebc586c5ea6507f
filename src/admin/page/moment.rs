//! The events for a page: first the whole state, then its changes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::Arc;

use axum::body::Bytes;
use serde::Serialize;

use crate::admin::hops::PassedHop;
use crate::admin::state::InstanceState;
use crate::core::view::fleet::Connector;
use crate::outside_text::plain_json::PlainJson;

/// The state at one time, as the events that send it to the pages.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Increases by one with each moment, from 1.
    pub(super) number: u64,
    whole: Bytes,
    changes: Bytes,
}

impl Moment {
    /// The changes for a page with the previous moment; everything for any other page.
    pub(super) fn event_for(&self, page_has: Option<u64>) -> Bytes {
        let has_former = page_has.is_some_and(|number| number + 1 == self.number);
        if has_former { self.changes.clone() } else { self.whole.clone() }
    }
}

/// The data for detecting changes since the last moment.
#[derive(Debug, Default)]
pub(super) struct Sent {
    moments: u64,
    /// The hash of each field of the state by its name, and of each connector by its id.
    hashes: HashMap<String, u64>,
    /// The number of the last hop.
    last_hop: u64,
}

impl Sent {
    /// The next moment.
    ///
    /// # Errors
    /// The state can't be encoded.
    pub(super) fn next(
        &mut self,
        mut state: InstanceState,
        hops: &[Arc<PassedHop>],
    ) -> serde_json::Result<Moment> {
        let connectors = mem::take(&mut state.fleet.connectors);
        // They change with every bookmark, and no page shows them.
        state.fleet.clusters.iter_mut().for_each(|cluster| cluster.received_at_ms.clear());

        let fields = fields(&state)?;
        let connectors = connectors.iter().map(Part::of).collect::<Result<Vec<_>, _>>()?;
        let all = fields.iter().chain(&connectors);
        let hashes: HashMap<_, _> = all.map(|part| (part.id.clone(), part.hash)).collect();

        let is_new = |part: &&Part| self.hashes.get(&part.id) != Some(&part.hash);
        let json = |part: &Part| part.json.clone();
        let removed = self.hashes.keys().filter(|id| !hashes.contains_key(*id));
        let new_hops = hops.iter().filter(|hop| hop.number > self.last_hop);
        let lists = [
            ("connectors", connectors.iter().filter(is_new).map(json).collect()),
            ("removed", removed.map(encode).collect::<Result<Vec<_>, _>>()?),
            ("hops", new_hops.map(encode).collect::<Result<_, _>>()?),
        ];
        let lists = lists.iter().filter(|(_, items)| !items.is_empty());
        let lists = lists.map(|(name, items)| list(name, items));
        let changes: Vec<_> = fields.iter().filter(is_new).map(json).chain(lists).collect();

        let mut whole: Vec<_> = fields.iter().map(json).collect();
        let all: Vec<_> = connectors.iter().map(|part| part.json.as_str()).collect();
        whole.push(list("connectors", &all));
        whole.push(format!("\"hops\":{}", encode(hops)?));
        self.moments += 1;
        self.hashes = hashes;
        self.last_hop = hops.last().map_or(self.last_hop, |hop| hop.number);
        Ok(Moment {
            number: self.moments,
            whole: event("fleet", &whole),
            changes: event("change", &changes),
        })
    }
}

/// A field of the state or a connector, as JSON.
struct Part {
    id: String,
    json: String,
    hash: u64,
}

impl Part {
    fn new(id: String, json: String) -> Self {
        let mut hasher = DefaultHasher::new();
        json.hash(&mut hasher);
        Self { id, json, hash: hasher.finish() }
    }

    fn of(connector: &Connector) -> serde_json::Result<Self> {
        Ok(Self::new(id_of(connector), encode(connector)?))
    }
}

/// The fields of the state, without its connectors. No field's name is the id of a connector.
fn fields(state: &InstanceState) -> serde_json::Result<Vec<Part>> {
    let state = serde_json::to_value(state)?;
    let fields = state.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| *name != "connectors");
    let part = |(name, value): (&String, _)| {
        Ok(Part::new(name.clone(), format!("\"{name}\":{}", encode(value)?)))
    };
    fields.map(part).collect()
}

fn list(name: &str, items: &[impl Borrow<str>]) -> String {
    format!("\"{name}\":[{}]", items.join(","))
}

fn event(name: &str, fields: &[String]) -> Bytes {
    format!("event: {name}\ndata: {{{}}}\n\n", fields.join(",")).into()
}

/// JSON for a page, which shows its texts to people unchanged.
fn encode(value: impl Serialize) -> serde_json::Result<String> {
    let mut json = Vec::new();
    serde_json::to_writer(PlainJson::for_people(&mut json), &value)?;
    Ok(String::from_utf8_lossy(&json).into_owned())
}

/// The connector's id: its key at the hub and the edges, else its upstream key. The page computes the
/// same.
fn id_of(connector: &Connector) -> String {
    match (&connector.name, &connector.upstream) {
        (Some(name), _) => name.to_string(),
        (None, Some(upstream)) => format!("{}: {}", upstream.cluster, upstream.object),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_missed_a_moment_gets_everything() {
        let moment = Moment { number: 7, whole: "whole".into(), changes: "changes".into() };
        for (has, event) in [(None, "whole"), (Some(5), "whole"), (Some(6), "changes")] {
            assert_eq!(moment.event_for(has), event, "{has:?}");
        }
    }
}
