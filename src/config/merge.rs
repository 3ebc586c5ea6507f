//! Merges values from a file and from flags over the defaults, one key at a time. The keys and
//! their types come from the Rust types themselves: a key exists if an example value has it, and a
//! value fits if serde accepts it in that place. So each value gets its own error, with its origin.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::problem::{ConfigProblem, nearest};

/// The key in an example that stands for any key.
pub(super) const ANY: &str = "*";

/// The path from the root to a value.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyPath(Vec<PathSegment>);

#[derive(Clone, Debug)]
enum PathSegment {
    Key(String),
    Index(usize),
}

impl KeyPath {
    pub(super) fn key(&self, key: &str) -> Self {
        self.join(PathSegment::Key(key.to_owned()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.join(PathSegment::Index(index))
    }

    fn join(&self, segment: PathSegment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                PathSegment::Index(index) => write!(f, "[{index}]")?,
                PathSegment::Key(key) if i == 0 => f.write_str(key)?,
                PathSegment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// The fields of a `T`, type-checked one by one as they are merged.
pub(super) struct MergedValues {
    /// A `T` in which every key is present.
    example: Rc<Value>,
    /// The result so far; always a valid `T`.
    tree: Value,
    /// The file or flag that set each key.
    origins: BTreeMap<String, String>,
    pub(super) problems: Vec<ConfigProblem>,
    /// False if a file could not be read.
    pub(super) is_complete: bool,
    check_type: fn(Value) -> Result<(), String>,
}

impl MergedValues {
    /// Starts from `base`.
    pub(super) fn new<T: Serialize + DeserializeOwned>(base: &T, example: Value) -> Self {
        Self {
            example: Rc::new(example),
            tree: serde_json::to_value(base).unwrap_or_default(),
            origins: BTreeMap::new(),
            problems: Vec::new(),
            is_complete: true,
            check_type: |value| {
                serde_json::from_value::<T>(value).map(drop).map_err(|error| error.to_string())
            },
        }
    }

    pub(super) fn finish<T: DeserializeOwned>(&self) -> Result<T, ConfigProblem> {
        serde_json::from_value(self.tree.clone())
            .map_err(|error| ConfigProblem::new("the configuration", "", error.to_string()))
    }

    /// The file or flag that set the value at `key`, or the value that contains it.
    pub(super) fn origin(&self, key: &str) -> Option<&str> {
        let is_parent =
            |name: &str| key.strip_prefix(name).is_some_and(|r| r.starts_with(['.', '[']));
        let found = self.origins.get_key_value(key).or_else(|| {
            let parents = self.origins.iter().filter(|(name, _)| is_parent(name));
            parents.max_by_key(|(name, _)| name.len())
        });
        found.map(|(_, origin)| origin.as_str())
    }

    pub(super) fn refuse(&mut self, origin: &str, key: impl fmt::Display, message: String) {
        self.problems.push(ConfigProblem::new(origin, key.to_string(), message));
    }

    /// Merges a whole document.
    pub(super) fn merge_document(&mut self, origin: &str, value: &Value) {
        let example = Rc::clone(&self.example);
        self.merge(origin, &KeyPath::default(), &example, value);
    }

    /// Sets one value at a key in the notation that people use: `touch.windowMs`,
    /// `clusters[0].context`.
    pub(super) fn set(&mut self, origin: &str, key: &str, value: &Value) {
        let example = Rc::clone(&self.example);
        let (mut path, mut here, mut rest) = (KeyPath::default(), &*example, key);
        while !rest.is_empty() {
            if let Some(any) = here.get(ANY) {
                (path, here, rest) = (path.key(rest), any, "");
            } else if let Some((index, after)) = parse_index(rest) {
                let length = self.get(&path).and_then(Value::as_array).map_or(0, Vec::len);
                let Some(item) = here.get(0).filter(|item| item.is_object() && index <= length)
                else {
                    let message = "the list has no such item".to_owned();
                    return self.refuse(origin, path.index(index), message);
                };
                path = path.index(index);
                if index == length {
                    self.put(&path, empty_item());
                }
                (here, rest) = (item, after);
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                let Some(next) = here.get(name) else {
                    return self.refuse_unknown_key(origin, &path, name, here);
                };
                (path, here, rest) = (path.key(name), next, after);
            }
            rest = rest.strip_prefix('.').unwrap_or(rest);
        }
        self.merge(origin, &path, here, value);
    }

    /// The merged value at `key`, of which each part is a name.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        key.split('.').try_fold(&self.tree, |here, name| here.get(name))
    }

    /// The number of items in the list at `key`.
    pub(super) fn list_len(&self, key: &str) -> usize {
        self.tree.get(key).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Empties the list at `key`.
    pub(super) fn clear_list(&mut self, key: &str) {
        self.put(&KeyPath::default().key(key), json!([]));
        self.origins.retain(|name, _| name.split('[').next() != Some(key));
    }

    fn merge(&mut self, origin: &str, path: &KeyPath, example: &Value, value: &Value) {
        match (example, value) {
            // A section whose keys are all commented out sets nothing.
            (Value::Object(_), Value::Null) => {}
            (Value::Object(known), Value::Object(given)) => {
                if self.get(path).is_none_or(Value::is_null) {
                    // `milo: {}` switches a section on.
                    self.put(path, json!({}));
                    self.origins.insert(path.to_string(), origin.to_owned());
                }
                for (key, value) in given {
                    match known.get(ANY).or_else(|| known.get(key)) {
                        Some(example) => self.merge(origin, &path.key(key), example, value),
                        None => self.refuse_unknown_key(origin, path, key, example),
                    }
                }
            }
            (Value::Object(known), _) => {
                let accepted = match known.contains_key(ANY) {
                    true => "keys and values".to_owned(),
                    false => format!("the keys {}", join_keys(known)),
                };
                let message = format!("found {}; accepted: {accepted}", display(value));
                self.refuse(origin, path, message);
            }
            (Value::Array(items), _) if items.first().is_some_and(Value::is_object) => {
                self.merge_list(origin, path, &items[0], value);
            }
            _ => self.merge_leaf(origin, path, value),
        }
    }

    /// Replaces a list whose items have keys.
    fn merge_list(&mut self, origin: &str, path: &KeyPath, example: &Value, value: &Value) {
        match value {
            Value::Null => {}
            Value::Array(given) => {
                self.put(path, json!([]));
                for (i, value) in given.iter().enumerate() {
                    let path = path.index(i);
                    self.put(&path, empty_item());
                    self.origins.insert(path.to_string(), origin.to_owned());
                    self.merge(origin, &path, example, value);
                }
            }
            _ => {
                let message = format!("found {}; accepted: a list", display(value));
                self.refuse(origin, path, message);
            }
        }
    }

    fn merge_leaf(&mut self, origin: &str, path: &KeyPath, value: &Value) {
        let Err(error) = self.check_type_at(path, value.clone()) else {
            self.origins.insert(path.to_string(), origin.to_owned());
            return self.put(path, value.clone());
        };
        let bad_items: Vec<usize> = match value {
            Value::Array(items) => {
                let fits = |item: &Value| self.check_type_at(path, json!([item])).is_ok();
                (0..items.len()).filter(|i| !fits(&items[*i])).collect()
            }
            _ => Vec::new(),
        };
        if bad_items.is_empty() {
            let accepted = self.accepted_at(path, &error);
            let message = format!("found {}; accepted: {accepted}", display(value));
            return self.refuse(origin, path, message);
        }
        for i in bad_items {
            let error = self.check_type_at(path, json!([value[i]])).err().unwrap_or_default();
            let accepted = self.accepted_item(path).unwrap_or_else(|| accepted_type(path, &error));
            let message = format!("found {}; accepted: {accepted}", display(&value[i]));
            self.refuse(origin, path.index(i), message);
        }
    }

    /// Whether serde accepts the value in this place; otherwise serde's message.
    fn check_type_at(&self, path: &KeyPath, value: Value) -> Result<(), String> {
        let wrap = |inner: Value, segment: &PathSegment| match (segment, inner) {
            (PathSegment::Key(key), inner) => json!({ key: inner }),
            (PathSegment::Index(_), Value::Object(keys)) => {
                let mut item = empty_item();
                if let Some(item) = item.as_object_mut() {
                    item.extend(keys);
                }
                json!([item])
            }
            (PathSegment::Index(_), inner) => json!([inner]),
        };
        (self.check_type)(path.0.iter().rev().fold(value, wrap))
    }

    /// What this place accepts, given serde's message about a value that does not fit.
    fn accepted_at(&self, path: &KeyPath, error: &str) -> String {
        // serde answers an empty string with an enum's variants or a number's type.
        match self.check_type_at(path, json!("")) {
            Err(probe) if probe.contains("expected a sequence") => {
                self.accepted_item(path).map_or("a list".to_owned(), |item| {
                    match path.to_string() {
                        path if path.ends_with("Ms") => "a list of milliseconds".to_owned(),
                        _ => format!("a list of {}", item.trim_start_matches("one of ")),
                    }
                })
            }
            Err(probe) => accepted_type(path, &probe),
            Ok(()) => accepted_type(path, error),
        }
    }

    /// What a list in this place accepts as an item.
    fn accepted_item(&self, path: &KeyPath) -> Option<String> {
        self.check_type_at(path, json!([""])).err().map(|probe| accepted_type(path, &probe))
    }

    fn get(&self, path: &KeyPath) -> Option<&Value> {
        path.0.iter().try_fold(&self.tree, |here, segment| match segment {
            PathSegment::Key(key) => here.get(key),
            PathSegment::Index(index) => here.get(index),
        })
    }

    fn put(&mut self, path: &KeyPath, value: Value) {
        let mut here = &mut self.tree;
        for segment in &path.0 {
            if let PathSegment::Key(_) = segment
                && here.is_null()
            {
                // A section that is not there by default.
                *here = json!({});
            }
            here = match (segment, here) {
                (PathSegment::Key(key), Value::Object(keys)) => {
                    keys.entry(key).or_insert(Value::Null)
                }
                (PathSegment::Index(index), Value::Array(items)) => {
                    if items.len() <= *index {
                        items.resize(index + 1, Value::Null);
                    }
                    &mut items[*index]
                }
                // Every path was checked against the example before.
                (_, here) => here,
            };
        }
        *here = value;
    }

    fn refuse_unknown_key(&mut self, origin: &str, path: &KeyPath, key: &str, example: &Value) {
        let Some(known) = example.as_object() else {
            let message = format!("found {key:?} below a key that takes a single value");
            return self.refuse(origin, path, message);
        };
        let suggestion = nearest(key, known.keys()).map(ToOwned::to_owned);
        let suggestion =
            suggestion.or_else(|| find_elsewhere(&self.example, key, &KeyPath::default()));
        let suggestion =
            suggestion.map_or(String::new(), |name| format!(" (did you mean {name}?)"));
        let message = format!("unknown key{suggestion}; accepted: {}", join_keys(known));
        self.refuse(origin, path.key(key), message);
    }
}

/// A list item in which nothing is set yet.
fn empty_item() -> Value {
    json!({ "name": "", "roles": [] })
}

/// Splits `[1].rest` into the index and the rest.
fn parse_index(text: &str) -> Option<(usize, &str)> {
    let (index, rest) = text.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

fn join_keys(known: &Map<String, Value>) -> String {
    known.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The full path of a key that was written under the wrong parent.
fn find_elsewhere(example: &Value, key: &str, path: &KeyPath) -> Option<String> {
    let known = example.as_object()?;
    if known.contains_key(key) {
        return Some(path.key(key).to_string());
    }
    known.iter().find_map(|(name, below)| find_elsewhere(below, key, &path.key(name)))
}

/// A value as JSON, shortened for a message.
fn display(value: &Value) -> String {
    const LENGTH_MAX: usize = 60;
    if value.is_null() {
        return "no value".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Translates the type that serde expected into words for people.
fn accepted_type(path: &KeyPath, error: &str) -> String {
    let key = path.0.iter().rev().find_map(|segment| match segment {
        PathSegment::Key(key) => Some(key.as_str()),
        PathSegment::Index(_) => None,
    });
    let number = match key {
        Some(key) if key.ends_with("Ms") => "milliseconds, a whole number",
        Some(key) if key.ends_with("Bytes") => "bytes, a whole number",
        _ => "a whole number",
    };
    match error.split_once(", expected ").map(|(_, expected)| expected) {
        Some("u64" | "usize") => number.to_owned(),
        Some("u16") => format!("{number} up to {}", u16::MAX),
        Some("u32") => format!("{number} up to {}", u32::MAX),
        Some("a boolean") => "true or false".to_owned(),
        Some("a string") => {
            "a string (in quotes if it looks like a number or a boolean)".to_owned()
        }
        Some("path string") => "a path".to_owned(),
        Some(other) => other.replace('`', ""),
        None if error.contains("socket address") => {
            "an IP address and a port, such as 127.0.0.1:8080 or [::]:8080".to_owned()
        }
        None => error.to_owned(),
    }
}
