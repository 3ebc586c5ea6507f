//! The examples at the end of `COMMAND --help` and in the man pages.

pub(super) const RUN: &str = "\
Examples:
  throughline run --config live.yaml
  throughline run --config live.yaml --dry-run --set eventLog.file=run.jsonl";

pub(super) const CHECK: &str = "\
Examples:
  throughline check --config live.yaml
  throughline check --config live.yaml --upstream shop";

pub(super) const STATUS: &str = "\
Examples:
  throughline status --config live.yaml --stuck
  throughline status --state http://127.0.0.1:8080 --watch
  throughline status --log run.jsonl --at +90s -o json";

pub(super) const TRACE: &str = "\
Examples:
  throughline trace connector default/home-lab --config live.yaml
  throughline trace gateway ns-1/app --state http://127.0.0.1:8080";

pub(super) const RECORD: &str = "\
Examples:
  throughline record night.jsonl --config live.yaml --for 10m";

pub(super) const REPLAY: &str = "\
Examples:
  throughline replay run.jsonl
  throughline replay run.jsonl --connector default/home-lab
  throughline replay run.jsonl -o html > run.html";

pub(super) const ORPHANS: &str = "\
Examples:
  throughline orphans --config live.yaml
  throughline orphans restore run.jsonl | kubectl create -f -";

pub(super) const CONFIG: &str = "\
Examples:
  throughline config --config live.yaml --set touch.scope=gatewayClass";

pub(super) const DEMO: &str = "\
Examples:
  throughline demo
  throughline demo recorded.jsonl --longest-pause 24h";

pub(super) const TRACE_CONNECTOR: &str = "\
Examples:
  throughline trace connector default/home-lab --config live.yaml
  throughline trace connector default/home-lab --state http://127.0.0.1:8080 -o json";

pub(super) const TRACE_GATEWAY: &str = "\
Examples:
  throughline trace gateway ns-1/app --config live.yaml";

pub(super) const RESTORE: &str = "\
Examples:
  throughline orphans restore run.jsonl | kubectl create -f -";

pub(super) const EXPORT: &str = "\
Examples:
  kubectl exec deploy/throughline -- /throughline export > run.jsonl
  throughline export --config live.yaml | gzip > run.jsonl.gz";
