//! Parses a scrape strictly: every sample belongs to a family that is described once, and no series
//! occurs twice.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Scraped {
    /// The type of each family, by name.
    pub(crate) families: BTreeMap<String, String>,
    /// Values by series, labels in the order of the scrape.
    pub(crate) series: BTreeMap<String, f64>,
}

impl Scraped {
    /// The value of a series, written as in the scrape.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let name = series.split('{').next().unwrap();
        let near: Vec<_> = self.series.keys().filter(|s| s.starts_with(name)).collect();
        *self.series.get(series).unwrap_or_else(|| panic!("no {series}, but {near:#?}"))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.series.keys().any(|s| s.split('{').next() == Some(name))
    }
}

/// `open`: in OpenMetrics a counter's samples have a suffix that its family has not.
pub(crate) fn read(text: &str, open: bool) -> Scraped {
    assert!(text.ends_with('\n'));
    assert_eq!(open, text.ends_with("\n# EOF\n"), "only OpenMetrics has an end marker");
    assert_eq!(usize::from(open), text.matches("# EOF").count());
    let mut scraped = Scraped::default();
    let (mut helped, mut family, mut kind) = (BTreeSet::new(), String::new(), String::new());
    let mut last_le = f64::INFINITY;
    for line in text.lines().filter(|l| *l != "# EOF") {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, about) = help.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()), "{name} is described twice");
            assert!(about.ends_with('.') && !about.ends_with(".."), "{line}");
            name.clone_into(&mut family);
        } else if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, of) = described.split_once(' ').unwrap();
            assert_eq!(name, family, "TYPE follows HELP");
            assert!(["counter", "gauge", "histogram"].contains(&of), "{line}");
            of.clone_into(&mut kind);
            let old = scraped.families.insert(name.to_owned(), of.to_owned());
            assert_eq!(old, None, "{name} is described twice");
            let total = name.ends_with("_total");
            assert_eq!(total, !open && of == "counter", "{line}");
        } else {
            assert!(!line.starts_with('#'), "{line}");
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let suffix = name.strip_prefix(&*family).unwrap_or_else(|| panic!("{line}: {family}"));
            let suffixes: &[&str] = match &*kind {
                "counter" if open => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line} is not a sample of a {kind}");
            if let Some(le) = labels.strip_prefix("le=\"") {
                let le: f64 = le.split('"').next().unwrap().replace("+Inf", "inf").parse().unwrap();
                assert!(last_le.is_infinite() || le > last_le, "{line}: buckets rise");
                last_le = le;
            }
            assert!(value >= 0.0 || kind == "gauge", "{line}");
            let old = scraped.series.insert(series.to_owned(), value);
            assert_eq!(old, None, "{series} occurs twice");
        }
    }
    for family in scraped.families.keys() {
        let mut samples = scraped.series.keys().filter(|s| s.starts_with(&**family));
        assert!(samples.next().is_some(), "{family} has no sample");
    }
    scraped
}
