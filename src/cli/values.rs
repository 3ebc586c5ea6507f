//! Parses the values of flags.

use jiff::fmt::friendly::SpanParser;
use throughline::core::data::ids::{ClusterName, NamespacedName};
use throughline::core::data::time::UnixMillis;
use throughline::inspect::log::LogMoment;

/// Parses a duration such as `100ms` or `1m30s`.
pub(super) fn duration_ms(text: &str) -> Result<u64, String> {
    let parsed = SpanParser::new().parse_unsigned_duration(text);
    let duration =
        parsed.map_err(|_| "expected a number and a unit, for example 100ms or 1m30s")?;
    u64::try_from(duration.as_millis()).map_err(|_| "the duration is too long".to_owned())
}

/// Parses a time, or an offset such as `+90s`.
pub(super) fn moment(text: &str) -> Result<LogMoment, String> {
    if let Some(offset) = text.strip_prefix('+') {
        return duration_ms(offset).map(LogMoment::Offset);
    }
    UnixMillis::parse_rfc3339(text).map(LogMoment::Time).ok_or_else(|| {
        "expected a time such as 2026-11-21T09:20:13Z or an offset such as +90s".to_owned()
    })
}

pub(super) fn cluster_name(name: &str) -> Result<ClusterName, String> {
    match name {
        "" => Err("expected the name of a cluster".to_owned()),
        name => Ok(ClusterName::from(name)),
    }
}

/// Parses `NAMESPACE/NAME`.
pub(super) fn object_key(text: &str) -> Result<NamespacedName, String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok(NamespacedName::new(namespace, name))
        }
        _ => Err("expected NAMESPACE/NAME, for example default/home-lab".to_owned()),
    }
}
