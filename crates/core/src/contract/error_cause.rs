//! Why a request to an API server failed. The client classifies the error where it occurs. The
//! machine, the event log, `/state` and `trace` pass the result on, so no text is parsed again.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Why a request failed, as far as it determines when to retry and which `Cause` it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCause {
    /// 401: the credentials are missing, wrong or expired.
    Unauthorized,
    /// 403: RBAC, an admission webhook or a quota forbids it.
    Forbidden,
    /// 404: the object, or its whole API, does not exist.
    NotFound,
    /// 409, or a 422 about `metadata.uid`: the object changed after it was read.
    Conflict,
    /// 409 `AlreadyExists`.
    AlreadyExists,
    /// 410: the resourceVersion is too old.
    Expired,
    /// 400, 422 and every other 4xx: the same request will fail again.
    Invalid,
    /// 429: the API server asks for fewer requests.
    Throttled,
    /// 5xx.
    ServerError,
    /// 408, or no response in time.
    TimedOut,
    /// No connection: DNS, routing, a refused or broken connection.
    Unreachable,
    /// One side rejected the other's TLS certificate.
    Certificate,
    /// No client could be created: a missing or broken kubeconfig, or unreadable credentials.
    Kubeconfig,
    /// The response was incomplete or could not be parsed.
    Unreadable,
    /// 2xx, but the object in the response differs from what was written.
    NotKept,
    /// None of these is known to be the cause, or a newer version recorded another one.
    #[default]
    #[serde(other)]
    Other,
}

/// How to treat a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The same request will fail again: do not retry it soon.
    Never,
    /// It may succeed later.
    Backoff,
    /// It was based on an old state of the object: wait until the watch shows the new one.
    Refetch,
}

impl ErrorCause {
    /// The cause for an HTTP status.
    pub fn from_status(code: u16, reason: &str, message: &str) -> Self {
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 if reason == "AlreadyExists" => Self::AlreadyExists,
            409 => Self::Conflict,
            // A patch contains the uid of the object that it was decided for. If the object now has
            // another uid, some API servers answer 422 about `metadata.uid` rather than 409.
            422 if message.contains("metadata.uid") => Self::Conflict,
            410 => Self::Expired,
            // 504: an API server gives up a request at its `timeout`, just before the client does, and
            // a load balancer one whose API server hangs.
            408 | 504 => Self::TimedOut,
            429 => Self::Throttled,
            400..500 => Self::Invalid,
            _ => Self::ServerError,
        }
    }

    /// Classifies the text of an error without a recorded cause, from logs and `/state` of versions
    /// before `cause` was added. Causes are read from text only here.
    pub fn from_text(text: &str) -> Self {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        if let Ok(code) = first.trim_end_matches(':').parse::<u16>()
            && (400..600).contains(&code)
        {
            let (reason, message) = rest.split_once(": ").unwrap_or((rest, ""));
            return Self::from_status(code, reason, message);
        }
        // The texts of versions that recorded no cause.
        if text.starts_with("no way to the cluster") {
            Self::Kubeconfig
        } else if text.starts_with("can't reach the API server") {
            if is_about_certificate(text) { Self::Certificate } else { Self::Unreachable }
        } else if text.starts_with("no answer from the API server within")
            || text.starts_with("no outcome within")
        {
            Self::TimedOut
        } else if text.starts_with("the API server's answer can't be used") {
            Self::Unreadable
        } else {
            Self::Other
        }
    }

    pub fn class(self) -> ErrorClass {
        match self {
            Self::Forbidden | Self::Invalid | Self::AlreadyExists | Self::NotKept => {
                ErrorClass::Never
            }
            Self::NotFound | Self::Conflict | Self::Expired => ErrorClass::Refetch,
            // Credentials may be renewed in place at any time, so 401 does not refuse the request
            // for good.
            Self::Unauthorized
            | Self::Throttled
            | Self::ServerError
            | Self::TimedOut
            | Self::Unreachable
            | Self::Certificate
            | Self::Kubeconfig
            | Self::Unreadable
            | Self::Other => ErrorClass::Backoff,
        }
    }
}

/// Whether a connection failed because of a certificate. rustls is not a direct dependency, so its
/// errors are recognized by their text: `invalid peer certificate: …`, `received fatal alert:
/// BadCertificate`.
pub fn is_about_certificate(text: &str) -> bool {
    text.contains("peer certificate") || text.contains("Certificate") || text.contains("UnknownCA")
}

/// A failed request: the cause for the program, the text for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FailureFields")]
pub struct RequestFailure {
    /// The API server's answer, or why there was none.
    #[serde(rename = "error")]
    pub text: Box<str>,
    pub cause: ErrorCause,
}

/// The fields as read: logs and `/state` of older versions have no `cause`.
#[derive(Deserialize)]
struct FailureFields {
    error: Box<str>,
    cause: Option<ErrorCause>,
}

impl From<FailureFields> for RequestFailure {
    fn from(FailureFields { error, cause }: FailureFields) -> Self {
        Self::recorded(error, cause)
    }
}

impl RequestFailure {
    pub fn new(cause: ErrorCause, text: impl Into<Box<str>>) -> Self {
        Self { text: text.into(), cause }
    }

    /// As read from a log or `/state`. `cause` may be missing, or one that a newer version
    /// recorded.
    pub fn recorded(text: impl Into<Box<str>>, cause: Option<ErrorCause>) -> Self {
        let text = text.into();
        let cause = cause.filter(|cause| *cause != ErrorCause::Other);
        Self { cause: cause.unwrap_or_else(|| ErrorCause::from_text(&text)), text }
    }
}

impl From<&str> for RequestFailure {
    fn from(text: &str) -> Self {
        Self::recorded(text, None)
    }
}

impl From<String> for RequestFailure {
    fn from(text: String) -> Self {
        Self::recorded(text, None)
    }
}

impl Deref for RequestFailure {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_older_logs_are_classified() {
        for (text, cause) in [
            ("401 Unauthorized: Unauthorized", ErrorCause::Unauthorized),
            ("403", ErrorCause::Forbidden),
            ("403 Forbidden: no", ErrorCause::Forbidden),
            ("404 NotFound: the server could not find …", ErrorCause::NotFound),
            ("409 AlreadyExists: it is there", ErrorCause::AlreadyExists),
            ("422 Invalid: metadata.uid: Invalid value", ErrorCause::Conflict),
            ("422 Invalid: spec.rules", ErrorCause::Invalid),
            ("503 ServiceUnavailable: no", ErrorCause::ServerError),
            ("no way to the cluster: no such file", ErrorCause::Kubeconfig),
            ("can't reach the API server: connection refused", ErrorCause::Unreachable),
            (
                "can't reach the API server: invalid peer certificate: UnknownIssuer",
                ErrorCause::Certificate,
            ),
            ("no answer from the API server within 200 ms", ErrorCause::TimedOut),
            ("the API server's answer can't be used: EOF", ErrorCause::Unreadable),
            ("etcd: leader changed", ErrorCause::Other),
            ("", ErrorCause::Other),
        ] {
            assert_eq!(ErrorCause::from_text(text), cause, "{text}");
        }
    }

    #[test]
    fn a_recorded_cause_counts_more_than_the_text() {
        let read = |json: &str| serde_json::from_str::<RequestFailure>(json).unwrap().cause;
        assert_eq!(read(r#"{"error":"500 x","cause":"forbidden"}"#), ErrorCause::Forbidden);
        assert_eq!(read(r#"{"error":"500 x"}"#), ErrorCause::ServerError);
        assert_eq!(read(r#"{"error":"500 x","cause":"from_the_future"}"#), ErrorCause::ServerError);
    }
}
