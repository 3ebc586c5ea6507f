//! Label selectors, as kubectl's `-l` and the API server read them.

/// Why an API server would refuse this selector; `None` if it would not.
pub(super) fn selector_defect(selector: &str) -> Option<String> {
    let mut rest = selector.trim();
    while !rest.is_empty() {
        let (requirement, after) = split_requirement(rest);
        if let Some(defect) = requirement_defect(requirement.trim()) {
            return Some(defect);
        }
        match after {
            Some(after) if after.trim().is_empty() => return Some("ends with a comma".to_owned()),
            after => rest = after.unwrap_or_default(),
        }
    }
    None
}

/// The text up to the first comma outside parentheses, and the text after that comma.
fn split_requirement(text: &str) -> (&str, Option<&str>) {
    let mut is_inside = false;
    for (at, c) in text.char_indices() {
        match c {
            '(' => is_inside = true,
            ')' => is_inside = false,
            ',' if !is_inside => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
    }
    (text, None)
}

fn requirement_defect(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("has an empty requirement".to_owned());
    }
    if let Some(key) = text.strip_prefix('!') {
        return key_defect(key.trim());
    }
    // The longer operators first.
    if let Some((key, value)) = ["!=", "==", "="].iter().find_map(|op| text.split_once(op)) {
        return key_defect(key.trim()).or_else(|| value_defect(value.trim()));
    }
    if let Some((key, number)) = text.split_once('>').or_else(|| text.split_once('<')) {
        let number = number.trim();
        let is_number = number.parse::<i64>().is_ok();
        let defect = || (!is_number).then(|| format!("compares with {number:?}, not a number"));
        return key_defect(key.trim()).or_else(defect);
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else { return key_defect(text) };
    let rest = rest.trim();
    let values = ["in", "notin"].iter().find_map(|word| {
        rest.strip_prefix(word)?.trim_start().strip_prefix('(')?.strip_suffix(')')
    });
    let Some(values) = values else {
        return Some(format!("has {rest:?} after the key {key:?}, which is no condition"));
    };
    key_defect(key).or_else(|| values.split(',').find_map(|value| value_defect(value.trim())))
}

fn key_defect(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_dns = |prefix: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = |label: &str| {
            !label.is_empty()
                && label.chars().all(plain)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        prefix.len() <= 253 && prefix.split('.').all(is_label)
    };
    let fits = !name.is_empty() && is_value(name) && prefix.is_none_or(is_dns);
    (!fits).then(|| format!("has {key:?}, which is not a label key"))
}

fn value_defect(value: &str) -> Option<String> {
    let fits = value.is_empty() || is_value(value);
    (!fits).then(|| format!("has {value:?}, which is not a label value"))
}

fn is_value(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::selector_defect;

    #[test]
    fn selectors_are_read_as_kubectl_does() {
        for fine in [
            "",
            "a",
            "!a",
            "a=b",
            "a==b",
            "a!=b",
            "a=",
            "sigs.k8s.io/multicluster-runtime-kubeconfig=true",
            "env in (prod, staging),tier notin (x),!gone",
            "a in (x,y),b = c",
            "n>5,m<-1",
        ] {
            assert_eq!(selector_defect(fine), None, "{fine}");
        }
        for (wrong, defect) in [
            ("a=b c", "has \"b c\", which is not a label value"),
            ("a=b,", "ends with a comma"),
            ("a,,b", "has an empty requirement"),
            ("-a=b", "has \"-a\", which is not a label key"),
            ("A.b/c/d=1", "has \"A.b/c/d\", which is not a label key"),
            ("a in x", "has \"in x\" after the key \"a\", which is no condition"),
            ("a within (x)", "has \"within (x)\" after the key \"a\", which is no condition"),
            ("a in (x y)", "has \"x y\", which is not a label value"),
            ("n>many", "compares with \"many\", not a number"),
        ] {
            assert_eq!(selector_defect(wrong).as_deref(), Some(defect), "{wrong}");
        }
    }
}
