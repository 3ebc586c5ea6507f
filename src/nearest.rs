//! Suggestions for misspelled names.

use anyhow::bail;

use crate::core::data::ids::ClusterName;
use crate::report::style::join_first;

/// The name in `known` that `word` most likely misspells; `None` if none is similar.
pub(crate) fn nearest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a String>,
) -> Option<&'a str> {
    let normalize = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let word = normalize(word);
    let distance_max = word.chars().count().div_ceil(3).min(3);
    let distance_to = |name: &String| {
        let name = normalize(name);
        let is_prefix =
            word.len().min(name.len()) > 2 && (word.starts_with(&name) || name.starts_with(&word));
        if is_prefix { 1 } else { strsim::levenshtein(&word, &name) }
    };
    known
        .into_iter()
        .map(|name| (distance_to(name), name.as_str()))
        .filter(|(distance, _)| *distance <= distance_max)
        .min()
        .map(|(_, name)| name)
}

/// # Errors
/// One of `upstreams` is not among `known`, the configured and discovered ones; with a suggestion.
pub(crate) fn require_known<'a>(
    upstreams: &[ClusterName],
    known: impl Iterator<Item = &'a ClusterName>,
) -> anyhow::Result<()> {
    let known: Vec<String> = known.map(ToString::to_string).collect();
    let is_unknown = |name: &&ClusterName| !known.iter().any(|known| known == name.as_str());
    let Some(name) = upstreams.iter().find(is_unknown) else { return Ok(()) };
    let guess = match nearest(name.as_str(), &known) {
        Some(guess) => format!("did you mean {guess}?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => format!("there are {}", join_first(&known)),
    };
    bail!("--upstream {name}: no such upstream is configured or discovered; {guess}")
}
