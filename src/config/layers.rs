//! Values from a file and from flags, laid over the defaults one by one. What the keys are and what
//! each takes is asked of the types themselves: a key exists when an example of the type has it,
//! and a value fits when serde takes it in its place.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::problem::{Problem, nearest};

/// In an example, the key that stands for any key.
pub(super) const ANY: &str = "*";

/// The way to a value from the root.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyPath(Vec<Step>);

#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

impl KeyPath {
    pub(super) fn key(&self, key: &str) -> Self {
        self.and(Step::Key(key.to_owned()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.and(Step::Index(index))
    }

    fn and(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if i == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// Values of a `T`, checked one by one as they are laid over what is there.
pub(super) struct Layers {
    /// A `T` with every key that there is.
    example: Rc<Value>,
    /// What was laid so far; always a `T`.
    tree: Value,
    /// Where each value was said, by its key.
    origins: BTreeMap<String, String>,
    /// What did not fit.
    pub(super) problems: Vec<Problem>,
    /// No source of values is missing.
    pub(super) complete: bool,
    fits: fn(Value) -> Result<(), String>,
}

impl Layers {
    /// `base` with nothing laid over it yet.
    pub(super) fn new<T: Serialize + DeserializeOwned>(base: &T, example: Value) -> Self {
        Self {
            example: Rc::new(example),
            tree: serde_json::to_value(base).unwrap_or_default(),
            origins: BTreeMap::new(),
            problems: Vec::new(),
            complete: true,
            fits: |value| {
                serde_json::from_value::<T>(value).map(drop).map_err(|error| error.to_string())
            },
        }
    }

    /// Everything that was laid, as a whole.
    pub(super) fn finish<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_value(self.tree.clone())
            .map_err(|error| Problem::new("the configuration", "", error.to_string()))
    }

    /// Where the value at `key`, or what it is a part of, was said.
    pub(super) fn origin(&self, key: &str) -> Option<&str> {
        let part = |name: &str| key.strip_prefix(name).is_some_and(|r| r.starts_with(['.', '[']));
        let found = self.origins.get_key_value(key).or_else(|| {
            self.origins.iter().filter(|(name, _)| part(name)).max_by_key(|(name, _)| name.len())
        });
        found.map(|(_, origin)| origin.as_str())
    }

    pub(super) fn refuse(&mut self, origin: &str, key: impl fmt::Display, message: String) {
        self.problems.push(Problem::new(origin, key.to_string(), message));
    }

    /// Lays a whole tree of values.
    pub(super) fn lay_tree(&mut self, origin: &str, value: &Value) {
        let example = Rc::clone(&self.example);
        self.lay(origin, &KeyPath::default(), &example, value);
    }

    /// Lays one value at a key as a person writes it: `touch.windowMs`, `clusters[0].context`.
    pub(super) fn lay_at(&mut self, origin: &str, key: &str, value: &Value) {
        let example = Rc::clone(&self.example);
        let (mut path, mut here, mut rest) = (KeyPath::default(), &*example, key);
        while !rest.is_empty() {
            if let Some(any) = here.get(ANY) {
                (path, here, rest) = (path.key(rest), any, "");
            } else if let Some((index, after)) = index(rest) {
                let length = self.at(&path).and_then(Value::as_array).map_or(0, Vec::len);
                let Some(item) = here.get(0).filter(|item| item.is_object() && index <= length)
                else {
                    let message = "there is no such item here".to_owned();
                    return self.refuse(origin, path.index(index), message);
                };
                path = path.index(index);
                if index == length {
                    self.put(&path, blank());
                }
                (here, rest) = (item, after);
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                let Some(next) = here.get(name) else {
                    return self.unknown(origin, &path, name, here);
                };
                (path, here, rest) = (path.key(name), next, after);
            }
            rest = rest.strip_prefix('.').unwrap_or(rest);
        }
        self.lay(origin, &path, here, value);
    }

    /// How many items the list at `key` has.
    pub(super) fn length(&self, key: &str) -> usize {
        self.tree.get(key).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Takes all items out of the list at `key`.
    pub(super) fn clear(&mut self, key: &str) {
        self.put(&KeyPath::default().key(key), json!([]));
        self.origins.retain(|name, _| name.split('[').next() != Some(key));
    }

    fn lay(&mut self, origin: &str, path: &KeyPath, example: &Value, value: &Value) {
        match (example, value) {
            // A key whose whole content is commented out says nothing.
            (Value::Object(_), Value::Null) => {}
            (Value::Object(known), Value::Object(given)) => {
                for (key, value) in given {
                    match known.get(ANY).or_else(|| known.get(key)) {
                        Some(example) => self.lay(origin, &path.key(key), example, value),
                        None => self.unknown(origin, path, key, example),
                    }
                }
            }
            (Value::Object(known), _) => {
                let accepted = match known.contains_key(ANY) {
                    true => "keys and values".to_owned(),
                    false => format!("the keys {}", list(known)),
                };
                self.refuse(origin, path, format!("found {}; accepted: {accepted}", shown(value)));
            }
            (Value::Array(items), _) if items.first().is_some_and(Value::is_object) => {
                self.lay_list(origin, path, &items[0], value);
            }
            _ => self.lay_leaf(origin, path, value),
        }
    }

    /// A list of things with keys: replaces the one that is there.
    fn lay_list(&mut self, origin: &str, path: &KeyPath, example: &Value, value: &Value) {
        match value {
            Value::Null => {}
            Value::Array(given) => {
                self.put(path, json!([]));
                for (i, value) in given.iter().enumerate() {
                    let path = path.index(i);
                    self.put(&path, blank());
                    self.origins.insert(path.to_string(), origin.to_owned());
                    self.lay(origin, &path, example, value);
                }
            }
            _ => self.refuse(origin, path, format!("found {}; accepted: a list", shown(value))),
        }
    }

    fn lay_leaf(&mut self, origin: &str, path: &KeyPath, value: &Value) {
        let Err(error) = self.fit(path, value.clone()) else {
            self.origins.insert(path.to_string(), origin.to_owned());
            return self.put(path, value.clone());
        };
        let bad: Vec<usize> = match value {
            Value::Array(all) => {
                let fits = |one: &Value| self.fit(path, json!([one])).is_ok();
                (0..all.len()).filter(|i| !fits(&all[*i])).collect()
            }
            _ => Vec::new(),
        };
        if bad.is_empty() {
            let message = format!("found {}; accepted: {}", shown(value), self.takes(path, &error));
            return self.refuse(origin, path, message);
        }
        for i in bad {
            let error = self.fit(path, json!([value[i]])).err().unwrap_or_default();
            let takes = self.element(path).unwrap_or_else(|| plain_words(path, &error));
            let message = format!("found {}; accepted: {takes}", shown(&value[i]));
            self.refuse(origin, path.index(i), message);
        }
    }

    /// Whether serde takes the value in this place; if not, its words.
    fn fit(&self, path: &KeyPath, value: Value) -> Result<(), String> {
        let around = |inner: Value, step: &Step| match (step, inner) {
            (Step::Key(key), inner) => json!({ key: inner }),
            (Step::Index(_), Value::Object(keys)) => {
                let mut item = blank();
                if let Some(item) = item.as_object_mut() {
                    item.extend(keys);
                }
                json!([item])
            }
            (Step::Index(_), inner) => json!([inner]),
        };
        (self.fits)(path.0.iter().rev().fold(value, around))
    }

    /// What this place takes, given what serde said to a value that does not fit.
    fn takes(&self, path: &KeyPath, error: &str) -> String {
        // To an empty text an enum answers with its words, a number with its type.
        match self.fit(path, json!("")) {
            Err(probe) if probe.contains("expected a sequence") => {
                self.element(path).map_or("a list".to_owned(), |element| match path.to_string() {
                    path if path.ends_with("Ms") => "a list of milliseconds".to_owned(),
                    _ => format!("a list of {}", element.trim_start_matches("one of ")),
                })
            }
            Err(probe) => plain_words(path, &probe),
            Ok(()) => plain_words(path, error),
        }
    }

    /// What a list in this place takes as its element.
    fn element(&self, path: &KeyPath) -> Option<String> {
        self.fit(path, json!([""])).err().map(|probe| plain_words(path, &probe))
    }

    fn at(&self, path: &KeyPath) -> Option<&Value> {
        path.0.iter().try_fold(&self.tree, |here, step| match step {
            Step::Key(key) => here.get(key),
            Step::Index(index) => here.get(index),
        })
    }

    fn put(&mut self, path: &KeyPath, value: Value) {
        let mut here = &mut self.tree;
        for step in &path.0 {
            here = match (step, here) {
                (Step::Key(key), Value::Object(keys)) => keys.entry(key).or_insert(Value::Null),
                (Step::Index(index), Value::Array(items)) => {
                    if items.len() <= *index {
                        items.resize(index + 1, Value::Null);
                    }
                    &mut items[*index]
                }
                // Every way was checked against the example before.
                (_, here) => here,
            };
        }
        *here = value;
    }

    fn unknown(&mut self, origin: &str, path: &KeyPath, key: &str, example: &Value) {
        let Some(known) = example.as_object() else {
            let message = format!("{key:?} is looked for, and there are no keys here");
            return self.refuse(origin, path, message);
        };
        let meant = nearest(key, known.keys()).map(ToOwned::to_owned);
        let meant = meant.or_else(|| elsewhere(&self.example, key, &KeyPath::default()));
        let meant = meant.map_or(String::new(), |meant| format!(" (did you mean {meant}?)"));
        let message = format!("unknown key{meant}; accepted here: {}", list(known));
        self.refuse(origin, path.key(key), message);
    }
}

/// An item of a list of which nothing was said yet.
fn blank() -> Value {
    json!({ "name": "", "roles": [] })
}

/// `[1]` at the start, and what follows.
fn index(text: &str) -> Option<(usize, &str)> {
    let (index, rest) = text.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

fn list(known: &Map<String, Value>) -> String {
    known.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The place of a key that stands under a wrong parent.
fn elsewhere(example: &Value, key: &str, path: &KeyPath) -> Option<String> {
    let known = example.as_object()?;
    if known.contains_key(key) {
        return Some(path.key(key).to_string());
    }
    known.iter().find_map(|(name, below)| elsewhere(below, key, &path.key(name)))
}

/// A value as it is told: JSON, not at length.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    if value.is_null() {
        return "nothing".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// serde's words for what it expected, as a person would put it.
fn plain_words(path: &KeyPath, error: &str) -> String {
    let number = match path.0.iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(key.as_str()),
        Step::Index(_) => None,
    }) {
        Some(key) if key.ends_with("Ms") => "milliseconds, a whole number",
        Some(key) if key.ends_with("Bytes") => "bytes, a whole number",
        _ => "a whole number",
    };
    match error.split_once(", expected ").map(|(_, expected)| expected) {
        Some("u64" | "usize") => number.to_owned(),
        Some("u32") => format!("{number} up to {}", u32::MAX),
        Some("a boolean") => "true or false".to_owned(),
        Some("a string") => "a text (in quotes, if it looks like something else)".to_owned(),
        Some("path string") => "a path".to_owned(),
        Some(other) => other.replace('`', ""),
        None if error.contains("socket address") => {
            "an IP address and a port, such as 127.0.0.1:8080 or [::]:8080".to_owned()
        }
        None => error.to_owned(),
    }
}
