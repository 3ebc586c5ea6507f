//! What is wrong with a configuration, and how it is told.

use std::fmt;

/// One thing that is wrong, or looks so: where it was said, which key, and what about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, the flag, or `defaults`.
    pub origin: String,
    /// The key, e.g. `clusters[1].roles`; empty when it is about the whole.
    pub key: String,
    /// What was found and what is accepted.
    pub message: String,
}

impl Problem {
    pub(super) fn new(origin: &str, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { origin: origin.to_owned(), key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.origin, self.message),
            key => write!(f, "{}: {key}: {}", self.origin, self.message),
        }
    }
}

/// Everything that is wrong with a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Problem>);

impl fmt::Display for ConfigErrors {
    /// One error is one line; of several each has its own, below their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return problem.fmt(f);
        }
        write!(f, "{} errors in the configuration:", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigErrors {}

/// The one of `known` that was most likely meant by `word`, if any is near.
pub(crate) fn nearest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a String>,
) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let word = plain(word);
    let far = |name: &String| {
        let name = plain(name);
        let begun =
            word.len().min(name.len()) > 2 && (word.starts_with(&name) || name.starts_with(&word));
        if begun { 1 } else { distance(&word, &name) }
    };
    known
        .into_iter()
        .map(|name| (far(name), name.as_str()))
        .filter(|(distance, _)| *distance <= word.len().div_ceil(3).min(3))
        .min()
        .map(|(_, name)| name)
}

/// How many letters must be changed, put in or taken out (Levenshtein).
fn distance(a: &[char], b: &[char]) -> usize {
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
