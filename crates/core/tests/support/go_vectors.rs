//! Questions with the answers of a Go program, one a line; `tests/vectors` has them.

use serde::Deserialize;

/// Puts the question of each line, of which there must be at least `count`, and lists the failures.
pub(crate) fn check<T: for<'de> Deserialize<'de>>(
    lines: &str,
    count: usize,
    answers: impl Fn(T) -> Result<(), String>,
) {
    let mut failed = String::new();
    for (i, line) in lines.lines().enumerate() {
        let vector = serde_json::from_str(line).unwrap_or_else(|e| panic!("line {}: {e}", i + 1));
        if let Err(error) = answers(vector) {
            failed += &format!("line {}: {error}\n", i + 1);
        }
    }
    assert!(failed.is_empty(), "\n{failed}");
    assert!(lines.lines().count() >= count, "fewer than {count} vectors");
}
