//! What a start does with the files of others and of earlier runs.

use super::*;

#[test]
fn a_hundred_starts_lose_nothing() {
    let file = folder("restart").join("log");
    for run in 0..100 {
        // As a process that is killed: not even its last line is whole.
        let mut log = start(&config(&file, 1 << 20, 1), &header());
        log.event(&event(run, 10));
        log.finish(GRACE);
        let mut whole = fs::read(&file).unwrap();
        whole.extend_from_slice(b"{\"at_ms\":17");
        fs::write(&file, whole).unwrap();
    }
    assert_eq!(rotated(&file).0, 99);
    for run in 0..100 {
        let name = if run == 99 { file.clone() } else { numbered(&file, 99 - run) };
        assert_eq!((times(&name), open(&name).gaps()), (vec![u64::from(run)], vec![]), "{run}");
    }
}

#[test]
fn a_start_that_saw_nothing_leaves_no_file() {
    let file = folder("empty-starts").join("log");
    let mut log = start(&config(&file, 1 << 20, 1), &header());
    log.event(&event(1, 0));
    log.finish(GRACE);
    for torn in ["", "{", "{\"log\":\"throughline\",\"version\":1,\"part\":1,\"sta"] {
        start(&config(&file, 1 << 20, 1), &header()).finish(GRACE);
        fs::write(&file, torn).unwrap();
    }
    start(&config(&file, 1 << 20, 1), &header()).finish(GRACE);
    assert_eq!((times(&file), rotated(&file).0), (vec![], 1));
    assert_eq!(times(&numbered(&file, 1)), [1]);
    // What is no log of ours is renamed: nobody but its owner knows what it is good for.
    fs::write(&file, "{\"mine\":1}").unwrap();
    start(&config(&file, 1 << 20, 1), &header()).finish(GRACE);
    assert_eq!(fs::read_to_string(numbered(&file, 1)).unwrap(), "{\"mine\":1}");
}

#[test]
fn parts_that_are_much_older_than_the_newest_go_at_a_start() {
    let file = folder("old").join("log");
    let config = EventLogConfig { keep_days: 14, ..config(&file, 1 << 20, 5) };
    for run in 0..4 {
        let mut log = start(&config, &header());
        log.event(&event(run, 0));
        log.finish(GRACE);
    }
    let set_age = |number: u32, days: u32| {
        let at = std::time::SystemTime::now() - Duration::from_secs(86_400) * days;
        let opened = File::options().append(true).open(numbered(&file, number)).unwrap();
        opened.set_modified(at).unwrap();
    };
    // After a month without a run, what was last known is still there.
    set_age(1, 30);
    set_age(2, 31);
    set_age(3, 43);
    fs::write(&file, "").unwrap();
    start(&config, &header()).finish(GRACE);
    assert_eq!(rotated(&file).0, 3);
    set_age(1, 0);
    start(&config, &header()).finish(GRACE);
    assert_eq!((rotated(&file).0, times(&numbered(&file, 1))), (1, vec![2]));
}

#[test]
fn what_others_named_like_a_part_is_neither_renamed_nor_deleted() {
    let file = folder("foreign").join("log");
    let place = |number, text: &str| fs::write(numbered(&file, number), text).unwrap();
    place(2, "notes of the on-call engineer");
    place(4, "{\"log\":\"throughline\",\"version\":1,\"clusters\":[]}\n");
    std::os::unix::fs::symlink("/nowhere", numbered(&file, 5)).unwrap();
    fs::create_dir(numbered(&file, 6)).unwrap();
    place(70, "far away");
    fs::write(format!("{}.007", file.display()), "a spy").unwrap();
    let before = |number| fs::read_to_string(numbered(&file, number)).ok();
    let kept: Vec<_> = [2, 4, 70].into_iter().map(before).collect();
    let mut log = start(&config(&file, 5_000, 4), &header());
    for number in 0..100 {
        log.event(&event(number, 300));
    }
    log.finish(GRACE);
    assert_eq!([2, 4, 70].into_iter().map(before).collect::<Vec<_>>(), kept);
    assert!(numbered(&file, 5).is_symlink() && numbered(&file, 6).is_dir());
    // The log goes on around them, and is read across them.
    for number in [1, 3, 7] {
        assert!(size(&numbered(&file, number)) > 1_000, "{number}");
    }
    assert!(times(&file).len() > 40, "{:?}", times(&file));
}

#[test]
fn two_processes_do_not_write_one_log() {
    let file = folder("two").join("log");
    let mut log = start(&config(&file, 5_000, 100), &header());
    for number in 0..50 {
        log.event(&event(number, 300));
        if number % 10 == 0 {
            let second = LiveLog::start(&config(&file, 5_000, 1), &header(), Arc::default());
            let error = format!("{:#}", second.unwrap_err());
            let place = format!("eventLog.file {}: another process writes this", file.display());
            assert!(error.starts_with(&place), "{error}");
            assert!(error.contains("log.lock") && error.contains("a file of its own"), "{error}");
        }
    }
    log.finish(GRACE);
    assert_eq!(times(&file), (0..50).collect::<Vec<_>>());
    assert!(
        !Path::new(&format!("{}.lock", file.display())).exists(),
        "nothing is left of the lock"
    );
    // Neither does a lock that a killed process left behind.
    fs::write(format!("{}.lock", file.display()), "").unwrap();
    start(&config(&file, 5_000, 100), &header()).finish(GRACE);
}

#[test]
fn links_are_refused() {
    let folder = folder("links");
    let elsewhere = folder.join("elsewhere");
    for (name, target) in [("dangling", "no-such-file"), ("to-a-file", "elsewhere")] {
        fs::write(&elsewhere, "precious").unwrap();
        for place in ["", ".lock"] {
            let file = folder.join(name);
            let link = PathBuf::from(format!("{}{place}", file.display()));
            std::os::unix::fs::symlink(target, &link).unwrap();
            let refused = LiveLog::start(&config(&file, 1 << 20, 1), &header(), Arc::default());
            let error = format!("{:#}", refused.unwrap_err());
            assert!(error.contains("it is a symbolic link"), "{error}");
            assert!(link.is_symlink());
            fs::remove_file(&link).unwrap();
        }
        assert!(!folder.join("no-such-file").exists());
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
    }
    // A device is still written to, also through a link, as /dev/stdout is one.
    std::os::unix::fs::symlink("/dev/null", folder.join("null")).unwrap();
    start(&config(&folder.join("null"), 1 << 20, 1), &header()).finish(GRACE);
}
