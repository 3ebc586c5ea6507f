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

/// The metrics and labels of an expression. Labels of `by (…)` and the like count for all metrics of what
/// they stand beside, except on the right of `and` and `unless`, which keep the labels of the left.
pub(crate) fn used(expression: &str) -> Used {
    let mut used = Used::new();
    add_used(&tokens(expression), &BTreeSet::new(), &mut used);
    used
}

fn add_used(tokens: &[Token], outer: &BTreeSet<String>, used: &mut Used) {
    let parts = split(tokens, &["or"]);
    if parts.len() > 1 {
        parts.iter().for_each(|part| add_used(part, outer, used));
        return;
    }
    let mut parts = split(tokens, &["and", "unless"]);
    let first = parts.remove(0);
    let mut labels = outer.clone();
    for part in parts {
        let mut on = BTreeSet::new();
        let mut rest = part;
        if let [Token::Name(word), Token::Sign('('), inside @ ..] = part
            && ["on", "ignoring"].contains(&word.as_str())
        {
            let (names, taken) = names_until(inside, ')', |_, _| true);
            on.extend(names);
            rest = &inside[taken..];
        }
        add_used_beside(rest, &on, used);
        labels.extend(on);
    }
    add_used_beside(first, &labels, used);
}

/// The parts between these words outside of parentheses.
fn split<'a>(tokens: &'a [Token], words: &[&str]) -> Vec<&'a [Token]> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (i, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(') => depth += 1,
            Token::Sign(')') => depth -= 1,
            Token::Name(name) if depth == 0 && words.contains(&name.as_str()) => {
                parts.push(&tokens[begin..i]);
                begin = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&tokens[begin..]);
    parts
}

/// An expression without `or`, `and` and `unless` outside of parentheses.
fn add_used_beside(tokens: &[Token], outer: &BTreeSet<String>, used: &mut Used) {
    const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
    let (mut metrics, mut inner, mut labels) = (Used::new(), Vec::new(), outer.clone());
    let mut at = 0;
    while at < tokens.len() {
        let (token, next) = (&tokens[at], tokens.get(at + 1));
        at += 1;
        match token {
            Token::Sign('(') => {
                let end = at + end_of_parentheses(&tokens[at..]);
                inner.push(&tokens[at..end]);
                at = end + 1;
            }
            Token::Sign(_) => {}
            Token::Name(name) if GROUPING.contains(&name.as_str()) => {
                let (names, taken) = names_until(&tokens[at + 1..], ')', |_, _| true);
                labels.extend(names);
                at += 1 + taken;
            }
            Token::Name(name) if next == Some(&Token::Sign('{')) => {
                let is_matcher = |tokens: &[Token], i: usize| {
                    matches!(tokens.get(i + 1), Some(Token::Sign('=' | '!')))
                };
                let (names, taken) = names_until(&tokens[at + 1..], '}', is_matcher);
                metrics.entry(name.clone()).or_default().extend(names);
                at += 1 + taken;
            }
            Token::Name(name) => {
                // The grouping of an aggregation may precede its argument.
                let is_call = next == Some(&Token::Sign('('))
                    || matches!(next, Some(Token::Name(word)) if GROUPING.contains(&word.as_str()));
                if !is_call && !["bool", "offset"].contains(&name.as_str()) {
                    metrics.entry(name.clone()).or_default();
                }
            }
        }
    }
    for (metric, own) in metrics {
        used.entry(metric).or_default().extend(own.into_iter().chain(labels.iter().cloned()));
    }
    for tokens in inner {
        add_used(tokens, &labels, used);
    }
}

fn end_of_parentheses(tokens: &[Token]) -> usize {
    let mut depth = 1;
    let is_end = |token: &Token| {
        depth += i32::from(*token == Token::Sign('(')) - i32::from(*token == Token::Sign(')'));
        depth == 0
    };
    tokens.iter().position(is_end).unwrap()
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
            &[("a", &["pod"]), ("b", &["c", "pod"]), ("d", &[])],
        ),
        (
            "sum by (x) (sum by (x, y) (a and on (pod) b) or max(c))",
            &[("a", &["pod", "x", "y"]), ("b", &["pod"]), ("c", &["x"])],
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
