//! Sizes in Kubernetes' format: `1Gi`, `500M`, `1048576`.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 8] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

impl Size {
    fn parse(text: &str) -> Option<Self> {
        let unit = UNITS.into_iter().find_map(|(unit, n)| Some((text.strip_suffix(unit)?, n)));
        let (number, unit) = unit.unwrap_or((text, 1));
        if !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return None;
        }

        // Exact: an f64 holds every whole number up to this limit.
        let bytes = number.parse::<f64>().ok()? * unit as f64;
        (bytes <= (1_u64 << f64::MANTISSA_DIGITS) as f64).then_some(Self(bytes as u64))
    }
}

impl fmt::Display for Size {
    /// In the largest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = UNITS[..4].iter().rev();
        let decimal = UNITS[4..].iter().rev();
        let fits = |(_, n): &&(&str, u64)| self.0 >= *n && self.0.is_multiple_of(*n);
        match binary.chain(decimal).find(fits) {
            Some((unit, n)) => write!(f, "{}{unit}", self.0 / n),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// A number or a quantity.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Bytes(u64),
            Quantity(String),
        }
        let refused = || D::Error::custom("expected a size, such as 1Gi or 500M");
        match Given::deserialize(from).map_err(|_| refused())? {
            Given::Bytes(bytes) => Ok(Self(bytes)),
            Given::Quantity(text) => Self::parse(&text).ok_or_else(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn quantities_are_read_and_written_as_kubernetes_does() {
        for (text, bytes, written) in [
            ("1Gi", 1 << 30, "1Gi"),
            ("1024Mi", 1 << 30, "1Gi"),
            ("1.5Gi", 3 << 29, "1536Mi"),
            ("500M", 500_000_000, "500M"),
            ("0", 0, "0"),
            ("1048577", 1_048_577, "1048577"),
        ] {
            assert_eq!(Size::parse(text), Some(Size(bytes)), "{text}");
            assert_eq!(Size(bytes).to_string(), written);
        }
        for text in ["", "Gi", "-1Gi", "1..5Gi", "1e3", "1 Gi", "1gb", "20000000Ti"] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
    }
}
