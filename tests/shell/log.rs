//! What a test's thread logs.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::Dispatch;

use crate::live::until;

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Collects from now on, until the guard is dropped.
    pub(crate) fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        // While there is one subscriber alone, a line that another test's thread comes to first counts
        // as wanted by nobody, for good.
        static OTHER: OnceLock<Dispatch> = OnceLock::new();
        OTHER.get_or_init(|| {
            Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish())
        });
        let log = Self::default();
        let lines = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone());
        (log, tracing::subscriber::set_default(lines.finish()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub(crate) async fn until_contains(&self, part: &str) {
        until(part, async || self.text().contains(part)).await;
    }
}
