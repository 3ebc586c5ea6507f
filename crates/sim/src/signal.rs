//! A value whose changes tasks await. Unlike tokio's `watch`, it wakes waiting tasks in the order
//! in which they started to wait. `watch` wakes them in random order, so a run would not be
//! determined by its seed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
struct Signal<T> {
    /// The value, and how often it was set.
    state: Mutex<(T, u64)>,
    changed: Notify,
}

impl<T> Signal<T> {
    fn lock(&self) -> MutexGuard<'_, (T, u64)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Signal<T>>);

/// Follows a value.
#[derive(Debug)]
pub struct Receiver<T> {
    signal: Arc<Signal<T>>,
    seen: u64,
}

impl<T: Clone> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Signal { state: Mutex::new((value, 0)), changed: Notify::new() }))
    }

    pub(crate) fn subscribe(&self) -> Receiver<T> {
        Receiver { signal: self.0.clone(), seen: self.0.lock().1 }
    }

    pub(crate) fn get(&self) -> T {
        self.0.lock().0.clone()
    }

    pub(crate) fn set(&self, value: T) {
        self.modify(|old| *old = value);
    }

    pub(crate) fn modify(&self, modify: impl FnOnce(&mut T)) {
        let mut state = self.0.lock();
        modify(&mut state.0);
        state.1 += 1;
        drop(state);
        self.0.changed.notify_waiters();
    }
}

impl<T: Clone> Receiver<T> {
    /// The current value, which counts as seen from now on.
    pub fn get(&mut self) -> T {
        let state = self.signal.lock();
        self.seen = state.1;
        state.0.clone()
    }

    /// Waits until the value is set again after the last look.
    pub async fn changed(&mut self) {
        loop {
            let signal = self.signal.clone();
            let mut changed = std::pin::pin!(signal.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            let set = signal.lock().1;
            if set != self.seen {
                self.seen = set;
                return;
            }
            changed.await;
        }
    }

    /// Waits until the value fits.
    pub async fn wait_for(&mut self, fits: impl Fn(&T) -> bool) {
        while !fits(&self.get()) {
            self.changed().await;
        }
    }
}
