//! Why a list or a watch ended, which says how it goes on.

use tokio::sync::mpsc;

use super::WatchMessage;
use crate::client::CallError;

/// In the message of a 504: the API server has not reached this resourceVersion yet.
const TOO_LARGE: &str = "Too large resource version";

/// Nobody takes events any longer: the run ends.
#[derive(Debug)]
pub(super) struct BusClosed;

#[derive(Debug)]
pub(super) enum WatchEnd {
    BusClosed,
    /// The kubeconfig names another address.
    Moved,
    /// The API server ended the watch when it was asked to.
    Complete,
    /// The API server ended the watch sooner: it went away, or something cut it on its way.
    Early,
    /// The watch brought nothing for too long. Resuming it shows whether the API server answers.
    Silent,
    /// An object without a readable name came a while ago: only a list shows which one it is.
    Nameless,
    /// 410: the resourceVersion is too old to resume from; or the API server was restored.
    Expired(CallError),
    /// 410 for a later page of a list.
    PageExpired(CallError),
    /// Something of another type came, so what is missing may have gone elsewhere.
    OtherType(CallError),
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

impl From<BusClosed> for WatchEnd {
    fn from(_: BusClosed) -> Self {
        WatchEnd::BusClosed
    }
}

impl From<mpsc::error::SendError<WatchMessage>> for BusClosed {
    fn from(_: mpsc::error::SendError<WatchMessage>) -> Self {
        BusClosed
    }
}
