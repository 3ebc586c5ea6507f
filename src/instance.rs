//! Asks the admin port of a running instance, over plain HTTP.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::build_info::InstanceInfo;

const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// What a running instance answers at `path`, for example `/state`, of its admin port at `url`
/// (`http://HOST:PORT`), within `within`.
///
/// # Errors
/// The instance can't be reached or refuses; each says what to do.
pub async fn get(url: &str, path: &'static str, within: Duration) -> anyhow::Result<Bytes> {
    let uri = parse(url, path)?;
    let fetched = timeout(within, async {
        let mut answer = Answer::open(&uri).await?;
        let body = Limited::new(&mut answer.body, ANSWER_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| cut_off(&*error))?.to_bytes())
    });
    let fetched = fetched.await;
    fetched.unwrap_or_else(|_| Err(no_answer(within))).with_context(|| what_to_do(&uri))
}

/// The same, handed to `take` piece by piece; the answer may be of any length. `within` limits the
/// wait for the beginning and for each piece.
///
/// # Errors
/// As [`get`], and those of `take`.
pub async fn stream(
    url: &str,
    path: &'static str,
    within: Duration,
    mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let uri = parse(url, path)?;
    let answer = timeout(within, Answer::open(&uri)).await;
    let answer = answer.unwrap_or_else(|_| Err(no_answer(within)));
    let mut answer = answer.with_context(|| what_to_do(&uri))?;
    loop {
        let frame = timeout(within, answer.body.frame()).await;
        match frame.map_err(|_| no_answer(within))? {
            None => return Ok(()),
            Some(frame) => {
                if let Ok(data) = frame.map_err(|error| cut_off(&error))?.into_data() {
                    take(&data)?;
                }
            }
        }
    }
}

/// Which build the instance is, and since when it runs.
///
/// # Errors
/// As [`get`]; or the instance is of a version that does not say.
pub async fn info(url: &str, within: Duration) -> anyhow::Result<InstanceInfo> {
    #[derive(serde::Deserialize)]
    struct State {
        instance: Option<InstanceInfo>,
    }
    let body = get(url, "/state", within).await?;
    let state: State = serde_json::from_slice(&body)
        .with_context(|| format!("{url}: the answer is not the state of a throughline"))?;
    state.instance.with_context(|| format!("{url}: this throughline is too old to say its version"))
}

fn no_answer(within: Duration) -> anyhow::Error {
    anyhow!("no answer within {} ms", within.as_millis())
}

fn cut_off(error: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!("the answer was cut off: {error}")
}

fn what_to_do(uri: &Uri) -> String {
    format!(
        "cannot read {uri}; it should be the admin port of a running throughline, for example \
         through kubectl port-forward POD 8080"
    )
}

/// The address of `path` at the instance that `url` names. `url` may end in `/state`, before which
/// a proxy may have a prefix of its own.
fn parse(url: &str, path: &'static str) -> anyhow::Result<Uri> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = whole.parse().with_context(|| {
        format!("--state {url}: expected an address such as http://127.0.0.1:8080")
    })?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        bail!(
            "--state {url}: expected an address such as http://127.0.0.1:8080; the admin port \
             speaks plain HTTP"
        );
    }
    let mut parts = uri.into_parts();
    let given = parts.path_and_query.as_ref().map_or("/", |path| path.path());
    let prefix = given.strip_suffix("/state").unwrap_or(given).trim_end_matches('/');
    let path = PathAndQuery::try_from(format!("{prefix}{path}"));
    parts.path_and_query = Some(path.with_context(|| format!("--state {url}"))?);
    Uri::from_parts(parts).with_context(|| format!("--state {url}"))
}

/// A successful answer whose body is still to be read.
struct Answer {
    body: Incoming,
    _sender: http1::SendRequest<Empty<Bytes>>,
    connection: AbortHandle,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Answer {
    async fn open(uri: &Uri) -> anyhow::Result<Self> {
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(80);
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection).abort_handle();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, authority)
            .header(header::ACCEPT, "application/json")
            .body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let mut answer = Self { body: answer.into_body(), _sender: sender, connection };
        if status.is_success() {
            return Ok(answer);
        }
        let why = Limited::new(&mut answer.body, ANSWER_BYTES_MAX).collect().await;
        let why = why.map_err(|error| cut_off(&*error))?.to_bytes();
        let why: String = String::from_utf8_lossy(&why).chars().take(300).collect();
        bail!("it answers {status}: {}", why.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_instance_or_its_state() {
        for (url, state, log) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/state", "http://127.0.0.1:8080/log"),
            ("http://localhost", "http://localhost/state", "http://localhost/log"),
            ("http://[::1]:8080/", "http://[::1]:8080/state", "http://[::1]:8080/log"),
            ("http://pod:8080/a/state", "http://pod:8080/a/state", "http://pod:8080/a/log"),
            ("http://pod:8080/a", "http://pod:8080/a/state", "http://pod:8080/a/log"),
        ] {
            assert_eq!(parse(url, "/state").unwrap().to_string(), state);
            assert_eq!(parse(url, "/log").unwrap().to_string(), log);
        }
        for url in ["https://127.0.0.1:8080", "http://", "ftp://x", "a b"] {
            let error = format!("{:#}", parse(url, "/state").unwrap_err());
            assert!(error.starts_with(&format!("--state {url}: ")), "{error}");
            assert!(error.contains("http://127.0.0.1:8080"), "{error}");
        }
    }
}
