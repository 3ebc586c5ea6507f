//! Time. The machine takes the current time from each event.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// 2000-01-01. An earlier time is an error.
    pub const EARLIEST: Self = Self(946_684_800_000);
    /// 2200-01-01. A later time is an error.
    pub const LATEST: Self = Self(7_258_118_400_000);
    /// Later than any time: a saturated deadline is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// [`Self::NEVER`] if the sum is too large.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// The milliseconds since `earlier`; 0 when that is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads an RFC 3339 time as Kubernetes does, e.g. `2026-05-01T10:00:00Z`. `None` for anything
    /// else and for times before 1970.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        u64::try_from(go_rfc3339_millis(text)?).ok().map(Self)
    }
}

/// The milliseconds since 1970 of a text that Go's `time.Parse(time.RFC3339, …)` accepts. It is more
/// lenient than the RFC: an hour of one digit, a comma before the fraction, offsets up to 24:60
/// (`parse` in `time/format.go`).
pub(crate) fn go_rfc3339_millis(text: &str) -> Option<i64> {
    let text = text.as_bytes();
    let (century, text) = two_digits(text)?;
    let (year, text) = two_digits(text)?;
    let (month, text) = two_digits(text.strip_prefix(b"-")?)?;
    let (day, text) = two_digits(text.strip_prefix(b"-")?)?;
    let text = text.strip_prefix(b"T")?;
    let (hour, text) = two_digits(text).or_else(|| one_digit(text))?;
    let (minute, text) = two_digits(text.strip_prefix(b":")?)?;
    let (second, text) = two_digits(text.strip_prefix(b":")?)?;

    let is_leap = if year == 0 { century % 4 == 0 } else { year % 4 == 0 };
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }

    let (fraction, zone) = match text {
        [b'.' | b',', rest @ ..] => {
            let len = rest.iter().position(|b| !b.is_ascii_digit()).filter(|len| *len > 0)?;
            rest.split_at(len)
        }
        _ => (&[][..], text),
    };
    let digit = |at| fraction.get(at).map_or(0, |digit: &u8| i64::from(digit - b'0'));
    let millis = digit(0) * 100 + digit(1) * 10 + digit(2);

    let offset_minutes = match zone {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), offset @ ..] => {
            let (hours, offset) = two_digits(offset)?;
            let (minutes, rest) = two_digits(offset.strip_prefix(b":")?)?;
            (hours <= 24 && minutes <= 60 && rest.is_empty()).then_some(())?;
            let offset = hours * 60 + minutes;
            if *sign == b'+' { offset } else { -offset }
        }
        _ => return None,
    };
    let minutes = (days_since_epoch(century * 100 + year, month, day) * 24 + hour) * 60 + minute;
    Some(((minutes - offset_minutes) * 60 + second) * 1_000 + millis)
}

fn two_digits(text: &[u8]) -> Option<(i64, &[u8])> {
    let (tens, text) = one_digit(text)?;
    let (ones, text) = one_digit(text)?;
    Some((tens * 10 + ones, text))
}

fn one_digit(text: &[u8]) -> Option<(i64, &[u8])> {
    let (first, rest) = text.split_first()?;
    first.is_ascii_digit().then(|| (i64::from(first - b'0'), rest))
}

/// Howard Hinnant's `days_from_civil`, for the years 0 to 9999.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year_from_march = if month <= 2 { year - 1 } else { year };
    let era = year_from_march.div_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;

    let year_of_era = year_from_march.rem_euclid(400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl fmt::Display for UnixMillis {
    /// RFC 3339 in UTC with milliseconds, e.g. `2026-11-21T09:19:32.865Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0 / 86_400_000;
        let ms = self.0 % 86_400_000;
        // `civil_from_days`, the inverse of `days_since_epoch`.
        let z = days + 719_468;
        let era = z / 146_097;
        let doe = z % 146_097;
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + u64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            ms / 3_600_000,
            ms / 60_000 % 60,
            ms / 1000 % 60,
            ms % 1000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of liveness have the texts that Go refuses.
    #[test]
    fn reads_and_prints_rfc3339() {
        for (text, ms, printed) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00.000Z"),
            ("2026-11-21T09:19:32Z", 1_795_252_772_000, "2026-11-21T09:19:32.000Z"),
            ("2026-11-21T10:19:32.8659+01:00", 1_795_252_772_865, "2026-11-21T09:19:32.865Z"),
            ("2024-02-29T23:59:59.5Z", 1_709_251_199_500, "2024-02-29T23:59:59.500Z"),
            ("2000-03-01T00:00:00-00:30", 951_870_600_000, "2000-03-01T00:30:00.000Z"),
        ] {
            let time = UnixMillis::parse_rfc3339(text).unwrap();
            assert_eq!((time, time.to_string()), (UnixMillis(ms), printed.into()), "{text}");
        }
        assert_eq!(UnixMillis::parse_rfc3339("1900-02-28T00:00:00Z"), None, "before 1970");
    }
}
