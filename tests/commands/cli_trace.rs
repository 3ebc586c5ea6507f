//! `throughline trace` and `throughline status` from the command line: from clusters, from a running
//! instance and from event logs; their texts and exit codes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline_sim::apiserver::Fault;

use crate::environment::Environment;
use crate::program::{Running, program, run};

const LAB: [&str; 3] = ["trace", "connector", "default/lab"];
const INCIDENT: &str = "fixtures/incident-503.jsonl";

/// What a log names may hold anything; a line break in it must not move or hide another row.
#[test]
fn every_connector_has_one_row_whatever_its_name_holds() {
    let log = std::fs::read_to_string(INCIDENT).unwrap().replace("home-lab", "home\\nlab");
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("line-break.jsonl");
    std::fs::write(&file, log).unwrap();
    let (_, out, err) = run(&["status", "--log", file.to_str().unwrap()]);
    let rows: Vec<_> = out.lines().filter(|line| line.starts_with("project-a  ")).collect();
    let names = ["default/home\u{fffd}lab  ", "default/office    "];
    assert!(rows.len() == 2 && rows.iter().zip(names).all(|(r, n)| r.contains(n)), "{out}{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_connector_that_is_gone_is_traced() {
    let environment = Environment::new().await;
    let lab = ObjectKey::new("default", "lab");
    let up = &environment.up;
    up.sim.lock().unwrap().remove(&up.cluster, Kind::Connector, &lab);
    let (code, out, err) = environment.live(&LAB).await;
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("down"), "{out}");
    assert!(!err.contains("panicked"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_list_is_unknown_and_names_the_missing_permission() {
    let environment = Environment::new().await;
    environment.down.handle.inject(&Fault::on_watches(Kind::Connector, 403), 1_000);
    let (code, out, _) = environment.live(&LAB).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("  unknown  mirrored   down"), "{out}");
    let denied = "permission_missing: down does not allow throughline to list";
    assert!(out.contains(&format!("unknown at mirrored (down), {denied}")), "{out}");
    assert!(out.contains("→ As an administrator:"), "{out}");
    let (code, out, _) = environment.live(&["status"]).await;
    assert!(code == 1 && out.contains("\n1 connector: 1 unknown\n"), "{out}");
    let line = "\ndown: permission_missing, 1 connector: down does not allow throughline to list";
    assert!(out.contains(line) && out.matches("permission_missing").count() == 2, "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_watch_prints_each_changed_row_into_a_pipe() {
    let environment = Environment::new().await;
    let mut command = program();
    command.args(["status", "--watch", "--config", &environment.file("config.yaml")]);
    let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || lines.try_for_each(|line| sender.send(line)));
    let mut next = async |text: &str| loop {
        let line = tokio::time::timeout(Duration::from_secs(30), received.recv()).await;
        let line = line.unwrap_or_else(|_| panic!("{text} did not come")).unwrap();
        if line.contains(text) {
            return line;
        }
    };
    next("UPSTREAM").await;
    next("default/lab").await;
    next("1 connector: ").await;
    environment
        .up
        .put(json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": "default", "name": "another"}}));
    let row = next("default/another").await;
    assert!(row.contains("  mirrored  "), "{row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_without_an_instance_is_an_error_with_a_remedy() {
    let environment = Environment::new().await;
    let url = environment.up.handle.url().to_owned();
    let (code, out, err) = environment.run(&LAB, &["--state", &url]).await;
    assert_eq!((code, &*out), (2, ""));
    let start = format!("throughline: cannot read {}/state; ", url.trim_end_matches('/'));
    assert!(err.starts_with(&start) && err.contains("it answers 404 Not Found"), "{err}");
    assert!(err.contains("kubectl port-forward"), "{err}");
    let (code, _, err) = environment.run(&["status"], &["--state", "https://x"]).await;
    assert!(code == 2 && err.contains("speaks plain HTTP"), "{err}");
    // It accepts the connection and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let (code, _, err) = environment.run(&LAB, &["--state", &address, "--timeout", "200ms"]).await;
    assert!(code == 2 && err.contains("no answer within 200 ms"), "{err}");
}

#[test]
fn the_incident_is_traced_at_chosen_moments() {
    let moment = |at: &str| run(&[&LAB_OF_INCIDENT[..], &["--log", INCIDENT, "--at", at]].concat());
    let (code, out, err) = moment("+1s");
    assert_eq!((code, &*err), (0, ""), "{out}");
    let (code, out, _) = moment("+20s");
    assert_eq!(code, 1);
    expect_test::expect_file![concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/commands/look/incident.txt"
    )]
    .assert_eq(&out);
    let (same, later, _) = moment("2026-11-21T09:19:52.865Z");
    assert_eq!((same, later), (1, out));
    let mut narrow = program();
    narrow.args(LAB_OF_INCIDENT).args(["--log", INCIDENT]).env("COLUMNS", "60");
    let narrow = String::from_utf8(narrow.output().unwrap().stdout).unwrap();
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
}

const LAB_OF_INCIDENT: [&str; 3] = ["trace", "connector", "default/home-lab"];

#[test]
fn the_status_table_can_be_filtered_and_printed_as_json() {
    let json = |more: &[&str]| -> (i32, Value) {
        let (code, out, _) = run(&[&["status", "--log", INCIDENT, "-o", "json"], more].concat());
        (code, serde_json::from_str(&out).unwrap())
    };
    let names = |fleet: &Value| {
        let all = fleet["connectors"].as_array().unwrap().iter();
        all.map(|of| of["upstream"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (code, fleet) = json(&[]);
    assert_eq!(
        (code, names(&fleet)),
        (1, vec!["home-lab".into(), "office".into()]),
        "the worst first"
    );
    assert_eq!(
        (&fleet["source"], &fleet["connectors"][0]["state"]),
        (&json!("recording"), &json!("stuck"))
    );
    for (filter, code, left) in
        [(&["--stuck"][..], 1, 1), (&["-n", "default"], 1, 2), (&["-n", "elsewhere"], 0, 0)]
    {
        let (found, filtered) = json(filter);
        assert_eq!((found, names(&filtered).len()), (code, left), "{filter:?}");
        assert_eq!(filtered["counts"], fleet["counts"], "of all connectors");
    }
    let (code, out, _) = run(&["status", "--log", INCIDENT, "-n", "elsewhere"]);
    assert!(code == 0 && out.starts_with("2 connectors: "), "{out}");
}

#[test]
fn bad_input_is_an_error_that_says_what_is_accepted() {
    let cases: [(&[&str], &str); 8] = [
        (&["--at", "yesterday"], "an offset such as +90s"),
        (&["--at", "+5"], "expected a number and a unit"),
        (&["--at", "2020-01-01T00:00:00Z"], "is before the log begins (2026-11-21T09:19:32.865Z)"),
        (&["--in", "nowhere"], "no connector is called default/home-lab"),
        (&["--state", "http://127.0.0.1:1"], "cannot be used with"),
        (&["--output", "toml"], "possible values: text, json"),
        (&["--timeout", "soon"], "expected a number and a unit"),
        (&["--nonsense"], "--nonsense"),
    ];
    for (more, text) in cases {
        let args = [&LAB_OF_INCIDENT[..], &["--log", INCIDENT], more].concat();
        let (code, out, err) = run(&args);
        assert_eq!((code, &*out), (2, ""), "{more:?}: {err}");
        assert!(err.contains(text), "{more:?}: {err}");
    }
    let (code, _, err) = run(&["trace", "connector", "default/home-lap", "--log", INCIDENT]);
    assert!(code == 2 && err.ends_with("did you mean default/home-lab?\n"), "{err}");
    let (code, _, err) = run(&["trace", "connector", "home-lab", "--log", INCIDENT]);
    assert!(code == 2 && err.contains("NAMESPACE/NAME"), "{err}");
    let (code, _, err) = run(&["status", "--watch", "--log", INCIDENT]);
    assert!(code == 2 && err.contains("cannot be used with"), "{err}");
    let (code, _, err) = run(&["status", "--log", "/nowhere"]);
    assert!(code == 2 && err.starts_with("throughline: /nowhere: can't open"), "{err}");
}

/// A moment after the end of the log is a warning, and no error.
#[test]
fn a_moment_after_the_end_of_the_log_shows_its_end() {
    let args = [&LAB_OF_INCIDENT[..], &["--log", INCIDENT, "--at", "+10h"]].concat();
    let (code, out, err) = run(&args);
    assert_eq!(code, 1, "{out}");
    assert!(err.starts_with("warning: the log ends at 2026-11-21T09:20:39.323Z"), "{err}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child =
        program().args(["status", "--log", INCIDENT]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
