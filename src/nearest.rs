//! Suggestions for misspelled names.

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
