//! Suggestions for misspelled names.

/// The name in `known` that `word` most likely stands for; `None` if none is similar.
pub(crate) fn nearest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a String>,
) -> Option<&'a str> {
    let normalize = |text: &str| -> Vec<char> {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let word = normalize(word);
    let distance_to = |name: &String| {
        let name = normalize(name);
        let is_prefix =
            word.len().min(name.len()) > 2 && (word.starts_with(&name) || name.starts_with(&word));
        if is_prefix { 1 } else { edit_distance(&word, &name) }
    };
    known
        .into_iter()
        .map(|name| (distance_to(name), name.as_str()))
        .filter(|(distance, _)| *distance <= word.len().div_ceil(3).min(3))
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein distance.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
