//! How a cluster is reached: the credentials and the server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use kube::config::{AuthInfo, Kubeconfig};
use xxhash_rust::xxh3::xxh3_128;

use super::tls::secret_field;

/// How a cluster is reached. Clusters with equal credentials share the client made from them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionSpec {
    pub credentials: Credentials,
    pub server: Server,
}

/// The source of a cluster's kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Credentials {
    /// As kubectl finds them: this file, or kubectl's default; this context, or the current one.
    /// Without any of these, the pod's ServiceAccount.
    Kubeconfig { file: Option<PathBuf>, context: Option<String> },
    /// The pod's ServiceAccount.
    InCluster,
    /// The text of a kubeconfig, for example from a Secret.
    Text(KubeconfigText),
}

/// The server to use the credentials at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// The kubeconfig's server.
    AsConfigured,
    /// The kubeconfig's server with its path replaced, e.g.
    /// `/apis/resourcemanager.miloapis.com/v1alpha1/projects/shop/control-plane`.
    Path(String),
    /// Another server, e.g. `https://milo-apiserver.project-shop.svc.cluster.local:6443`.
    Url(String),
}

impl Server {
    /// The URL for requests if the kubeconfig names `configured`.
    ///
    /// # Errors
    /// The path or URL is invalid. The error does not quote it: a URL may hold a password.
    pub(super) fn url(&self, configured: &Uri) -> Result<Uri, String> {
        match self {
            Server::AsConfigured => Ok(configured.clone()),
            Server::Path(path) => {
                let mut parts = configured.clone().into_parts();
                let path = path.parse::<PathAndQuery>();
                parts.path_and_query = Some(path.map_err(|e| format!("the server's path: {e}"))?);
                Uri::from_parts(parts).map_err(|e| format!("the server's path: {e}"))
            }
            Server::Url(url) => {
                let url: Uri = url.parse().map_err(|e| format!("the server's URL: {e}"))?;
                match (url.scheme_str(), url.host()) {
                    (Some("https" | "http"), Some(_)) => Ok(url),
                    _ => Err("the server's URL: no https:// or http:// with a host".to_owned()),
                }
            }
        }
    }
}

/// A kubeconfig's text that is safe to use from another writer: it neither runs programs nor reads
/// files.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KubeconfigText(Arc<str>);

/// Shows a hash: the text holds credentials.
impl fmt::Debug for KubeconfigText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KubeconfigText({:08x})", xxh3_128(self.0.as_bytes()) as u32)
    }
}

/// Why a kubeconfig's text is refused. The errors quote only the names of its entries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("no kubeconfig: it is not YAML of that form")]
    Unreadable,
    #[error("the kubeconfig has no current-context")]
    NoContext,
    /// A context, cluster or user that is named and does not exist.
    #[error("the kubeconfig has no {entry} {name:?}")]
    Missing { entry: &'static str, name: String },
    #[error("the kubeconfig's cluster {0:?} has no server, or one that is no URL")]
    NoServer(String),
    /// It would run a program or read a file of this pod.
    #[error(
        "the kubeconfig's {entry} {name:?} has {field}, which may {why}: put {instead} into it"
    )]
    Refused {
        entry: &'static str,
        name: String,
        field: &'static str,
        why: &'static str,
        instead: &'static str,
    },
    #[error("the kubeconfig's user {user:?} has a token with {fault}, {}", TOKEN_REMEDY)]
    Token { user: String, fault: &'static str },
}

/// The remedy for an invalid token.
pub(super) const TOKEN_REMEDY: &str =
    "which no request can carry: take it out, also at the end of the token";

/// Why no request can carry the token; kube panics on such a token.
pub(super) fn token_fault(auth: &AuthInfo) -> Option<&'static str> {
    let token = secret_field(auth, "token")?;
    HeaderValue::try_from(format!("Bearer {token}")).err()?;
    let has_line_break = token.contains(['\n', '\r']);
    Some(if has_line_break { "a line break" } else { "a control character" })
}

const RUNS: &str = "run a program here";
const READS: &str = "read a file here";

impl KubeconfigText {
    /// Takes the text's current context, with its cluster and user.
    ///
    /// # Errors
    /// [`TextError`]. Entries that the current context does not use are not checked.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let kubeconfig = read(text)?;
        let name = kubeconfig.current_context.filter(|name| !name.is_empty());
        let name = name.ok_or(TextError::NoContext)?;
        let missing = |entry, name: &str| TextError::Missing { entry, name: name.to_owned() };
        let context = kubeconfig.contexts.into_iter().find(|context| context.name == name);
        let context = context.and_then(|context| context.context);
        let context = context.ok_or_else(|| missing("context", &name))?;
        let cluster = kubeconfig.clusters.into_iter().find(|c| c.name == context.cluster);
        let cluster = cluster.and_then(|cluster| cluster.cluster);
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
        let refused = |entry, name: &str, (field, why, instead)| TextError::Refused {
            entry,
            name: name.to_owned(),
            field,
            why,
            instead,
        };
        if is_set(cluster.certificate_authority.as_ref()) {
            let field = ("certificate-authority", READS, "certificate-authority-data");
            return Err(refused("cluster", &context.cluster, field));
        }
        let server = cluster.server.as_ref().and_then(|server| server.parse::<Uri>().ok());
        if server.is_none_or(|server| server.scheme().is_none() || server.host().is_none()) {
            return Err(TextError::NoServer(context.cluster));
        }
        let Some(user) = context.user.filter(|user| !user.is_empty()) else {
            return Ok(Self(text.into()));
        };
        let entry = kubeconfig.auth_infos.into_iter().find(|entry| entry.name == user);
        let entry = entry.ok_or_else(|| missing("user", &user))?.auth_info.unwrap_or_default();
        const TOKEN: &str = "a token or client-certificate-data";
        let fields = [
            (entry.exec.is_some(), ("exec", RUNS, TOKEN)),
            (entry.auth_provider.is_some(), ("auth-provider", RUNS, TOKEN)),
            (
                is_set(entry.client_certificate.as_ref()),
                ("client-certificate", READS, "client-certificate-data"),
            ),
            (is_set(entry.client_key.as_ref()), ("client-key", READS, "client-key-data")),
            (is_set(entry.token_file.as_ref()), ("tokenFile", READS, "token")),
        ];
        if let Some((_, field)) = fields.into_iter().find(|(has, _)| *has) {
            return Err(refused("user", &user, field));
        }
        match token_fault(&entry) {
            Some(fault) => Err(TextError::Token { user, fault }),
            None => Ok(Self(text.into())),
        }
    }

    /// The kubeconfig as parsed by kube.
    pub(super) fn kubeconfig(&self) -> Result<Kubeconfig, TextError> {
        read(&self.0)
    }
}

/// Parses the text. Errors of the YAML reader quote lines, so they are dropped.
fn read(text: &str) -> Result<Kubeconfig, TextError> {
    Kubeconfig::from_yaml(text).map_err(|_| TextError::Unreadable)
}

fn is_set(path: Option<&String>) -> bool {
    path.is_some_and(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(cluster: &str, user: &str) -> Result<KubeconfigText, String> {
        let text = format!(
            "{{current-context: x, contexts: [{{name: x, context: {{cluster: c, user: u}}}}],
            clusters: [{{name: c, cluster: {{{cluster}}}}}, {{name: o, cluster:
            {{certificate-authority: /o}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
        );
        KubeconfigText::parse(&text).map_err(|error| error.to_string())
    }

    const SERVER: &str = "server: 'https://a:6443'";

    #[test]
    fn a_text_may_neither_run_programs_nor_read_files() {
        parse(SERVER, "token: secret").unwrap();
        parse(SERVER, "client-certificate-data: Zm9v, client-key-data: Zm9v").unwrap();
        for (user, field) in [
            ("exec: {apiVersion: client.authentication.k8s.io/v1, command: secret}", "exec"),
            ("auth-provider: {name: gcp, config: {cmd-path: secret}}", "auth-provider"),
            ("client-certificate: /secret", "client-certificate"),
            ("client-certificate-data: Zm9v, client-key: /secret", "client-key"),
            ("tokenFile: /secret", "tokenFile"),
        ] {
            let error = parse(SERVER, user).unwrap_err();
            let told = format!("the kubeconfig's user \"u\" has {field}, which may ");
            assert!(error.starts_with(&told) && !error.contains("secret"), "{error}");
        }
        let error = parse(&format!("{SERVER}, certificate-authority: /secret"), "").unwrap_err();
        assert!(
            error.contains(r#"cluster "c" has certificate-authority, which may read"#),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_text_is_complete() {
        assert!(parse("server: ''", "").unwrap_err().contains("no server"));
        assert!(parse("server: /secret", "").unwrap_err().ends_with("or one that is no URL"));
        for text in ["secret: [", "[1]", "secret", "current-context: [secret]"] {
            let error = KubeconfigText::parse(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let error = KubeconfigText::parse("current-context: x").unwrap_err();
        assert_eq!(error.to_string(), r#"the kubeconfig has no context "x""#);
        assert_eq!(KubeconfigText::parse("kind: Config"), Err(TextError::NoContext));
    }

    #[test]
    fn a_token_is_one_line() {
        for (token, fault) in [
            (r#""secret\n""#, "a line break"),
            (r#""sec\r\nret""#, "a line break"),
            (r#""sec\0ret""#, "a control character"),
        ] {
            let error = parse(SERVER, &format!("token: {token}")).unwrap_err();
            let told = format!("the kubeconfig's user \"u\" has a token with {fault}, which ");
            assert!(error.starts_with(&told) && !error.contains("sec"), "{error}");
        }
        parse(SERVER, r#"token: "sécret\t""#).unwrap();
    }

    #[test]
    fn debug_shows_no_credentials() {
        let text = parse(SERVER, "token: secret").unwrap();
        let spec =
            ConnectionSpec { credentials: Credentials::Text(text), server: Server::AsConfigured };
        assert!(!format!("{spec:?}").contains("secret"));
    }

    #[test]
    fn a_path_or_url_replaces_the_kubeconfigs() {
        let configured: Uri = "https://milo:6443/some/path".parse().unwrap();
        let url = |server: Server| server.url(&configured).map(|url| url.to_string());
        assert_eq!(url(Server::AsConfigured).unwrap(), "https://milo:6443/some/path");
        let path = Server::Path("/apis/x/control-plane".into());
        assert_eq!(url(path).unwrap(), "https://milo:6443/apis/x/control-plane");
        let other = Server::Url("https://milo.project-a.svc:6443".into());
        assert_eq!(url(other).unwrap(), "https://milo.project-a.svc:6443/");
        for wrong in ["milo", "ftp://milo", "https://", "https://user:secret@mi lo"] {
            assert!(!url(Server::Url(wrong.into())).unwrap_err().contains("secret"), "{wrong}");
        }
    }
}
