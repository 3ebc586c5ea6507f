//! Label selectors, as in `labelSelector=app=web,tier in (a,b),!old`.

use serde_json::Value;

use super::status::Failure;
use super::store::ServedObject;

/// All requirements must hold. Without any, every object matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    /// Also holds without the label.
    NotIn(String, Vec<String>),
}

impl LabelSelector {
    /// # Errors
    /// 400: the text is not a selector.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut depth = 0;
        let parts = text.split(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        });
        let all: Option<Vec<_>> = parts.map(|part| requirement(part.trim())).collect();
        let unable = || Failure::bad_request(format!("unable to parse requirement: {text:?}"));
        all.map(Self).ok_or_else(unable)
    }

    pub(super) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, object: &ServedObject) -> bool {
        self.0.iter().all(|requirement| requirement.matches(|key| label(object, key)))
    }
}

fn label<'a>(object: &'a ServedObject, key: &str) -> Option<&'a str> {
    match object {
        ServedObject::Sim(object) => object.meta.labels.get(key),
        ServedObject::Raw(object) => object["metadata"]["labels"].get(key).and_then(Value::as_str),
    }
}

impl Requirement {
    fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let is_one_of = |key: &str, values: &[String]| {
            label(key).is_some_and(|value| values.iter().any(|v| v == value))
        };
        match self {
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
            Requirement::In(key, values) => is_one_of(key, values),
            Requirement::NotIn(key, values) => !is_one_of(key, values),
        }
    }
}

fn requirement(text: &str) -> Option<Requirement> {
    let key = |text: &str| {
        let text = text.trim();
        let is_key = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        (!text.is_empty() && text.chars().all(is_key)).then(|| text.to_owned())
    };
    if let Some(absent) = text.strip_prefix('!') {
        return Some(Requirement::Absent(key(absent)?));
    }
    if let Some((left, set)) = text.split_once('(') {
        let values = set.strip_suffix(')')?.split(',').map(|v| v.trim().to_owned()).collect();
        let left = left.trim();
        if let Some(left) = left.strip_suffix(" notin") {
            return Some(Requirement::NotIn(key(left)?, values));
        }
        return Some(Requirement::In(key(left.strip_suffix(" in")?)?, values));
    }
    for (operator, is_equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((left, value)) = text.split_once(operator) {
            let key = key(left)?;
            let values = vec![value.trim().to_owned()];
            return Some(match is_equal {
                true => Requirement::In(key, values),
                false => Requirement::NotIn(key, values),
            });
        }
    }
    Some(Requirement::Exists(key(text)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select_as_on_an_api_server() {
        let labels = json!({"a.b/c": "1", "d": "", "tier": "web"});
        let object = ServedObject::Raw(Arc::new(json!({"metadata": {"labels": labels}})));
        for (selector, selects) in [
            ("", true),
            ("a.b/c=1", true),
            ("a.b/c==1", true),
            ("a.b/c=2", false),
            ("a.b/c!=2", true),
            ("x!=2", true),
            ("x=", false),
            ("d=", true),
            ("d", true),
            ("!d", false),
            ("!x", true),
            ("tier in (db, web)", true),
            ("tier in (db)", false),
            ("tier notin (db,api),d", true),
            ("x notin (db)", true),
            ("tier=web,a.b/c=2", false),
        ] {
            assert_eq!(
                LabelSelector::parse(selector).unwrap().matches(&object),
                selects,
                "{selector}"
            );
        }
        for broken in ["a b", "tier in (a", "=x", "a,,b", "a inn (b)"] {
            assert!(LabelSelector::parse(broken).is_err(), "{broken}");
        }
    }
}
