//! What a run leaves for a closer look.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use throughline::event_log::LogReader;
use throughline::replay::{ReplayMode, ReplayOptions, replay};
use throughline::report::{ReportOptions, html};

use crate::many::try_simulate;
use crate::plan::{Plan, Report};
use crate::shrink::shrink;

/// Writes the requests and faults, and each instance's event log with a picture of it.
pub(crate) fn keep(report: &Report) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{}", report.plan.seed));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("plan"), format!("{}\n", report.plan)).unwrap();
    fs::write(folder.join("broken"), report.broken.join("\n")).unwrap();
    fs::write(folder.join("requests.log"), &report.trace).unwrap();
    for (n, log) in report.logs.iter().enumerate() {
        fs::write(folder.join(format!("instance-{n}.jsonl")), log).unwrap();
        picture(log, &folder.join(format!("instance-{n}.html")));
    }
    let folder = folder.display();
    println!(
        "in {folder}: every request and fault in requests.log; for each life of an instance its"
    );
    println!("event log instance-N.jsonl, and instance-N.html, the picture of it");
}

fn picture(log: &[u8], path: &Path) {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let options = ReplayOptions { mode: Some(ReplayMode::Verify), ..ReplayOptions::default() };
    let mut reader = LogReader::new(&name, log).unwrap();
    let none = None::<std::io::Sink>;
    // A log that cannot be replayed is among what is broken.
    let Ok(replayed) = replay(&mut reader, &name, |_| Ok(()), &options, none, |_| {}) else {
        return;
    };
    let mut file = BufWriter::new(File::create(path).unwrap());
    html(&replayed, &ReportOptions::default(), &mut file).unwrap();
}

/// Shows a run that failed, and a smaller one that fails, too.
pub(crate) fn show_failed(report: &Report) {
    println!("{report}");
    println!("SIM_SEED={} make sim repeats it; looking for a smaller plan …", report.plan.seed);
    let run = |plan: &Plan| {
        let report = try_simulate(plan);
        (!report.broken.is_empty()).then_some(report.drawn)
    };
    let (small, runs) = shrink(&report.plan, run);
    let report = try_simulate(&small);
    println!("after {runs} runs:\n{report}");
    println!("SIM_PLAN='{small}' make sim repeats it");
    keep(&report);
}
