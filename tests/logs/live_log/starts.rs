//! What a start does with the files of others and of earlier runs.

use super::*;

#[test]
fn a_hundred_starts_lose_nothing() {
    let file = temp_folder("restart").join("log");
    for run in 0..100 {
        // As a process that is killed: not even its last line is whole.
        write(&config(&file, 1 << 20), run..run + 1, 10);
        let mut whole = fs::read(&file).unwrap();
        whole.extend_from_slice(b"{\"at_ms\":17");
        fs::write(&file, whole).unwrap();
    }
    assert_eq!(rotated(&file).0, 99);
    for run in 0..100 {
        let name = numbered(&file, 99 - run);
        assert_eq!((times(&name), open(&name).warnings()), (vec![u64::from(run)], vec![]), "{run}");
    }
}

#[test]
fn a_hundred_starts_that_saw_nothing_keep_the_first_log() {
    let file = temp_folder("empty-starts").join("log");
    let config = config(&file, 1 << 20);
    write(&config, 1..2, 0);
    let torn = ["", "{", "{\"log\":\"throughline\",\"version\":1,\"part\":1,\"sta"];
    for torn in torn.into_iter().cycle().take(100) {
        write(&config, 0..0, 0);
        fs::write(&file, torn).unwrap();
    }
    write(&config, 0..0, 0);
    assert_eq!((times(&file), rotated(&file).0), (vec![], 1));
    assert_eq!(times(&numbered(&file, 1)), [1]);
    // What is no log of ours is renamed: nobody but its owner knows what it is good for.
    fs::write(&file, "{\"mine\":1}").unwrap();
    write(&config, 0..0, 0);
    assert_eq!(fs::read_to_string(numbered(&file, 1)).unwrap(), "{\"mine\":1}");
}

/// Why no log is written to this file.
fn refusal(file: &Path) -> String {
    let start = LiveLog::start(&config(file, 5_000), &header(), Arc::default(), Outside::default());
    format!("{:#}", start.unwrap_err())
}

#[test]
fn two_processes_do_not_write_one_log() {
    let file = temp_folder("two").join("log");
    let mut log = start(&config(&file, 60_000), &header());
    for number in 0..50 {
        log.event(&event(number, 300));
        if number % 10 == 0 {
            let error = refusal(&file);
            let place = format!("eventLog.file {}: another process writes this", file.display());
            assert!(error.starts_with(&place), "{error}");
            assert!(error.contains("log.lock") && error.contains("a file of its own"), "{error}");
        }
    }
    finish(log);
    assert_eq!(times(&file), (0..50).collect::<Vec<_>>());
    let lock = PathBuf::from(format!("{}.lock", file.display()));
    assert!(!lock.exists(), "nothing is left of the lock");
    // Neither does a lock that a killed process left behind.
    fs::write(lock, "").unwrap();
    write(&config(&file, 60_000), 0..0, 0);
}

#[test]
fn links_are_refused() {
    let folder = temp_folder("links");
    let elsewhere = folder.join("elsewhere");
    for (name, target) in [("dangling", "no-such-file"), ("to-a-file", "elsewhere")] {
        fs::write(&elsewhere, "precious").unwrap();
        for place in ["", ".lock"] {
            let file = folder.join(name);
            let link = PathBuf::from(format!("{}{place}", file.display()));
            std::os::unix::fs::symlink(target, &link).unwrap();
            let error = refusal(&file);
            assert!(error.contains("it is a symbolic link"), "{error}");
            assert!(link.is_symlink());
            fs::remove_file(&link).unwrap();
        }
        assert!(!folder.join("no-such-file").exists());
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
    }
    // A device is still written to, also through a link, as /dev/stdout is one.
    std::os::unix::fs::symlink("/dev/null", folder.join("null")).unwrap();
    write(&config(&folder.join("null"), 1 << 20), 0..0, 0);
}
