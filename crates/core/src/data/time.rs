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

    /// Reads an RFC 3339 time as API servers write it, e.g. `2026-05-01T10:00:00Z`; fractions and
    /// offsets are allowed. `None` for anything else and for times before 1970.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let b = text.as_bytes();
        let digits = |range: std::ops::Range<usize>| -> Option<i64> {
            let part = b.get(range)?;
            part.iter().all(u8::is_ascii_digit).then_some(())?;
            Some(part.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
        };
        let sep = |at: usize, byte: u8| (b.get(at) == Some(&byte)).then_some(());
        let year = digits(0..4)?;
        let month = digits(5..7)?;
        let day = digits(8..10)?;
        let hour = digits(11..13)?;
        let minute = digits(14..16)?;
        let second = digits(17..19)?;
        sep(4, b'-').and(sep(7, b'-')).and(sep(10, b'T')).and(sep(13, b':')).and(sep(16, b':'))?;
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let days_in_month = match month {
            4 | 6 | 9 | 11 => 30,
            2 => 28 + i64::from(leap),
            _ => 31,
        };
        let in_range = (1..=12).contains(&month)
            && (1..=days_in_month).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        in_range.then_some(())?;
        let mut rest = b.get(19..)?;
        let mut millis = 0;
        if let [b'.', fraction @ ..] = rest {
            let len = fraction.iter().take_while(|d| d.is_ascii_digit()).count();
            (len > 0).then_some(())?;
            for i in 0..3 {
                millis = millis * 10 + fraction[..len].get(i).map_or(0, |d| i64::from(d - b'0'));
            }
            rest = &fraction[len..];
        }
        let offset_minutes = match rest {
            b"Z" => 0,
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2]
                if [h1, h2, m1, m2].iter().all(|d| d.is_ascii_digit()) =>
            {
                let n = |tens: &u8, ones: &u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
                let h = n(h1, h2);
                let m = n(m1, m2);
                (h < 24 && m < 60).then_some(())?;
                if *sign == b'+' { h * 60 + m } else { -(h * 60 + m) }
            }
            _ => return None,
        };
        let days = days_since_epoch(year, month, day);
        let seconds = days * 86_400 + hour * 3600 + (minute - offset_minutes) * 60 + second;
        u64::try_from(seconds * 1000 + millis).ok().map(Self)
    }
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
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            "yesterday",
            "2026-11-21",
            "2026-11-21 09:19:32Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+0100",
            "1900-02-28T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-01T00:00:00+24:00",
        ] {
            assert_eq!(UnixMillis::parse_rfc3339(text), None, "{text}");
        }
    }
}
