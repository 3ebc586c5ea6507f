//! Finds the connector that `--connector` names, or suggests a similar name.

use std::collections::BTreeSet;

use super::model::{Report, Story};
use crate::core::data::ids::NamespacedName;
use crate::nearest::nearest;
use crate::replay::Replay;

/// How many names to list if none is similar.
const LISTED_MAX: usize = 5;

/// Checks that the log has a connector of this name, upstream or at the hub and the edges.
///
/// # Errors
/// There is none. The text says what to do.
pub fn require_connector(replay: &Replay, name: &NamespacedName) -> Result<(), String> {
    let report = Report::new(replay, None);
    let of = |story: &Story<'_>| {
        [story.upstream.map(|upstream| upstream.key), story.hub].map(|key| Some(key?.to_string()))
    };
    let names: BTreeSet<_> = report.connectors.iter().flat_map(of).flatten().collect();
    let word = name.to_string();
    if names.contains(&word) {
        return Ok(());
    }
    let elsewhere = |known: &&String| known.ends_with(&format!("/{}", name.name()));
    let near = names.iter().find(elsewhere).or_else(|| {
        let near = nearest(&word, &names)?;
        names.get(near)
    });
    let mut text =
        format!("{}: no connector is called {name}, upstream or at the hub", replay.file);
    match near {
        Some(near) => text += &format!("; did you mean {near}?"),
        None if names.is_empty() => text += "; the log has no connectors at all",
        None => {
            let listed: Vec<_> = names.iter().take(LISTED_MAX).map(String::as_str).collect();
            text += &format!("; it has {}", listed.join(", "));
            if names.len() > LISTED_MAX {
                text += &format!(" and {} more names", names.len() - LISTED_MAX);
            }
        }
    }
    Err(text)
}
