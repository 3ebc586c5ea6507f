//! Why a list or a watch ended, which says how it goes on.

use tokio::sync::mpsc;

use super::WatchMessage;
use crate::client::CallError;

/// In the message of a 504: the API server has not reached this resourceVersion yet.
const TOO_LARGE: &str = "Too large resource version";

/// Why a list or a watch ended.
pub(super) enum WatchEnd {
    BusClosed,
    /// The kubeconfig names another address.
    Moved,
    /// 410: the resourceVersion is too old to resume from; or the API server was restored.
    Expired(CallError),
    Failed(CallError),
}

impl WatchEnd {
    /// The resourceVersions of the API server are lower than before.
    pub(super) fn went_back() -> Self {
        Self::Expired(CallError::Unreadable("its resourceVersions went back".to_owned()))
    }
}

impl From<CallError> for WatchEnd {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status { code: 410, .. } => WatchEnd::Expired(error),
            // Restored from an older state, it will not reach this version for a long time.
            CallError::Status { code: 504, ref message, .. } if message.contains(TOO_LARGE) => {
                WatchEnd::Expired(error)
            }
            error => WatchEnd::Failed(error),
        }
    }
}

impl From<mpsc::error::SendError<WatchMessage>> for WatchEnd {
    fn from(_: mpsc::error::SendError<WatchMessage>) -> Self {
        WatchEnd::BusClosed
    }
}
