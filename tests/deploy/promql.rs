//! Finds the metrics and labels of a PromQL expression. The lexer handles throughline's own expressions.

use std::collections::{BTreeMap, BTreeSet};

/// Metrics, each with the labels that the expression names.
pub(crate) type Used = BTreeMap<String, BTreeSet<String>>;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Sign(char),
}

/// Names and signs, without strings, numbers, ranges and dashboard variables.
fn tokens(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expression.chars().peekable();
    while let Some(c) = rest.next() {
        let mut word = |first: char| {
            let mut word = String::from(first);
            while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || *c == '_' || *c == ':') {
                word.push(c);
            }
            word
        };
        match c {
            '"' | '\'' => while rest.next().is_some_and(|next| next != c) {},
            '[' => while rest.next().is_some_and(|next| next != ']') {},
            '$' | '0'..='9' => drop(word(c)),
            c if c.is_alphabetic() || c == '_' => tokens.push(Token::Name(word(c))),
            c if c.is_whitespace() => {}
            c => tokens.push(Token::Sign(c)),
        }
    }
    tokens
}

/// The names up to the closing sign, and the number of tokens read.
fn names_until(
    tokens: &[Token],
    close: char,
    is_label: impl Fn(&[Token], usize) -> bool,
) -> (Vec<String>, usize) {
    let end = tokens.iter().position(|token| *token == Token::Sign(close)).unwrap();
    let name = |i: usize| match &tokens[i] {
        Token::Name(name) if is_label(tokens, i) => Some(name.clone()),
        _ => None,
    };
    ((0..end).filter_map(name).collect(), end + 1)
}

/// The metrics and labels of an expression. Labels of `by (…)` and the like count for all metrics of
/// its side of an `or`.
pub(crate) fn used(expression: &str) -> Used {
    let mut used = Used::new();
    let mut depth = 0;
    let sides = tokens(expression);
    for side in sides.split(|token| {
        depth += i32::from(*token == Token::Sign('(')) - i32::from(*token == Token::Sign(')'));
        depth == 0 && *token == Token::Name("or".into())
    }) {
        for (metric, labels) in used_on_side(side) {
            used.entry(metric).or_default().extend(labels);
        }
    }
    used
}

fn used_on_side(tokens: &[Token]) -> Used {
    const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
    const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
    let (mut used, mut grouped) = (Used::new(), BTreeSet::new());
    let mut at = 0;
    while at < tokens.len() {
        let Token::Name(name) = &tokens[at] else {
            at += 1;
            continue;
        };
        at += 1;
        let next = tokens.get(at);
        if GROUPING.contains(&name.as_str()) {
            let (labels, taken) = names_until(&tokens[at + 1..], ')', |_, _| true);
            grouped.extend(labels);
            at += 1 + taken;
        } else if next == Some(&Token::Sign('{')) {
            let is_matcher = |tokens: &[Token], i: usize| {
                matches!(tokens.get(i + 1), Some(Token::Sign('=' | '!')))
            };
            let (labels, taken) = names_until(&tokens[at + 1..], '}', is_matcher);
            used.entry(name.clone()).or_default().extend(labels);
            at += 1 + taken;
        } else if next != Some(&Token::Sign('(')) && !WORDS.contains(&name.as_str()) {
            // The grouping of an aggregation may precede its argument.
            let is_aggregation =
                matches!(next, Some(Token::Name(word)) if GROUPING.contains(&word.as_str()));
            if !is_aggregation {
                used.entry(name.clone()).or_default();
            }
        }
    }
    for labels in used.values_mut() {
        labels.extend(grouped.iter().cloned());
    }
    used
}

#[test]
fn metrics_and_labels_are_found() {
    type Metric = (&'static str, &'static [&'static str]);
    let cases: &[(&str, &[Metric])] = &[
        ("absent(throughline_build_info)", &[("throughline_build_info", &[])]),
        (
            "max by (namespace, hop) (a_total{x=\"by (y)\", z=~'$z'} == bool 2) > 0.5",
            &[("a_total", &["hop", "namespace", "x", "z"])],
        ),
        ("sum(rate(a[$__rate_interval])) by (le) / 2e3", &[("a", &["le"])]),
        (
            "max by (x) (a) or min by (y) (b == bool 1 or c)",
            &[("a", &["x"]), ("b", &["y"]), ("c", &["y"])],
        ),
        (
            "a and on (pod) b{c!=\"1\"} unless d",
            &[("a", &["pod"]), ("b", &["c", "pod"]), ("d", &["pod"])],
        ),
    ];
    for (expression, wanted) in cases {
        let wanted: Used = wanted
            .iter()
            .map(|(name, labels)| {
                ((*name).to_owned(), labels.iter().map(|label| (*label).to_owned()).collect())
            })
            .collect();
        assert_eq!(used(expression), wanted, "{expression}");
    }
}
