//! The lines of the backup of deleted routes, `FILE.deleted.jsonl`. It is no event log: it has no
//! header, outlives every run, and is read line by line whatever became of the others.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::line::Text;
use crate::core::data::time::UnixMillis;

/// A route that is about to be deleted.
#[derive(Debug, Serialize)]
pub struct DeletedRouteLine<'a> {
    pub at_ms: UnixMillis,
    /// The hub.
    pub cluster: &'a str,
    /// The whole route, as it was read just before.
    pub deleted: &'a RawValue,
}

/// How that delete ended.
#[derive(Debug, Serialize)]
pub struct DeletedRouteEnd<'a> {
    pub at_ms: UnixMillis,
    pub cluster: &'a str,
    pub uid: &'a str,
    /// The outcome's name in the event log.
    pub outcome: &'a str,
}

/// Either of the two, read.
#[derive(Debug)]
pub enum DeletedRouteEntry {
    Route { at: UnixMillis, text: String },
    End { uid: String, outcome: String },
}

#[derive(Deserialize)]
struct RawEntry<'a> {
    at_ms: UnixMillis,
    #[serde(borrow)]
    deleted: Option<&'a RawValue>,
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    #[serde(borrow)]
    outcome: Option<Text<'a>>,
}

impl DeletedRouteEntry {
    /// Reads a line.
    ///
    /// # Errors
    /// It is no such line, or was cut off; the text says what is wrong with it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let raw: RawEntry<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        match (raw.deleted, raw.uid, raw.outcome) {
            (Some(route), _, _) => Ok(Self::Route { at: raw.at_ms, text: route.get().to_owned() }),
            (None, Some(uid), Some(outcome)) => {
                Ok(Self::End { uid: uid.0.into_owned(), outcome: outcome.0.into_owned() })
            }
            _ => Err("it holds neither a route nor an outcome".to_owned()),
        }
    }
}
