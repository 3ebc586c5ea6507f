//! The command line: exit codes, errors, inputs and outputs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const FIXTURE: &str = "two-clusters-ready-flips";

/// Its carrier takes longer than the replay goes on.
const NEVER_CARRIED: [&str; 4] = [
    "replay",
    concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/three-tiers-through-the-carrier.jsonl"),
    "--carrier-delay",
    "2h",
];

fn fixture(name: &str) -> String {
    format!("{}/fixtures/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

/// Creates a file for one test.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    command.args(args).env_remove("NO_COLOR").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

#[track_caller]
fn run(args: &[&str], code: i32) -> (String, String) {
    finish(command(args).output().unwrap(), code)
}

#[track_caller]
fn finish(output: Output, code: i32) -> (String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout: {out}\nstderr: {err}");
    (out, err)
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

fn json(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

#[test]
fn a_replay_that_converges_exits_with_0_and_prints_no_colour_in_a_pipe() {
    let (out, err) = run(&["replay", &fixture(FIXTURE)], 0);
    assert_contains(&out, &["home-lab", "app"]);
    assert!(!out.contains('\x1b'), "a colour in a pipe: {out}");
    assert_eq!(err, "");
}

#[test]
fn a_replay_that_does_not_converge_exits_with_1_and_names_the_problem() {
    let (out, _) = run(&[&NEVER_CARRIED[..], &["--output", "json"]].concat(), 1);
    let report = json(&out);
    assert_eq!(report["verdict"]["converged"], false);
    assert_contains(&report["verdict"]["problems"].to_string(), &["home-lab"]);
}

#[test]
fn several_files_exit_with_1_if_one_does_not_converge() {
    let settled = fixture("settled-world-restart-writes-nothing");
    run(&["replay", &settled, &fixture("orphan-is-reported")], 0);
    run(&[&NEVER_CARRIED[..], &[&settled]].concat(), 1);
}

#[test]
fn bad_usage_exits_with_2_and_names_what_is_accepted() {
    let fixture = fixture(FIXTURE);
    let (_, err) = run(&[], 2);
    assert_contains(&err, &["Usage", "replay"]);
    let (_, err) = run(&["replay"], 2);
    assert_contains(&err, &["FILE"]);
    let (_, err) = run(&["replay", &fixture, "--output", "yaml"], 2);
    assert_contains(&err, &["yaml", "text", "json"]);
    let (_, err) = run(&["replay", &fixture, "--mode", "maybe"], 2);
    assert_contains(&err, &["maybe", "what-if", "verify"]);
    let (_, err) = run(&["replay", &fixture, "--carrier-delay", "100"], 2);
    assert_contains(&err, &["100ms"]);
    for bad in ["home-lab", "/home-lab", "default/", "a/b/c"] {
        let (_, err) = run(&["replay", &fixture, "--connector", bad], 2);
        assert_contains(&err, &[bad, "NAMESPACE/NAME", "default/home-lab"]);
    }
}

#[test]
fn a_carriers_rate_is_part_of_the_what_if_and_of_its_report() {
    let fixture = fixture("three-tiers-through-the-carrier");
    let (out, _) = run(&["replay", &fixture, "--carrier-rate", "20"], 0);
    assert_contains(&out, &["the simulated carrier takes at most 20 changes a second"]);
    let (out, _) = run(&["replay", &fixture], 0);
    assert!(!out.contains("simulated carrier"), "{out}");
    let with_rate = ["replay", &fixture, "--carrier-rate", "20", "--output", "json"];
    assert_eq!(json(&run(&with_rate, 0).0)["carrier_rate"], 20);
    for bad in ["0", "-20", "1001", "fast", "0.5"] {
        let (_, err) = run(&["replay", &fixture, "--carrier-rate", bad], 2);
        assert_contains(&err, &["--carrier-rate", bad, "1 to 1000", "has no limit"]);
    }
}

#[test]
fn an_unknown_setting_is_refused() {
    let fixture = fixture(FIXTURE);
    let (_, err) = run(&["replay", &fixture, "--set", "touch.windowMS=5"], 2);
    assert_contains(&err, &["--set touch.windowMS=5", "no setting of an event log"]);
    let (_, err) = run(&["replay", &fixture, "--set", "tuch.windowMs=5"], 2);
    assert_contains(&err, &["--set tuch.windowMs=5", "no setting of an event log"]);
    let (_, err) = run(&["replay", &fixture, "--set", "touch.windowMs"], 2);
    assert_contains(&err, &["KEY=VALUE"]);
    let (_, err) = run(&["replay", &fixture, "--set", "touch.windowMs=soon"], 2);
    assert_contains(&err, &["touch.windowMs", "soon"]);
}

#[test]
fn settings_change_decisions() {
    let touches = |extra: &[&str]| {
        let fixture = fixture(FIXTURE);
        let args = [&["replay", &fixture, "--output", "json"], extra].concat();
        let (out, _) = run(&args, 0);
        let actions = json(&out)["actions"].as_array().unwrap().clone();
        actions.iter().filter(|a| a["type"] == "touch").count()
    };
    assert_eq!(touches(&[]), 5);
    // Without confirmations, two touches remain.
    assert_eq!(touches(&["--set", "touch.confirmAfterMs=[]"]), 2);
    assert_eq!(touches(&["--set", "touch.confirmAfterMs=[]", "--set", "touch.windowMs=9000"]), 1);
}

#[test]
fn unusable_input_exits_with_2_and_names_file_and_line() {
    let (_, err) = run(&["replay", "/nowhere/at-all.jsonl"], 2);
    assert_contains(&err, &["/nowhere/at-all.jsonl", "No such file"]);
    let good = fs::read_to_string(fixture(FIXTURE)).unwrap();
    let mut lines: Vec<_> = good.lines().collect();
    lines[4] = r#"{"at_ms":1763715600000,"event":"listed","cluster":"#;
    let broken = file("broken.jsonl", lines.join("\n").as_bytes());
    let (_, err) = run(&["replay", broken.to_str().unwrap()], 2);
    assert_contains(&err, &["broken.jsonl:5:", "JSON"]);
    let unknown = good.replacen(r#""event":"list_started""#, r#""event":"list_begun""#, 1);
    let unknown = file("unknown-event.jsonl", unknown.as_bytes());
    let (_, err) = run(&["replay", unknown.to_str().unwrap()], 2);
    assert_contains(&err, &["unknown-event.jsonl:2:", "list_begun", "list_started"]);
    let newer = file("newer.jsonl", good.replacen("\"version\":1", "\"version\":2", 1).as_bytes());
    let (_, err) = run(&["replay", newer.to_str().unwrap()], 2);
    assert_contains(&err, &["newer.jsonl:1:", "version 2", "version 1"]);
    let empty = file("empty.jsonl", b"");
    run(&["replay", empty.to_str().unwrap()], 2);
}

#[test]
fn a_torn_last_line_is_only_a_warning() {
    let mut torn = fs::read(fixture(FIXTURE)).unwrap();
    torn.extend_from_slice(br#"{"at_ms":1795334500000,"event":"app"#);
    let torn = file("torn.jsonl", &torn);
    let (_, err) = run(&["replay", torn.to_str().unwrap()], 0);
    assert_contains(&err, &["torn.jsonl:", "warning"]);
}

/// The JSON report of a replay without the file name.
fn report_of(args: &[&str], input: Option<&[u8]>) -> Value {
    let mut child = command(&[&["replay", "--output", "json"], args].concat())
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(input) = input {
        child.stdin.take().unwrap().write_all(input).unwrap();
    }
    let (out, _) = finish(child.wait_with_output().unwrap(), 0);
    let mut report = json(&out);
    report.as_object_mut().unwrap().remove("file");
    report
}

#[test]
fn standard_input_and_compressed_files_give_the_same_report() {
    let path = fixture(FIXTURE);
    let plain = fs::read(&path).unwrap();
    let expected = report_of(&[&path], None);
    assert_eq!(report_of(&["-"], Some(&plain)), expected);

    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(&plain).unwrap();
    let gz = file("log.jsonl.gz", &gz.finish().unwrap());
    assert_eq!(report_of(&[gz.to_str().unwrap()], None), expected);
}

/// A frame, and a skippable frame, with which parallel compressors begin.
#[test]
fn a_log_of_zstd_is_refused_with_the_command_that_reads_it() {
    for magic in [[0x28, 0xb5, 0x2f, 0xfd], [0x50, 0x2a, 0x4d, 0x18]] {
        let zst = file("log.jsonl.zst", &magic);
        for command in ["replay", "demo"] {
            let (out, err) = run(&[command, zst.to_str().unwrap()], 2);
            assert_eq!(out, "");
            assert_contains(&err, &["zstd -dc FILE | throughline replay -"]);
        }
    }
}

#[test]
fn the_json_report_has_the_members_that_programs_rely_on() {
    let report = report_of(&[&fixture("status-removed-upstream")], None);
    assert_eq!(report["mode"], "what-if");
    assert_eq!(report["verdict"]["converged"], true);
    for list in ["connectors", "stalls", "anomalies"] {
        assert!(report[list].is_array(), "{list}");
    }
    let actions = report["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 4, "one mirror, one touch, two confirmations");
    for action in actions {
        assert!(action["id"].is_u64() && action["at_ms"].is_u64(), "{action}");
        for text in ["type", "cluster", "kind", "namespace", "name", "because"] {
            assert!(action[text].as_str().is_some_and(|t| !t.is_empty()), "{text} of {action}");
        }
        assert_eq!(action["outcome"], "applied");
    }
    let mirror = &actions[0];
    assert_eq!((&mirror["type"], &mirror["kind"]), (&"mirror".into(), &"Connector".into()));
    let key = "networking.datumapis.com/upstream-status";
    let written = mirror["annotations"].as_object().unwrap();
    assert_eq!(written.get(key), Some(&Value::Null), "a removed key is null");
    assert_eq!(written.len(), 1, "only this key");
    let touch = &actions[1];
    assert_eq!((&touch["type"], &touch["name"]), (&"touch".into(), &"app".into()));
    let value = touch["annotations"]["gateway.envoyproxy.io/connector-liveness"].as_str().unwrap();
    assert!(value.ends_with("-8-0"), "{value}");
}

#[test]
fn a_delete_has_no_annotations_in_the_json_report() {
    let report = report_of(&[&fixture("orphan-is-deleted")], None);
    let actions = report["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 1);
    assert_eq!((&actions[0]["type"], &actions[0]["name"]), (&"delete".into(), &"orphan".into()));
    assert!(actions[0].get("annotations").is_none(), "{}", actions[0]);
    let kept = report_of(&[&fixture("orphan-is-deleted"), "--set", "orphans.mode=report"], None);
    assert_eq!(kept["actions"].as_array().unwrap().len(), 0);
}

#[test]
fn a_report_can_be_limited_to_one_connector_by_either_of_its_names() {
    let log = fixture("incident-503");
    let all = report_of(&[&log], None);
    let name_at_hub = "ns-c8119df3-eb49-4c75-b215-c2d097ca4f43/home-lab";
    for name in ["default/home-lab", name_at_hub] {
        let one = report_of(&[&log, "--connector", name], None);
        assert_eq!(one["connectors"].as_array().unwrap().len(), 1, "{name}");
        assert_eq!(one["actions"], all["actions"], "all actions are for home-lab");
    }
    let office = report_of(&[&log, "--connector", "default/office"], None);
    assert_eq!(office["actions"].as_array().unwrap().len(), 0);
}

#[test]
fn a_written_event_log_verifies_and_a_tampered_one_does_not() {
    let log = file("written.jsonl", b"");
    let log = log.to_str().unwrap();
    run(&["replay", &fixture(FIXTURE), "--save", log], 0);
    let (out, _) = run(&["replay", log, "--output", "json"], 0);
    let report = json(&out);
    assert_eq!(report["mode"], "verify", "a log with outcomes is verified by default");
    assert_eq!(report["actions"].as_array().unwrap().len(), 7);
    // A what-if is still possible.
    run(&["replay", log, "--mode", "what-if"], 0);

    let text = fs::read_to_string(log).unwrap();
    let tampered = |change: fn(&str) -> String| {
        let mut done = false;
        let lines = text.lines().map(|line| {
            let is_touch =
                line.contains(r#""type":"touch""#) && !std::mem::replace(&mut done, true);
            if is_touch { change(line) } else { format!("{line}\n") }
        });
        lines.collect::<String>()
    };
    let value = file("value.jsonl", tampered(|l| l.replace("-8-0", "-9-0") + "\n").as_bytes());
    let gone = file("gone.jsonl", tampered(|_| String::new()).as_bytes());
    let twice = file("twice.jsonl", tampered(|l| format!("{l}\n{l}\n")).as_bytes());
    for (path, part) in [(value, "-9-0"), (gone, "action 2"), (twice, "action 3")] {
        let (out, _) = run(&["replay", path.to_str().unwrap(), "--output", "json"], 1);
        assert_contains(&json(&out)["verdict"]["problems"].to_string(), &[part]);
    }
    // Other settings lead to other decisions, which does not verify.
    run(&["replay", log, "--set", "touch.windowMs=200"], 1);
}

#[test]
fn an_event_log_never_overwrites_its_own_input() {
    let log = file("own.jsonl", &fs::read(fixture(FIXTURE)).unwrap());
    let before = fs::read(&log).unwrap();
    let path = log.to_str().unwrap();
    let (_, err) = run(&["replay", path, "--save", path], 2);
    assert_contains(&err, &["own.jsonl", "replay"]);
    assert_eq!(fs::read(&log).unwrap(), before);
    run(&["replay", path, &fixture(FIXTURE), "--save", "other.jsonl"], 2);
}

#[test]
fn the_version_names_the_commit_of_the_build() {
    let commit = option_env!("THROUGHLINE_COMMIT").unwrap_or("unknown");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(run(&["version"], 0).0, format!("throughline {version} (commit {commit})\n"));
}

#[test]
fn each_shell_gets_a_script_with_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (out, _) = run(&["completion", shell], 0);
        assert_contains(&out, &["orphans", "namespace"]);
    }
    assert_contains(&run(&["completion", "tcsh"], 2).1, &["bash"]);
}

#[test]
fn the_log_that_a_configuration_names_is_exported_and_a_missing_part_is_said() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("export");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let log = |name: &str| folder.join(name).display().to_string();
    let config = |log: &str| {
        // Its kubeconfigs need not be here.
        let clusters = r#"[{"name":"e","roles":["edge"],"kubeconfig":"/nowhere/k"}]"#;
        let text = format!(r#"{{"clusters":{clusters},"eventLog":{{"file":{log}}}}}"#);
        file("export.yaml", text.as_bytes()).display().to_string()
    };
    let export = |log: &str, code| run(&["export", "--config", &config(log)], code);
    let named = format!("{:?}", log("live.jsonl"));
    let (out, err) = export(&named, 2);
    assert_eq!(out, "");
    assert_contains(&err, &["live.jsonl: can't open the event log"]);
    let incident = fixture("incident-503");
    fs::copy(&incident, log("live.jsonl")).unwrap();
    assert_eq!(export(&named, 0), (fs::read_to_string(&incident).unwrap(), String::new()));

    let part = |number: u64| {
        let head = r#"{"log":"throughline","version":1,"started_ms":1763715600000,"part":"#;
        let clusters = r#""clusters":[{"name":"e","roles":["edge"]}]}"#;
        let line = format!(r#"{{"at_ms":{},"event":"timed_out"}}"#, 1_763_715_600_000 + number);
        format!("{head}{number},{clusters}\n{line}\n")
    };
    for (name, number) in [("live.jsonl", 5), ("live.jsonl.1", 4), ("live.jsonl.2", 2)] {
        fs::write(log(name), part(number)).unwrap();
    }
    let (out, err) = export(&named, 1);
    assert_eq!(out.lines().count(), 4, "one header: {out}");
    assert_contains(&err, &["begins with part 2", "warning: 1 parts of"]);
    let (_, err) = export("null", 2);
    assert_contains(&err, &["export.yaml sets no eventLog.file"]);
    let (_, err) = run(&["export"], 2);
    assert_contains(&err, &["/etc/throughline/config/config.yaml"]);
}
