//! A disk that fails by a script: the log that it leaves can always be read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::files::{Create, LogFile};
use super::*;
use crate::core::data::ids::Kind;
use crate::core::data::time::UnixMillis;
use crate::event_log::{ClusterSpec, LogEntry, LogReader, LogWriter};

/// The results of the next writes: `None` succeeds; `Some(n)` writes n bytes before the disk is full.
/// All writes after the script succeed.
type Script = Arc<Mutex<Vec<Option<usize>>>>;

struct FlakyFile {
    file: File,
    script: Script,
    can_cut: bool,
}

impl Write for FlakyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut script = self.script.lock().unwrap();
        match script.first().copied() {
            None => self.file.write(bytes),
            Some(None) => {
                script.remove(0);
                self.file.write_all(bytes).map(|()| bytes.len())
            }
            // First the part that fits, then the error, as a disk does it.
            Some(Some(0)) => {
                script.remove(0);
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(Some(room)) => {
                script[0] = Some(0);
                // Never a whole line without its line break: it would count as both written and lost.
                let room = room.min(bytes.len() - 2);
                self.file.write_all(&bytes[..room]).map(|()| room)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl LogFile for FlakyFile {
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        if self.can_cut { self.file.set_len(bytes) } else { Err(io::ErrorKind::Unsupported.into()) }
    }
}

fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("throughline-live-log-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    folder
}

fn header() -> Header {
    let roles = vec![crate::core::data::ids::Role::Edge];
    Header { clusters: vec![ClusterSpec { name: "edge".into(), roles }], ..Header::default() }
}

/// The `number`-th line, of 20 kB: about three are written at once.
fn event(number: u64) -> Event {
    let error = format!("{number} {}", "x".repeat(20_000)).into();
    let kind = EventKind::WatchLost { cluster: "edge".into(), kind: Kind::Gateway, error };
    Event { at: UnixMillis(1_763_715_600_000 + number), kind }
}

fn retention(max_bytes: u64) -> Retention {
    Retention { max_bytes, keep_bytes: max_bytes.saturating_mul(51), keep_days: 14 }
}

fn flaky(script: Script, can_cut: bool) -> Create {
    Box::new(move |path: &Path| {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Box::new(FlakyFile { file, script: script.clone(), can_cut }) as Box<dyn LogFile>)
    })
}

/// Runs the worker on so many lines, in this thread.
fn write(path: &Path, script: &[Option<usize>], can_cut: bool, lines: u64, max_bytes: u64) {
    let script = Arc::new(Mutex::new(script.to_vec()));
    let create = flaky(script.clone(), can_cut);
    let part = LogPart { number: 1, started: UnixMillis(7) };
    let files = Files::start(path, retention(max_bytes), part, create).unwrap();
    let (metrics, waiting) = (Arc::new(Metrics::new()), Arc::new(AtomicUsize::new(0)));
    let pauses = (Duration::ZERO, Duration::ZERO);
    let worker = Worker::new(files, header(), None, metrics, waiting, pauses).unwrap();
    let (send, receive) = unbounded_channel();
    for number in 0..lines {
        send.send(QueuedLine { bytes: 0, content: QueuedContent::Event(event(number)) }).unwrap();
    }
    drop(send);
    worker.run(receive);
    assert_eq!(script.lock().unwrap().first(), None, "the script was not used up");
}

/// The numbers of the lines in the log, and how many the gaps say are missing.
fn read(path: &Path) -> (Vec<u64>, u64) {
    let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
    let mut numbers = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        let LogEntry::Event(Event { kind: EventKind::WatchLost { error, .. }, .. }) = line else {
            panic!("an unknown line")
        };
        numbers.push(error.split_once(' ').unwrap().0.parse().unwrap());
    }
    let said = |text: &str| text.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    let gaps = reader.gaps();
    let missing = gaps.iter().map(|gap| {
        assert!(gap.text.contains("missing here"), "{gap}");
        said(&gap.text).unwrap_or(1)
    });
    (numbers, missing.sum())
}

#[test]
fn after_any_failed_write_the_log_can_be_read_and_says_what_is_missing() {
    let folder = folder("full");
    let mut lost_at_most = 0;
    for can_cut in [true, false] {
        for max_bytes in [1 << 30, 100_000] {
            for ok_before in 0..6 {
                for torn in [&[0][..], &[1], &[50], &[20_100], &[20_050, 3, 0, 41_000]] {
                    let path =
                        folder.join(format!("log-{can_cut}-{max_bytes}-{ok_before}-{torn:?}"));
                    let mut script = vec![None; ok_before];
                    script.extend(torn.iter().copied().map(Some));
                    write(&path, &script, can_cut, 30, max_bytes);
                    let (numbers, missing) = read(&path);
                    assert!(numbers.is_sorted_by(|a, b| a < b), "{path:?}: {numbers:?}");
                    assert_eq!(numbers.len() as u64 + missing, 30, "{path:?}: {numbers:?}");
                    lost_at_most = lost_at_most.max(missing);
                }
            }
        }
    }
    assert!((4..20).contains(&lost_at_most), "{lost_at_most}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn deleting_the_log_to_free_space_loses_only_what_was_deleted() {
    let folder = folder("room");
    for how in ["deleted", "emptied", "replaced"] {
        let path = folder.join(how);
        let script: Script = Arc::new(Mutex::new(vec![None, Some(0)]));
        let create = flaky(script, true);
        let part = LogPart { number: 1, started: UnixMillis(7) };
        let mut files = Files::start(&path, retention(1 << 30), part, create).unwrap();
        let line = |number| {
            let mut writer = LogWriter::new(Vec::new(), &header()).unwrap();
            writer.sink_mut().clear();
            writer.event(&event(number)).unwrap();
            writer.into_inner()
        };
        files.append(&header(), &line(1)).unwrap();
        assert_eq!(files.append(&header(), &line(2)).unwrap_err().0, 0);
        match how {
            "deleted" => fs::remove_file(&path).unwrap(),
            "emptied" => fs::write(&path, "").unwrap(),
            _ => fs::write(&path, "something else\n").unwrap(),
        }
        files.append(&header(), &line(3)).unwrap();
        let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
        let LogEntry::Event(seen) = reader.next_line().unwrap().unwrap() else {
            panic!("no event")
        };
        assert_eq!(seen.at, event(3).at, "{how}");
        assert!(reader.gaps()[0].text.starts_with("this is part 2 of a rotated log"), "{how}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_disk_that_stays_full_gets_nothing_and_the_run_still_ends() {
    let folder = folder("stays-full");
    let path = folder.join("log");
    let script: Script = Arc::new(Mutex::new(vec![Some(0); 200]));
    let create = flaky(script, true);
    let part = LogPart { number: 1, started: UnixMillis(7) };
    let files = Files::start(&path, retention(1 << 30), part, create).unwrap();
    let metrics = Arc::new(Metrics::new());
    let mut log = LiveLog::start_on(
        files,
        None,
        &header(),
        metrics,
        1 << 20,
        (worker::PAUSE_MIN, worker::PAUSE_MAX),
    )
    .unwrap();
    for number in 0..100 {
        log.event(&event(number));
    }
    log.finish(Duration::from_secs(60));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    fs::remove_dir_all(folder).unwrap();
}
