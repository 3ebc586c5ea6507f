//! A snapshot of a running instance: `GET /state` at its admin port, over plain HTTP.

use std::time::Duration;

use anyhow::{Context, bail};
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{ClusterAccess, ManagedFieldsIndex, Snapshot, SnapshotSource};
use crate::core::view::View;

const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Fetches the state of the instance at `url` (`http://HOST:PORT`), for at most `within`.
///
/// # Errors
/// The instance can't be reached, refuses, or answers something else; each says what to do.
pub async fn snapshot(url: &str, within: Duration) -> anyhow::Result<Snapshot> {
    let uri = parse(url)?;
    let fetched = timeout(within, fetch(&uri)).await;
    let view = fetched
        .unwrap_or_else(|_| bail!("no answer within {} ms", within.as_millis()))
        .with_context(|| {
            format!(
                "cannot read {uri}; it should be the admin port of a running throughline, for example \
                 through kubectl port-forward POD 8080"
            )
        })?;
    let managed_fields = ManagedFieldsIndex::default();
    Ok(Snapshot {
        source: SnapshotSource::State,
        view,
        stall_limits: None,
        managed_fields,
        access: ClusterAccess::default(),
    })
}

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
    let path = parts.path_and_query.as_ref().map_or("/", |path| path.path());
    if path == "/" {
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/state"));
    }
    Uri::from_parts(parts).with_context(|| format!("--state {url}"))
}

async fn fetch(uri: &Uri) -> anyhow::Result<View> {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends when the sender is dropped or the instance closes the connection.
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
    let body = body.map_err(|error| anyhow::anyhow!("the answer was cut off: {error}"))?.to_bytes();
    connection.abort();
    if !status.is_success() {
        let body: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        bail!("it answers {status}: {}", body.trim());
    }
    serde_json::from_slice(&body)
        .context("the answer is not the state of a throughline of this version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_means_the_state() {
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
