//! What a person does to a run: an object is paused by annotation; and what a run tells a person at its
//! start.

use crate::live::fleet::bench;
use crate::log::Log;

/// The upstream is not configured, as after a typing error in its name: the run says so by itself.
#[tokio::test]
async fn a_run_says_what_it_is_and_that_an_upstream_is_not_configured_until_it_is() {
    let log = Log::default();
    let _guard = log.capture();
    let bench = bench("naming").await;
    let running = bench.run(false);
    log.until_contains("name upstream project, which is not followed").await;
    let text = log.text();
    let line = |part: &str| {
        let mut lines = text.lines().filter(|line| line.contains(part));
        let found = lines.next().unwrap().to_owned();
        assert_eq!(lines.next(), None, "once");
        found
    };
    let banner = line("throughline starts");
    for part in [
        concat!("version=\"", env!("CARGO_PKG_VERSION")),
        "commit=",
        "clusters=\"hub (hub, edge)\"",
        "leads=\"always, without an election\"",
        "orphans=\"report only\"",
        "event_log=",
        "dry_run=false",
    ] {
        assert!(banner.contains(part), "{part}: {banner}");
    }
    let warning = line("name upstream project, which is not followed");
    assert!(warning.contains("WARN") && warning.contains("Add project to `clusters`"), "{warning}");
    running.reload(bench.config(true)).await;
    log.until_contains("resolved cause=\"upstream_unknown\" cluster=project").await;
    running.stop().await;
    bench.verify();
}
