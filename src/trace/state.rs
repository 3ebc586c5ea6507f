//! What a running instance believes: `GET /state` at its admin port, over plain HTTP.

use std::time::Duration;

use anyhow::{Context, bail};
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Snapshot, Source, Witness};
use crate::core::view::View;

/// A longer answer, in bytes, is refused.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Asks the instance at `url` (`http://HOST:PORT`) for what it believes, and waits for `within` at
/// most.
///
/// # Errors
/// It can't be reached, refuses, or answers something else; each says what to do.
pub async fn snapshot(url: &str, within: Duration) -> anyhow::Result<Snapshot> {
    let uri = parse(url)?;
    let asked = timeout(within, ask(&uri)).await;
    let view = asked
        .unwrap_or_else(|_| bail!("no answer within {} ms", within.as_millis()))
        .with_context(|| {
            format!(
                "asking {uri}; it should be the admin port of a running throughline, for example by \
                 kubectl port-forward POD 8080"
            )
        })?;
    let witness = Witness::default();
    Ok(Snapshot { source: Source::State, view, late: None, witness })
}

fn parse(url: &str) -> anyhow::Result<Uri> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = whole
        .parse()
        .with_context(|| format!("--state {url}: expected an address as http://127.0.0.1:8080"))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        bail!(
            "--state {url}: expected an address as http://127.0.0.1:8080; the admin port speaks \
             plain HTTP"
        );
    }
    let mut parts = uri.into_parts();
    let path = parts.path_and_query.as_ref().map_or("/", |path| path.path());
    if path == "/" {
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/state"));
    }
    Uri::from_parts(parts).with_context(|| format!("--state {url}"))
}

async fn ask(uri: &Uri) -> anyhow::Result<View> {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the sender, or with the other side.
    let connection = tokio::spawn(connection);
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let path = uri.path_and_query().map_or("/state", |path| path.as_str());
    let request = Request::get(path)
        .header(header::HOST, authority)
        .header(header::ACCEPT, "application/json")
        .body(Empty::<bytes::Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
    connection.abort();
    if !status.is_success() {
        let said: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        bail!("it answers {status}: {}", said.trim());
    }
    serde_json::from_slice(&body)
        .context("the answer is not the state of a throughline of this version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_enough_and_the_path_is_the_state() {
        for (url, uri) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/state"),
            ("http://localhost", "http://localhost/state"),
            ("http://[::1]:8080/", "http://[::1]:8080/state"),
            ("http://pod:8080/prefix/state", "http://pod:8080/prefix/state"),
        ] {
            assert_eq!(parse(url).unwrap().to_string(), uri);
        }
        for url in ["https://127.0.0.1:8080", "http://", "ftp://x", "a b"] {
            let error = format!("{:#}", parse(url).unwrap_err());
            assert!(error.starts_with(&format!("--state {url}: ")), "{error}");
            assert!(error.contains("http://127.0.0.1:8080"), "{error}");
        }
    }
}
