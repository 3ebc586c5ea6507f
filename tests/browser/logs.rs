//! The recorded incident with another name in it.

/// A name that would run as markup if the page did not escape it.
pub(crate) const EVIL: &str = "</script><img src=x onerror=\"hacked=1\"><!--<script>";

/// The incident, of a connector of this name.
pub(crate) fn incident_of(name: &str) -> String {
    let quoted = serde_json::to_string(name).unwrap();
    include_str!("../../fixtures/incident-503.jsonl").replace("home-lab", quoted.trim_matches('"'))
}
