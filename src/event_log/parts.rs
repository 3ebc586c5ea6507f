//! The files of a rotated log: which one comes before which.

use super::{LogError, Part};

impl Part {
    /// The part before it.
    pub(super) fn before(self) -> Self {
        Self { number: self.number.saturating_sub(1), ..self }
    }
}

/// The name of the file that holds what comes before `file`.
pub(super) fn before(file: &str) -> String {
    let numbered = file.rsplit_once('.').and_then(|(name, n)| Some((name, n.parse::<u32>().ok()?)));
    match numbered {
        Some((name, n)) if n > 0 && n < u32::MAX => format!("{name}.{}", n + 1),
        _ => format!("{file}.1"),
    }
}

/// What to say where the part before `part` should be in `file`, and is not.
pub(super) fn missing(part: Part, file: &str, error: Option<&LogError>) -> String {
    let because = match error {
        Some(LogError::Open { source, .. }) => format!("{file}: {source}"),
        Some(error) => error.to_string(),
        None => format!("{file} is of another log, or of another part"),
    };
    format!(
        "this is part {} of a log that was rotated, and the part before it is missing ({because}); \
         reading starts in the middle, where the machine knows nothing of what came before and \
         decides otherwise than it did. Put the older part there, or keep more of them",
        part.number
    )
}

#[cfg(test)]
mod tests {
    use super::before;

    #[test]
    fn each_file_knows_the_one_before() {
        for (file, older) in [
            ("log", "log.1"),
            ("log.1", "log.2"),
            ("a.2/log.9", "a.2/log.10"),
            ("log.jsonl", "log.jsonl.1"),
            ("log.0", "log.0.1"),
            ("log.x1", "log.x1.1"),
            ("log.99999999999", "log.99999999999.1"),
        ] {
            assert_eq!(before(file), older);
        }
    }
}
