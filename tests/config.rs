//! Loading a configuration: files and flags in, a configuration or all its errors out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "config/discovery.rs"]
mod discovery;
#[path = "config/pages.rs"]
mod pages;
#[path = "config/rules.rs"]
mod rules;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use throughline::config::{
    Config, ConfigErrors, ConfigProblem, FlagValue, LOCAL_CLUSTER, LoadedConfig, Overrides, load,
};
use throughline::core::contract::settings::TouchScope;
use throughline::core::data::ids::Role;

/// Creates a folder for one test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("config").join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Writes a kubeconfig with these contexts; the first is the current one.
fn kubeconfig(folder: &Path, contexts: &[&str]) -> String {
    let path = folder.join("kubeconfig");
    let named: Vec<_> = contexts
        .iter()
        .map(|name| json!({ "name": name, "context": { "cluster": "c", "user": "u" } }))
        .collect();
    let content = json!({ "apiVersion": "v1", "kind": "Config", "contexts": named,
        "current-context": contexts.first() });
    fs::write(&path, content.to_string()).unwrap();
    path.display().to_string()
}

/// Loads a YAML text in which `KUBE` stands for a kubeconfig with the contexts `one` and `two`, and
/// `FOLDER` for the test's folder.
fn load_text(name: &str, yaml: &str, flags: &Overrides) -> Result<LoadedConfig, ConfigErrors> {
    let folder = folder(name);
    let kube = kubeconfig(&folder, &["one", "two"]);
    let file = folder.join("live.yaml");
    let yaml = yaml.replace("KUBE", &kube).replace("FOLDER", &folder.display().to_string());
    fs::write(&file, yaml).unwrap();
    load(Some(&file), flags)
}

/// Problems as text, with paths replaced by the names from [`load_text`].
fn texts(name: &str, problems: &[ConfigProblem]) -> Vec<String> {
    let folder = folder(name);
    let short = |text: String| {
        text.replace(&folder.join("live.yaml").display().to_string(), "FILE")
            .replace(&folder.join("kubeconfig").display().to_string(), "KUBE")
            .replace(&folder.display().to_string(), "FOLDER")
    };
    problems.iter().map(|problem| short(problem.to_string())).collect()
}

#[track_caller]
fn assert_refused(name: &str, yaml: &str, flags: &Overrides, expected: &[&str]) {
    match load_text(name, yaml, flags) {
        Ok(loaded) => panic!("accepted: {:?}", loaded.config),
        Err(errors) => assert_eq!(texts(name, &errors.0), expected),
    }
}

#[track_caller]
fn assert_warnings(name: &str, yaml: &str, expected: &[&str]) {
    let loaded = load_text(name, yaml, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(texts(name, &loaded.warnings), expected);
}

fn sets(values: &[&str]) -> Overrides {
    let values = values.iter().map(|text| FlagValue::Set((*text).to_owned())).collect();
    Overrides { values, ..Overrides::default() }
}

fn clusters(values: &[&str]) -> Overrides {
    let clusters = values.iter().map(|text| (*text).to_owned()).collect();
    Overrides { clusters, ..Overrides::default() }
}

const ONE: &str = "clusters: [{name: one, roles: [upstream, hub, edge], kubeconfig: KUBE}]";

/// One file with all kinds of errors, to show that none hides another.
#[test]
fn all_errors_are_reported_at_once_with_file_key_value_and_accepted_values() {
    let yaml = fs::read_to_string("tests/config/wrong.yaml").unwrap();
    let errors = load_text("wrong", &yaml, &Overrides::default()).unwrap_err();
    let out = texts("wrong", &errors.0).join("\n") + "\n";
    let golden = Path::new("tests/config/wrong.expected");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(golden, &out).unwrap();
    }
    assert_eq!(out, fs::read_to_string(golden).unwrap(), "UPDATE_EXPECT=1 rewrites it");
    assert!(errors.to_string().starts_with(&format!("{} errors in the", errors.0.len())));
    assert_eq!(errors.to_string().lines().count(), errors.0.len() + 1);
}

#[test]
fn a_file_that_cannot_be_read_is_one_error() {
    let none = Overrides::default();
    let invalid = "FILE: is not valid YAML:";
    let cases = [
        ("clusters: [", format!("{invalid} unclosed bracket '[' at line 1, column 11")),
        (
            "log: {level: info}\nlog: {level: warn}",
            format!(
                "{invalid} duplicate mapping key `log` is not allowed here at line 2, column 1"
            ),
        ),
    ];
    for (i, (yaml, expected)) in cases.iter().enumerate() {
        assert_refused(&format!("unreadable-{i}"), yaml, &none, &[expected]);
    }
    let missing = load(Some(Path::new("/nowhere/live.yaml")), &none).unwrap_err();
    let expected = "/nowhere/live.yaml: cannot be read: No such file or directory (os error 2)";
    assert_eq!(missing.to_string(), expected);
    // Flags are still checked, but keys that the file may set are not reported.
    let flags = sets(&["log.level=loud", "touch.edgeScopes.edge-9=gateway"]);
    let errors = load(Some(Path::new("/nowhere/live.yaml")), &flags).unwrap_err();
    let lines = texts("none", &errors.0);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].starts_with("--set log.level=loud: log.level: found \"loud\"; "), "{lines:?}");
}

#[test]
fn a_refused_value_is_reported_once() {
    let yaml = "clusters: [{name: one, roles: [upsteam], kubeconfig: KUBE}]\n\
                touch: {edgeScopes: {two: gateway}}";
    let expected = "FILE: clusters[0].roles[0]: found \"upsteam\"; accepted: one of upstream, \
                    hub, edge";
    assert_refused("once", yaml, &Overrides::default(), &[expected]);
}

#[test]
fn errors_in_flags_quote_the_flag() {
    let mut flags =
        clusters(&["a=edge,context=x,colour=red", "b=edge+hob,kubeconfig=/nowhere/k", "c"]);
    flags.context = Some("one".into());
    flags.values = sets(&[
        "touch.windowMS=5",
        "windowMs=5",
        "touch.windowMs",
        "clusters[9].name=x",
        "touch.windowMs.x=1",
        "executor.tries=0",
        "eventLog.keep=-1",
    ])
    .values;
    let usage = "accepted: NAME=ROLE[+ROLE…][,kubeconfig=FILE][,context=CTX][,in-cluster]";
    let keys = "burst, confirmAfterMs, confirmAfterOutageMs, edgeScopes, enabled, key, maxPerSecond, \
                minIntervalMs, platformKey, scope, standInMs, windowMs";
    let sections = "admin, clusters, discovery, dryRun, eventLog, events, executor, fleet, leaderElection, log, \
                    metrics, mirror, orphans, retry, shutdown, stall, touch, watch";
    let expected = [
        format!("--cluster a=edge,context=x,colour=red: clusters[0]: found \"colour=red\"; {usage}"),
        "--cluster b=edge+hob,kubeconfig=/nowhere/k: clusters[1].roles[1]: found \"hob\"; accepted: one of upstream, hub, edge".to_owned(),
        format!("--cluster c: clusters[2]: {usage}"),
        "--context one: applies to a single cluster, but there are 3; accepted: --cluster NAME=ROLE,context=one, or context in the file".to_owned(),
        format!("--set touch.windowMS=5: touch.windowMS: unknown key (did you mean windowMs?); accepted: {keys}"),
        format!("--set windowMs=5: windowMs: unknown key (did you mean touch.windowMs?); accepted: {sections}"),
        "--set touch.windowMs: expected PATH=VALUE, for example touch.windowMs=200".to_owned(),
        "--set clusters[9].name=x: clusters[9]: the list has no such item".to_owned(),
        "--set touch.windowMs.x=1: touch.windowMs: found \"x\" below a key that takes a single value".to_owned(),
        "--set eventLog.keep=-1: eventLog.keep: found -1; accepted: a whole number up to 4294967295".to_owned(),
        "--cluster b=edge+hob,kubeconfig=/nowhere/k: clusters[1].kubeconfig: found \"/nowhere/k\", which cannot be read (No such file or directory (os error 2)); accepted: a kubeconfig file".to_owned(),
        "--set executor.tries=0: executor.tries: found 0; accepted: 1 or more".to_owned(),
    ];
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    assert_refused("flags", ONE, &flags, &expected);
}

#[test]
fn without_configuration_there_is_one_cluster_with_every_role_and_the_defaults() {
    for file in [None, Some("")] {
        let loaded = match file {
            None => load(None, &Overrides::default()).unwrap(),
            Some(text) => load_text("empty", text, &Overrides::default()).unwrap(),
        };
        let mut config = loaded.config;
        let [cluster] = config.clusters.as_slice() else { panic!("{:?}", config.clusters) };
        assert_eq!(cluster.name.as_str(), LOCAL_CLUSTER);
        assert_eq!(cluster.roles, [Role::Upstream, Role::Hub, Role::Edge]);
        assert_eq!((&cluster.kubeconfig, &cluster.context), (&None, &None));
        assert!(!cluster.in_cluster);
        config.clusters.clear();
        assert_eq!(config, Config::default());
    }
}

#[test]
fn sections_whose_keys_are_commented_out_set_nothing() {
    let yaml = format!("{ONE}\ntouch:\nlog:\n  # level: debug\nwatch: {{}}\n");
    let config = load_text("commented", &yaml, &Overrides::default()).unwrap().config;
    assert_eq!(Config { clusters: Vec::new(), ..config }, Config::default());
}

#[test]
fn flags_override_the_file_and_the_last_one_counts() {
    let yaml = format!("{ONE}\ntouch: {{windowMs: 7, minIntervalMs: 8}}\nlog: {{level: warn}}\n");
    let mut flags = sets(&[
        "touch.windowMs=9",
        "log.level=debug",
        "touch.windowMs=10",
        "touch.edgeScopes.one=gatewayClass",
        "clusters[0].context=two",
        "eventLog.file=7",
        "touch.confirmAfterMs=[1,2]",
    ]);
    flags.values.push(FlagValue::Named {
        flag: "--dry-run".into(),
        key: "dryRun",
        value: true.into(),
    });
    let config = load_text("order", &yaml, &flags).unwrap().config;
    assert_eq!((config.touch.window_ms, config.touch.min_interval_ms), (10, 8));
    assert_eq!(config.touch.confirm_after_ms, [1, 2]);
    assert_eq!(config.touch.scope_of(&"one".into()), TouchScope::GatewayClass);
    assert_eq!((config.log.level.as_str(), config.dry_run), ("debug", true));
    assert_eq!(config.clusters[0].context.as_deref(), Some("two"));
    assert_eq!(
        config.event_log.file.as_deref(),
        Some(Path::new("7")),
        "a string that looks like a number"
    );
}

#[test]
fn clusters_from_flags_replace_those_from_the_file() {
    let kube = kubeconfig(&folder("replaced"), &["one", "two"]);
    let specs = [
        format!("up/a=upstream,kubeconfig={kube},context=two"),
        format!("hub=hub+edge,kubeconfig={kube}"),
    ];
    let flags = clusters(&[&specs[0], &specs[1]]);
    let config = load_text("replaced", ONE, &flags).unwrap().config;
    let found: Vec<_> = config
        .clusters
        .iter()
        .map(|c| (c.name.as_str(), c.roles.as_slice(), c.context.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            ("up/a", [Role::Upstream].as_slice(), Some("two")),
            ("hub", [Role::Hub, Role::Edge].as_slice(), None)
        ]
    );
    assert!(config.clusters.iter().all(|c| c.kubeconfig.as_deref() == Some(Path::new(&kube))));

    // With one cluster, --kubeconfig and --context need no cluster name.
    let flags = Overrides {
        kubeconfig: Some(kube.clone().into()),
        context: Some("two".into()),
        ..Overrides::default()
    };
    let [cluster] = &load(None, &flags).unwrap().config.clusters[..] else { panic!() };
    assert_eq!((cluster.name.as_str(), cluster.context.as_deref()), (LOCAL_CLUSTER, Some("two")));
    assert_eq!(cluster.kubeconfig.as_deref(), Some(Path::new(&kube)));
}

#[test]
fn the_hub_role_is_still_read_as_downstream_and_printed_as_hub() {
    let yaml = ONE.replace("hub", "downstream");
    let config = load_text("downstream", &yaml, &Overrides::default()).unwrap().config;
    assert_eq!(config.clusters[0].roles, [Role::Upstream, Role::Hub, Role::Edge]);
    let printed = serde_json::to_value(&config).unwrap();
    assert_eq!(printed["clusters"][0]["roles"], json!(["upstream", "hub", "edge"]));
}

/// The old setting counted files; what it took on the disk is what is kept.
#[test]
fn the_number_of_event_logs_to_keep_is_read_as_their_size() {
    let (mib, replaced) =
        (1024 * 1024, "is replaced by keepBytes, and counts as eventLog.keepBytes: ");
    for (settings, bytes, warning) in [
        ("", 1024 * mib, None),
        ("maxBytes: 1048576", 4 * mib, None),
        ("maxBytes: 1048576, keepBytes: 7340032", 7 * mib, None),
        ("keep: 0", 256 * mib, Some(format!("{replaced}268435456"))),
        ("keep: 9, maxBytes: 1048576", 10 * mib, Some(format!("{replaced}10485760"))),
        (
            "keep: 9, keepBytes: 1073741824",
            1024 * mib,
            Some("has no effect beside eventLog.keepBytes; remove it".to_owned()),
        ),
    ] {
        let yaml = format!("{ONE}\neventLog: {{{settings}}}\n");
        let loaded = load_text("keep", &yaml, &Overrides::default()).unwrap();
        assert_eq!(
            (loaded.config.event_log.keep_bytes, loaded.config.event_log.keep),
            (bytes, None)
        );
        let found = loaded.warnings.iter().find(|warning| warning.key == "eventLog.keep");
        assert_eq!(found.map(|warning| &warning.message), warning.as_ref(), "{settings}");
    }
}

/// The output of `throughline config` loads again to the same configuration, however odd the names.
#[test]
fn a_configuration_survives_being_printed_and_read() {
    let names = [
        "off",
        "7",
        "null",
        "~",
        "yes",
        "1e3",
        "0x1f",
        "a: b",
        "#x",
        "- a",
        "line\nbreak",
        "tab\there",
        " blank ",
        "'",
        "\"",
        "org/team",
        "é",
        "{a}",
        "*",
        "&a",
        "!a",
        "2026-11-21",
    ];
    let folder = folder("round-trip");
    let kube = kubeconfig(&folder, &names);
    let clusters: Vec<_> = names
        .iter()
        .map(|name| {
            json!({
        "name": name, "roles": ["edge"], "kubeconfig": kube, "context": name })
        })
        .collect();
    let scopes: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), "gatewayClass".into())).collect();
    let first = folder.join("first.yaml");
    let all = json!({ "clusters": clusters, "touch": { "edgeScopes": scopes, "platformKey": "off",
            "confirmAfterMs": [] },
        "eventLog": { "file": folder.join("a #b: c.jsonl"), "redact": false },
        "admin": { "address": "[::1]:0", "state": "off" }, "orphans": { "mode": "off" },
        "log": { "level": "off", "format": "text" }, "retry": { "outcomeTimeoutMs": u64::MAX } });
    fs::write(&first, all.to_string()).unwrap();
    let loaded = load(Some(&first), &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(loaded.config.clusters.len(), names.len());
    assert_eq!(loaded.config.touch.edge_scopes.len(), names.len());

    let again = folder.join("again.yaml");
    let printed = [
        serde_saphyr::to_string(&loaded.config).unwrap(),
        serde_json::to_string_pretty(&loaded.config).unwrap(),
    ];
    for text in printed {
        fs::write(&again, text).unwrap();
        let read = load(Some(&again), &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(read.config, loaded.config);
    }
}
