//! Why a request failed, classified where it failed.

use std::any::Any;
use std::error::Error;
use std::time::Duration;

use http::StatusCode;
use kube::core::Status;

use crate::core::contract::error_cause::{ErrorCause, RequestFailure, is_about_certificate};

/// The longest pause that is honoured: the API server may be well after a restart, or a proxy may have
/// answered in its place.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// The longest error text. An API server or a proxy may send megabytes as a message, and the machine
/// keeps the text of each lost watch.
const TEXT_CHARS_MAX: usize = 1_000;

/// Why a request failed. The texts contain no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The API server answered with an error.
    #[error("{code} {reason}: {message}")]
    Status {
        /// The HTTP status code.
        code: u16,
        /// The machine-readable reason, e.g. `Forbidden`.
        reason: String,
        message: String,
        /// The object in the response, as `gateways.gateway.networking.k8s.io/NAME`; empty if it names
        /// none.
        about: String,
        /// The pause that the API server asks for; at most 30 s.
        retry_after: Option<Duration>,
    },
    /// No client could be made: the kubeconfig is missing or broken, or its credentials can't be
    /// read.
    #[error("cannot create a client for the cluster: {0}")]
    NoClient(String),
    #[error("cannot reach the API server: {0}")]
    Unreachable(String),
    #[error("TLS certificate rejected: {0}")]
    Certificate(String),
    #[error("no response from the API server within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The response broke off or could not be parsed.
    #[error("unusable response from the API server: {0}")]
    Unreadable(String),
    /// A panic.
    #[error("defect of throughline: {0}")]
    Defect(String),
}

impl CallError {
    pub fn cause(&self) -> ErrorCause {
        match self {
            CallError::Status { code, reason, message, .. } => {
                ErrorCause::from_status(*code, reason, message)
            }
            CallError::NoClient(_) => ErrorCause::Kubeconfig,
            CallError::Unreachable(_) => ErrorCause::Unreachable,
            CallError::Certificate(_) => ErrorCause::Certificate,
            CallError::TimedOut(_) => ErrorCause::TimedOut,
            CallError::Unreadable(_) => ErrorCause::Unreadable,
            CallError::Defect(_) => ErrorCause::Other,
        }
    }

    /// The error for the machine and the event log, with a very long text shortened.
    pub fn failure(&self) -> RequestFailure {
        RequestFailure::new(self.cause(), shortened(self.to_string()))
    }

    /// The HTTP status code; `None` when there was no response.
    pub fn code(&self) -> Option<u16> {
        match self {
            CallError::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the API server states that this very object does not exist. A 404 about its namespace or
    /// its API is no evidence about the object. `resource` is a full name, e.g.
    /// `leases.coordination.k8s.io`.
    pub fn is_absence_of(&self, resource: &str, name: &str) -> bool {
        matches!(self, CallError::Status { code: 404, reason, about, .. }
            if reason == "NotFound" && *about == format!("{resource}/{name}"))
    }

    /// How long the request waited for a response that never came.
    pub fn waited(&self) -> Duration {
        match self {
            CallError::TimedOut(timeout) => *timeout,
            _ => Duration::ZERO,
        }
    }

    /// The pause that the API server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            CallError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The error of a `metav1.Status`.
    pub fn of_status(status: Status, retry_after: Option<Duration>) -> Self {
        let reason = if status.reason.is_empty() {
            let code = StatusCode::from_u16(status.code).ok();
            code.and_then(|c| c.canonical_reason()).unwrap_or("error").to_owned()
        } else {
            status.reason
        };
        let details = status.details.as_ref();
        let about = details.map_or_else(String::new, |d| match (&*d.kind, &*d.group, &*d.name) {
            ("", ..) | (.., "") => String::new(),
            (kind, "", name) => format!("{kind}/{name}"),
            (kind, group, name) => format!("{kind}.{group}/{name}"),
        });
        let seconds = details.map(|d| d.retry_after_seconds).filter(|s| *s > 0);
        let retry_after = retry_after.or(seconds.map(|s| Duration::from_secs(s.into())));
        CallError::Status {
            code: status.code,
            reason,
            message: status.message,
            about,
            retry_after: retry_after.map(|after| after.min(RETRY_AFTER_MAX)),
        }
    }

    /// The error of a caught panic.
    pub(crate) fn defect(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        CallError::Defect(text.unwrap_or_default())
    }

    /// The error of a client that could not be made.
    pub(super) fn no_client(error: &(dyn Error + 'static)) -> Self {
        CallError::NoClient(root_cause(error))
    }

    /// The error of a request that got no response.
    pub(super) fn no_response(error: &(dyn Error + 'static)) -> Self {
        let text = root_cause(error);
        if is_about_certificate(&text) {
            CallError::Certificate(text)
        } else {
            CallError::Unreachable(text)
        }
    }
}

/// Shortens a very long text.
pub(crate) fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// An error and its causes, the outermost first.
pub(super) fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The innermost cause: the outer ones add little and name addresses.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}
