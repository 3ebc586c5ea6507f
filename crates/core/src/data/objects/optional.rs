//! Fields that may be `null` or absent.

use serde::{Deserialize, Deserializer};

/// `null` leaves a field empty, as in Go.
pub fn null_as_empty<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// RFC 3339 text, `null` or absent. An unreadable time counts as absent. This is safe: wherever
/// throughline reads a time, a missing one means "do not act on it".
pub(crate) mod optional_time {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::data::time::UnixMillis;

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<UnixMillis>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<UnixMillis>, D::Error> {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(text.and_then(|t| UnixMillis::parse_rfc3339(&t)))
    }
}
