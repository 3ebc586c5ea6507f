//! Asks the admin port of a running instance, over plain HTTP.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::core::view::fleet::Fleet;

const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The state of the instance whose admin port is at `url` (`http://HOST:PORT`).
///
/// # Errors
/// The instance refuses, can't be reached within `within`, or gives an invalid answer. Each error says
/// what to do.
pub async fn fleet(url: &str, within: Duration) -> anyhow::Result<Fleet> {
    let uri = parse(url)?;
    let asked = timeout(within, ask(&uri)).await;
    let asked =
        asked.unwrap_or_else(|_| Err(anyhow!("no answer within {} ms", within.as_millis())));
    let state = asked.with_context(|| {
        format!(
            "cannot read {uri}; it should be the admin port of a running throughline, for example \
             through kubectl port-forward POD 8080"
        )
    })?;
    serde_json::from_slice(&state).with_context(|| {
        format!("{url}: the answer is not the state of a throughline of this version")
    })
}

async fn ask(uri: &Uri) -> anyhow::Result<Bytes> {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends when `sender` is dropped.
    tokio::spawn(connection);
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(header::HOST, authority)
        .header(header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!("the answer was cut off: {error}"))?.to_bytes();
    if !status.is_success() {
        let why: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        bail!("it answers {status}: {}", why.trim());
    }
    Ok(body)
}

/// The address of an instance's state. `url` may end in `/state`, with a proxy's prefix before it.
fn parse(url: &str) -> anyhow::Result<Uri> {
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
    let path = PathAndQuery::try_from(format!("{prefix}/state"));
    parts.path_and_query = Some(path.with_context(|| format!("--state {url}"))?);
    Uri::from_parts(parts).with_context(|| format!("--state {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_instance_or_its_state() {
        for (url, state) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/state"),
            ("http://localhost", "http://localhost/state"),
            ("http://[::1]:8080/", "http://[::1]:8080/state"),
            ("http://pod:8080/a/state", "http://pod:8080/a/state"),
            ("http://pod:8080/a", "http://pod:8080/a/state"),
        ] {
            assert_eq!(parse(url).unwrap().to_string(), state);
        }
        for url in ["https://127.0.0.1:8080", "http://", "ftp://x", "a b"] {
            let error = format!("{:#}", parse(url).unwrap_err());
            assert!(error.starts_with(&format!("--state {url}: ")), "{error}");
            assert!(error.contains("http://127.0.0.1:8080"), "{error}");
        }
    }
}
