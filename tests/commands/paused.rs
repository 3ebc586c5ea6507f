//! What `status` and `trace` say of an object that a person has paused.

/// What `status` and `trace` say of a recording.
fn said(args: &[&str], log: &str) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(args)
        .args(["--log", log, "--at", "2026-11-22T08:05:00Z"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn status_and_trace_say_that_it_is_paused_and_how_to_end_that() {
    for (kind, cluster) in [("connector", "hub"), ("gateway", "edge-1")] {
        let log =
            format!("{}/fixtures/paused-{kind}-is-left-alone.jsonl", env!("CARGO_MANIFEST_DIR"));
        let trace = said(&["trace", "connector", "default/home-lab"], &log);
        assert!(trace.contains("paused by annotation"), "{trace}");
        if kind == "connector" {
            let status = said(&["status"], &log);
            assert!(status.contains("  held   mirrored  paused "), "{status}");
            let remedy = "annotate Connector home-lab throughline.datumapis.com/paused-";
            let words = trace.replace("\n    ", " ");
            assert!(words.contains(remedy) && trace.contains(cluster), "{trace}");
        }
    }
}
