//! The order of the files of a rotated log.

use super::{LogError, LogPart};

impl LogPart {
    pub(super) fn previous(self) -> Self {
        Self { number: self.number.saturating_sub(1), ..self }
    }
}

/// The name of the file that holds the part before `file`.
pub(super) fn previous_file(file: &str) -> String {
    let numbered = file.rsplit_once('.').and_then(|(name, n)| Some((name, n.parse::<u32>().ok()?)));
    match numbered {
        Some((name, n)) if n > 0 && n < u32::MAX => format!("{name}.{}", n + 1),
        _ => format!("{file}.1"),
    }
}

/// The warning for a `part` whose previous part should be in `file` but isn't.
pub(super) fn missing_part_warning(part: LogPart, file: &str, error: Option<&LogError>) -> String {
    let because = match error {
        Some(LogError::Open { source, .. }) => format!("{file}: {source}"),
        Some(error) => error.to_string(),
        None => format!("{file} belongs to another log or is another part"),
    };
    format!(
        "this is part {} of a rotated log, and the part before it is missing ({because}); reading \
         starts here, so the machine lacks the earlier events and may decide differently than it \
         did. Put the older file back, or keep more files when rotating",
        part.number
    )
}

#[cfg(test)]
mod tests {
    use super::previous_file;

    #[test]
    fn the_previous_file_has_the_next_higher_number() {
        for (file, previous) in [
            ("log", "log.1"),
            ("log.1", "log.2"),
            ("a.2/log.9", "a.2/log.10"),
            ("log.jsonl", "log.jsonl.1"),
            ("log.0", "log.0.1"),
            ("log.x1", "log.x1.1"),
            ("log.99999999999", "log.99999999999.1"),
        ] {
            assert_eq!(previous_file(file), previous);
        }
    }
}
