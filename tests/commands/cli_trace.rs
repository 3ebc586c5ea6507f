//! `throughline trace` and `throughline status` from the command line: from clusters, from a running
//! instance and from event logs; their texts and exit codes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline_sim::apiserver::Fault;

use crate::environment::{Environment, UID, run_until};
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
async fn clusters_instance_and_log_give_the_same_trace() {
    let environment = Environment::new().await;
    let (instance, url) = environment.start_instance().await;
    let (config, log) = (environment.file("config.yaml"), environment.file("events.jsonl"));
    let sources = [["--config", &config], ["--state", &url], ["--log", &log]];
    let json = [&LAB[..], &["--output", "json"]].concat();
    for source in &sources {
        let out = run_until(&environment, 0, &json, source).await;
        let trace: Value = serde_json::from_str::<Value>(&out).unwrap()["traces"][0].clone();
        let hop = |hop: &Value| [hop["hop"].clone(), hop["cluster"].clone(), hop["state"].clone()];
        let hops: Vec<_> = trace["hops"].as_array().unwrap().iter().map(hop).collect();
        let expected = json!([
            ["upstream", "up", "ok"],
            ["mirrored", "down", "ok"],
            ["arrived", "down", "ok"],
            ["touched", "down", "ok"]
        ]);
        assert_eq!(json!(hops), expected, "{source:?}");
        assert_eq!(trace["hops"][0]["says"]["online"], true);
        assert_eq!((&trace["first"], &trace["state"]), (&Value::Null, &json!("ok")));
        let text = run_until(&environment, 0, &LAB, source).await;
        assert!(text.contains("\nEvery hop agrees.\n"), "{text}");
        let table = run_until(&environment, 0, &["status"], source).await;
        assert!(table.contains("up        default/lab  down / down  online    settled"), "{table}");
        assert!(table.contains("\n1 connector, 0 stuck, 0 pending  "), "{table}");
    }
    // Nobody mirrors any more.
    drop(instance);
    environment.set_online(false);
    let before = environment.down.sim.lock().unwrap().version(&environment.down.cluster);
    let text = run_until(&environment, 1, &LAB, &["--config", &config]).await;
    assert!(
        text.contains(" at mirrored (down): the hub Connector does not have the upstream status"),
        "{text}"
    );
    assert!(
        text.contains("\n  Expected: offline.\nWhat to do:\n  - check that a throughline "),
        "{text}"
    );
    let gateway = format!("ns-{UID}/app");
    let (code, by_gateway, _) = environment.live(&["trace", "gateway", &gateway]).await;
    assert_eq!((code, by_gateway.contains("mirrored (down): ")), (1, true), "{by_gateway}");
    let after = environment.down.sim.lock().unwrap().version(&environment.down.cluster);
    assert_eq!(after, before, "a trace writes nothing");
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
    assert!(out.contains("  unknown  mirrored   down  ?"), "{out}");
    assert!(
        out.contains("Unknown at mirrored (down): not allowed to list Connectors (403 Forbidden"),
        "{out}"
    );
    assert!(
        out.contains("- for down: grant list and watch on connectors.networking.datumapis.com"),
        "{out}"
    );
    let (code, out, _) = environment.live(&["status"]).await;
    assert!(code == 1 && out.contains("\n1 connector, 0 stuck, 1 unknown, 0 pending"), "{out}");
    let banner =
        "\ndown: not allowed to list Connectors (403): 1 connector unknown\n  → grant list and ";
    assert!(out.contains(banner) && out.matches("403").count() == 1, "{out}");
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
    next("1 connector, ").await;
    environment
        .up
        .put(json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": "default", "name": "another"}}));
    let row = next("default/another").await;
    assert!(row.contains("unreplicated"), "{row}");
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
    assert_eq!(
        out,
        "\
default/home-lab in project-a; ns-c8119df3-eb49-4c75-b215-c2d097ca4f43/home-lab at hub and edges
  2026-11-21 09:19:52.865 UTC, from a recording without throughline

  ok       upstream   project-a  online 4c6b5177     5.77 s
  wrong    mirrored   edge       offline
  ok       carried    edge       offline             16.4 s
  wrong    announced  edge       app-00 and 25 more

Stuck at mirrored (edge): the hub Connector does not have the upstream status; no throughline was
  writing in this recording.
  Expected: online 4c6b5177.
What to do:
  - see what throughline would have done:
      throughline replay FILE
Also at announced (edge, app-00 and 25 more): the trigger does not announce what the edge Connector
  says.
Note: the last writers are not known: the objects have no managedFields.
"
    );
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
    let (code, out, _) = run(&["status", "--log", INCIDENT, "--output", "json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    let rows = json["connectors"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| &row["upstream"]["name"]).collect();
    assert_eq!(
        (code, names),
        (1, vec![&json!("home-lab"), &json!("office")]),
        "the stuck one first"
    );
    assert_eq!(rows[0]["stuck"]["hop"], "touched");
    assert_eq!((&json["source"], &rows[1]["stuck"]), (&json!("recording"), &Value::Null));
    let (code, out, _) = run(&["status", "--log", INCIDENT, "--stuck"]);
    assert!(code == 1 && out.contains("home-lab") && !out.contains("office"), "{out}");
    let (code, out, _) = run(&["status", "--log", INCIDENT, "-n", "elsewhere"]);
    assert!(code == 0 && out.starts_with("no connectors, 0 stuck"), "{out}");
    let (code, out, _) = run(&["status", "--log", INCIDENT, "-n", "default"]);
    assert!(code == 1 && out.starts_with("UPSTREAM "), "{out}");
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
