//! Durations in flags.

use jiff::fmt::friendly::SpanParser;

/// Parses a duration such as `100ms` or `1m30s`.
pub(super) fn duration_ms(text: &str) -> Result<u64, String> {
    let parsed = SpanParser::new().parse_unsigned_duration(text);
    let duration =
        parsed.map_err(|_| "expected a number and a unit, for example 100ms or 1m30s")?;
    u64::try_from(duration.as_millis()).map_err(|_| "the duration is too long".to_owned())
}
