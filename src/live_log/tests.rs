//! A disk that fails by a script: the log can always be read afterwards.

use std::fs::{self, File};
use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, StorageFull};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::files::Create;
use super::*;
use crate::core::contract::event::ClusterSpec;
use crate::core::data::ids::Kind;
use crate::core::data::time::UnixMillis;
use crate::event_log::{LogEntry, LogReader, LogWriter};

/// The results of the next writes: `None` succeeds; `Some(n)` writes n bytes before the disk is full.
/// All writes after the script succeed.
type Script = Arc<Mutex<Vec<Option<usize>>>>;

struct FlakyFile {
    file: File,
    script: Script,
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
            // First the part that fits, then the error, as on a real disk.
            Some(Some(0)) => {
                script.remove(0);
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(Some(room)) => {
                script[0] = Some(0);
                let room = room.min(bytes.len() - 1);
                self.file.write_all(&bytes[..room]).map(|()| room)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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

/// Line `number`, of 20 kB: about three are written at once.
fn event(number: u64) -> Event {
    let error = format!("{number} {}", "x".repeat(20_000)).into();
    let kind = EventKind::WatchLost { cluster: "edge".into(), kind: Kind::Gateway, error };
    Event { at: UnixMillis(1_763_715_600_000 + number), kind }
}

fn flaky(script: Script) -> Create {
    Box::new(move |path: &Path| {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Box::new(FlakyFile { file, script: script.clone() }) as Box<dyn Write + Send>)
    })
}

fn start(path: &Path, size: u64, create: Create) -> Files {
    Files::start(path, size, LogPart { number: 1, started: UnixMillis(7) }, create).unwrap()
}

/// The text of a line.
fn line(event: &Event) -> Vec<u8> {
    let mut writer = LogWriter::after_header(Vec::new(), &header());
    writer.event(event).unwrap();
    writer.into_inner()
}

fn writer(files: Files) -> Writer {
    Writer::new(files, &header(), None, Arc::new(Metrics::new()), Outside::default())
}

/// Runs the writer on `lines` lines, in this thread.
fn write(path: &Path, script: &[Option<usize>], lines: u64, size: u64) {
    let script = Arc::new(Mutex::new(script.to_vec()));
    let files = start(path, size, flaky(script.clone()));
    let mut writer = writer(files);
    writer.pauses = (Duration::ZERO, Duration::ZERO);
    let (send, receive) = unbounded_channel();
    for number in 0..lines {
        send.send(QueuedLine { bytes: 0, content: QueuedContent::Event(event(number)) }).unwrap();
    }
    drop(send);
    Builder::new_current_thread().build().unwrap().block_on(writer.run(receive));
    assert_eq!(script.lock().unwrap().first(), None, "the script was not used up");
}

/// The numbers of the lines in the log, and the missing lines according to its gaps.
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
    let gaps = reader.warnings();
    let missing = gaps.iter().filter(|warning| warning.is_gap).map(|gap| {
        assert!(gap.text.contains("missing here"), "{gap}");
        said(&gap.text).unwrap_or(1)
    });
    (numbers, missing.sum())
}

#[test]
fn after_any_failed_write_the_log_can_be_read_and_says_what_is_missing() {
    let folder = folder("full");
    let mut lost_at_most = 0;
    for size in [1 << 30, 1_200_000] {
        // A part of the smaller log has seven writes: the eighth begins the next part.
        for ok_before in 0..9 {
            for torn in
                [&[0][..], &[1], &[50], &[900], &[20_100], &[20_050, 3, 0, 41_000], &[usize::MAX]]
            {
                let path = folder.join(format!("log-{size}-{ok_before}-{torn:?}"));
                let mut script = vec![None; ok_before];
                script.extend(torn.iter().copied().map(Some));
                write(&path, &script, 45, size);
                let (numbers, missing) = read(&path);
                assert!(numbers.is_sorted_by(|a, b| a < b), "{path:?}: {numbers:?}");
                assert_eq!(numbers.len() as u64 + missing, 45, "{path:?}: {numbers:?}");
                lost_at_most = lost_at_most.max(missing);
            }
        }
    }
    assert!((4..20).contains(&lost_at_most), "{lost_at_most}");
    fs::remove_dir_all(folder).unwrap();
}

/// Accepts this many bytes. With the next one the process dies.
struct Killed {
    file: File,
    room: Arc<Mutex<usize>>,
}

impl Write for Killed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut room = self.room.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let written = bytes.len().min(*room);
        *room -= written;
        self.file.write_all(&bytes[..written])?;
        assert!(written == bytes.len(), "killed");
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_is_killed_after_any_byte_leaves_a_log_that_can_be_read() {
    let folder = folder("killed");
    let small = |number: u64| Event {
        at: UnixMillis(1_763_715_600_000 + number),
        kind: EventKind::WatchLost {
            cluster: "edge".into(),
            kind: Kind::Gateway,
            error: format!("{number} ").into(),
        },
    };
    // Covers two rotations.
    let mut whole = 0;
    for killed_after in 0..3_000 {
        let path = folder.join(format!("log-{killed_after}"));
        let room = Arc::new(Mutex::new(killed_after));
        let create = Box::new(move |path: &Path| {
            let file = File::options().append(true).create(true).open(path)?;
            Ok(Box::new(Killed { file, room: room.clone() }) as Box<dyn Write + Send>)
        });
        let mut files = start(&path, 4_000, create);
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 0..30 {
                files.append(&header(), &line(&small(number))).unwrap();
            }
        }));
        if written.is_ok() {
            break;
        }
        drop(files);
        let mut files = start(&path, 4_000, Box::new(super::files::create));
        files.append(&header(), &line(&small(100))).unwrap();
        assert_eq!(read(&path), (vec![100], 0), "{killed_after}");
        let before = numbered(&path, 1);
        let (numbers, missing) = if before.exists() { read(&before) } else { (vec![], 0) };
        assert_eq!((numbers.clone(), missing), ((0..numbers.len() as u64).collect(), 0));
        assert!(numbers.len() >= whole, "{killed_after}: {numbers:?}");
        whole = numbers.len();
    }
    assert!(whole > 20, "{whole}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_rotation_that_was_cut_off_is_read_and_completed() {
    let folder = folder("cut-off");
    for renamed in 0..4 {
        let path = folder.join(renamed.to_string());
        let mut files = start(&path, 160_000, Box::new(super::files::create));
        for number in 0..6 {
            files.append(&header(), &line(&event(number))).unwrap();
        }
        drop(files);
        assert!(numbered(&path, 2).exists() && !numbered(&path, 6).exists());
        let last = (1..9).rfind(|number| numbered(&path, *number).exists()).unwrap();
        let expected = read(&path);
        for number in (0..=last).rev().take(renamed) {
            fs::rename(numbered(&path, number), numbered(&path, number + 1)).unwrap();
        }
        let is_moved = renamed as u32 > last;
        assert_eq!(read(&numbered(&path, is_moved.into())), expected, "{renamed} of {last}");
        let mut files = start(&path, 1 << 30, Box::new(super::files::create));
        files.append(&header(), &line(&event(100))).unwrap();
        assert_eq!(read(&numbered(&path, 1)), expected, "{renamed} of {last}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn deleting_the_log_to_free_space_loses_only_what_was_deleted() {
    let folder = folder("room");
    for how in ["deleted", "emptied", "replaced", "deleted with room", "moved with room"] {
        let path = folder.join(how);
        let script: Script = Arc::new(Mutex::new(vec![None, Some(0)]));
        let mut files = start(&path, 1 << 30, flaky(script.clone()));
        files.append(&header(), &line(&event(1))).unwrap();
        if how.ends_with("room") {
            script.lock().unwrap().clear();
        } else {
            assert_eq!(files.append(&header(), &line(&event(2))).unwrap_err().0, 0);
        }
        match how {
            "deleted" | "deleted with room" => fs::remove_file(&path).unwrap(),
            "moved with room" => fs::rename(&path, folder.join("moved")).unwrap(),
            "emptied" => fs::write(&path, "").unwrap(),
            _ => fs::write(&path, "something else\n").unwrap(),
        }
        files.append(&header(), &line(&event(3))).unwrap();
        let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
        let LogEntry::Event(seen) = reader.next_line().unwrap().unwrap() else {
            panic!("no event")
        };
        assert_eq!(seen.at, event(3).at, "{how}");
        assert!(reader.warnings()[0].text.starts_with("this is part 2 of a rotated log"), "{how}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_disk_that_is_full_at_the_start_is_tried_again() {
    let folder = folder("full-at-start");
    for (number, kind) in [StorageFull, QuotaExceeded, PermissionDenied].into_iter().enumerate() {
        let path = folder.join(number.to_string());
        let mut is_full = true;
        let create: Create = Box::new(move |path: &Path| match std::mem::take(&mut is_full) {
            true => Err(kind.into()),
            false => super::files::create(path),
        });
        let part = LogPart { number: 1, started: UnixMillis(7) };
        match Files::start(&path, 1 << 30, part, create) {
            Ok(mut files) => {
                assert!(kind != PermissionDenied);
                files.append(&header(), &line(&event(1))).unwrap();
                assert_eq!(read(&path), (vec![1], 0));
            }
            Err(error) => assert_eq!((error.kind(), kind), (PermissionDenied, PermissionDenied)),
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_disk_that_stays_full_gets_nothing_and_the_run_still_ends() {
    let folder = folder("stays-full");
    let path = folder.join("log");
    let script: Script = Arc::new(Mutex::new(vec![Some(0); 200]));
    let mut log = LiveLog::start_on(writer(start(&path, 1 << 30, flaky(script)))).unwrap();
    for number in 0..100 {
        log.event(&event(number));
    }
    log.finish(Duration::from_secs(60)).await;
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert!(!numbered(&path, 1).exists());
    fs::remove_dir_all(folder).unwrap();
}
