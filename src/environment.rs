//! What a run takes from its computer: the wall clock, randomness, connections, a disk, and CPU time.
//!
//! A process has one computer, and these functions use it directly. A simulation has several instances
//! in one thread, each with its [`Environment`]. That is current while one of the instance's tasks is
//! polled, and tasks that such a task spawns inherit it. So the shell needs no parameter for it, and a
//! simulated run uses nothing random or real.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The computer of a simulated instance.
pub trait Environment: Send + Sync {
    /// The wall clock: the time since 1970. It may jump.
    fn wall_clock(&self) -> Duration;
    /// The time that the instance's monotonic clock advances while tokio's advances by `elapsed`.
    fn counts(&self, elapsed: Duration) -> Duration;
    /// The time that tokio's clock advances while the instance's monotonic clock advances by `time`.
    fn takes(&self, time: Duration) -> Duration;
    fn random(&self) -> u64;
    /// Connects to a host and port.
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Connected>>>;
    /// Appends all bytes to a file, or none.
    fn append(&self, file: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Pending while the disk accepts no write.
    fn poll_disk(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Pending while the instance is stopped, as after SIGSTOP, and forever after it was killed.
    fn poll_runs(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Drops the data of one of the instance's tasks. A simulation measures it.
    fn release(&self, drop_it: &mut dyn FnMut());
}

/// A connection in a simulation.
pub trait Connected: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connected for T {}

tokio::task_local! {
    static CURRENT: Arc<dyn Environment>;
}

fn current() -> Option<Arc<dyn Environment>> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Whether this run is simulated.
pub fn is_simulated() -> bool {
    CURRENT.try_with(|_| ()).is_ok()
}

/// The time since 1970.
pub fn wall_clock() -> Duration {
    match current() {
        Some(environment) => environment.wall_clock(),
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    }
}

/// The time since `start` by the monotonic clock.
pub fn elapsed(start: Instant) -> Duration {
    match current() {
        Some(environment) => environment.counts(start.elapsed()),
        None => start.elapsed(),
    }
}

/// When the monotonic clock has advanced by `time` since `start`; `None` if that is out of range.
pub fn instant_after(start: Instant, time: Duration) -> Option<Instant> {
    match current() {
        Some(environment) => start.checked_add(environment.takes(time)),
        None => start.checked_add(time),
    }
}

/// A random number. Not for secrets: the standard library seeds its hasher from the system's randomness.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    match current() {
        Some(environment) => environment.random(),
        None => RandomState::new().build_hasher().finish(),
    }
}

/// A connection to a simulated host; `None` outside a simulation.
pub fn connect(
    host: &str,
    port: u16,
) -> Option<BoxFuture<'static, io::Result<Box<dyn Connected>>>> {
    Some(current()?.connect(host, port))
}

/// Appends to a file of a simulated computer; `None` outside a simulation.
pub fn append(file: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
    Some(current()?.append(file, bytes))
}

/// Waits until the disk of a simulated computer accepts a write.
pub async fn disk_ready() {
    if let Some(environment) = current() {
        std::future::poll_fn(|cx| environment.poll_disk(cx)).await;
    }
}

/// Runs blocking work, such as reading files, outside the runtime's threads. `None` if it panicked.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match is_simulated() {
        true => Some(work()),
        false => tokio::task::spawn_blocking(work).await.ok(),
    }
}

/// Spawns a task in the current environment.
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    tokio::spawn(here(task))
}

/// Binds a future to the current environment, wherever it is polled.
pub fn here<F: Future>(future: F) -> Here<F> {
    Here { environment: current(), future: Some(Box::pin(future)) }
}

/// Binds a future to this environment.
pub fn within<F: Future>(environment: Arc<dyn Environment>, future: F) -> Here<F> {
    Here { environment: Some(environment), future: Some(Box::pin(future)) }
}

/// See [`here`].
pub struct Here<F> {
    environment: Option<Arc<dyn Environment>>,
    /// `None` once it is dropped. The box costs nothing: every future here is spawned, and tasks are
    /// allocated anyway.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Here<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let Some(future) = &mut this.future else { return Poll::Pending };
        let Some(environment) = &this.environment else { return future.as_mut().poll(cx) };
        if environment.poll_runs(cx).is_pending() {
            return Poll::Pending;
        }
        CURRENT.sync_scope(environment.clone(), || future.as_mut().poll(cx))
    }
}

impl<F> Drop for Here<F> {
    fn drop(&mut self) {
        if let Some(environment) = self.environment.take() {
            environment.release(&mut || drop(self.future.take()));
        }
    }
}

/// Lets hyper spawn tasks in the current environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct HereExecutor;

impl<F> hyper::rt::Executor<F> for HereExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, task: F) {
        spawn(task);
    }
}
