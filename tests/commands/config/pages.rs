//! The reference page has a row for each key, made of the docs of the structs.

use std::collections::BTreeMap;
use std::fs;

use expect_test::expect_file;
use regex::Regex;
use serde_json::Value;
use throughline::config::Config;

/// A field of a struct, or a key: its name, its type and its docs.
pub(crate) type Field = (String, String, String);

/// The fields of every struct of the configuration.
fn structs() -> BTreeMap<String, Vec<Field>> {
    let source = fs::read_to_string("src/config/mod.rs").unwrap();
    let a_struct = Regex::new(r"(?ms)^pub struct (\w+) \{$(.*?)^\}").unwrap();
    let a_field = Regex::new(r"((?: *///.*\n)*)((?: *#\[.*\n)*) *pub (\w+): (.*),\n").unwrap();
    let field = |[docs, attributes, name, of]: [&str; 4]| {
        let docs = docs.trim().trim_start_matches("/// ").replace("\n    /// ", " ");
        let is_key = !attributes.contains("serde(skip)");
        is_key.then(|| (camel_case(name), of.to_owned(), docs))
    };
    let all = a_struct.captures_iter(&source).map(|found| found.extract().1);
    let fields = |[name, text]: [&str; 2]| {
        let fields = a_field.captures_iter(text).map(|found| found.extract().1);
        (name.to_owned(), fields.filter_map(field).collect())
    };
    all.map(fields).collect()
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// The keys of a struct and of those below it, each by its path: `clusters[].name`, `touch.scope`.
fn keys_of(structs: &BTreeMap<String, Vec<Field>>, name: &str, prefix: &str) -> Vec<Field> {
    let below = |(field, of, docs): &Field| {
        let inner =
            of.trim_start_matches("Option<").trim_start_matches("Vec<").trim_end_matches('>');
        let list = if of.starts_with("Vec<") { "[]" } else { "" };
        let path = format!("{prefix}{field}");
        if structs.contains_key(inner) {
            keys_of(structs, inner, &format!("{path}{list}."))
        } else {
            vec![(path, of.clone(), docs.clone())]
        }
    };
    structs[name].iter().flat_map(below).collect()
}

pub(crate) fn keys() -> Vec<Field> {
    keys_of(&structs(), "Config", "")
}

fn kind(of: &str) -> &str {
    match of.trim_start_matches("Option<").trim_end_matches('>') {
        "bool" => "bool",
        "u16" | "u32" => "number",
        "Duration" => "duration",
        "Size" => "quantity",
        "Fraction" => "fraction",
        "SocketAddr" => "IP:port",
        "PathBuf" => "path",
        "String" | "ClusterName" => "text",
        "Vec<Role" => "list",
        _ => "word",
    }
}

fn default_of(path: &str, of: &str) -> String {
    let with_sections = r#"{"milo": {}, "kubeconfigSecrets": {"cluster": "a", "namespace": "a"},
        "kubeconfigDir": {"path": "a"}}"#;
    let discovery = serde_json::from_str(with_sections).unwrap();
    let default = serde_json::to_value(Config { discovery, ..Config::default() }).unwrap();
    let place = path.split('.').try_fold(&default, |here, name| here.get(name));
    match place {
        Some(value) if value != "a" => match value {
            Value::String(text) => format!("`{text}`"),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().filter_map(Value::as_str).collect();
                format!("`[{}]`", items.join(", "))
            }
            value => format!("`{value}`"),
        },
        _ if path == "clusters[].inCluster" => "`false`".to_owned(),
        _ if of.starts_with("Option<") => "none".to_owned(),
        _ => "required".to_owned(),
    }
}

/// Between its head and the next empty line, a page of the reference has these rows.
pub(crate) fn assert_table(page: &str, head: &str, rows: &str) {
    let page = expect_file![format!("../../../docs/reference/{page}")];
    let text = page.data();
    let (before, _) = text.split_once(head).unwrap();
    let rule = "|---".repeat(head.matches(" | ").count() + 1) + "|";
    let after = text[before.len()..].split_once("\n\n").map(|(_, after)| format!("\n{after}"));
    page.assert_eq(&format!("{before}{head}\n{rule}\n{rows}{}", after.unwrap_or_default()));
}

#[test]
fn the_reference_is_made_of_the_docs_of_the_structs() {
    let row = |(path, of, docs): &Field| {
        assert!(!docs.is_empty(), "{path} has no docs");
        format!("| `{path}` | {} | {} | {docs} |\n", kind(of), default_of(path, of))
    };
    let rows: String = keys().iter().map(row).collect();
    assert_table("configuration.md", "| key | type | default | meaning |", &rows);
    assert_eq!(keys().len(), 43);
}
