//! A problem in the configuration, and suggestions for misspelled names.

use std::fmt;

use crate::outside_text::brief;

/// One error or warning: where the value was given, its key, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file, the flag, or `defaults`.
    pub origin: String,
    /// For example `clusters[1].roles`; empty if the problem concerns the whole file or flag.
    pub key: String,
    /// What was found and what is accepted.
    pub message: String,
}

impl ConfigProblem {
    pub(super) fn new(origin: &str, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { origin: origin.to_owned(), key: key.into(), message: message.into() }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and values are quoted as the file has them.
        let (key, message) = (brief(&self.key), brief(&self.message));
        match &*key {
            "" => write!(f, "{}: {message}", self.origin),
            key => write!(f, "{}: {key}: {message}", self.origin),
        }
    }
}

/// All errors in a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigProblem>);

impl fmt::Display for ConfigErrors {
    /// A single error is one line; several are listed below their count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return problem.fmt(f);
        }
        write!(f, "{} errors in the configuration:", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigErrors {}

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
