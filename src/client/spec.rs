//! How a cluster is reached: the credentials and the server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError, NamedAuthInfo};
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

/// The kubeconfig of a file, or kubectl's.
///
/// # Errors
/// It is missing or broken.
pub fn read_kubeconfig(file: Option<&Path>) -> Result<Kubeconfig, KubeconfigError> {
    match file {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    }
}

/// The entries of a kubeconfig that one context names.
pub(crate) struct Entries<'k> {
    pub(crate) context: Option<&'k Context>,
    pub(crate) cluster: Option<&'k Cluster>,
    pub(crate) user: Option<&'k NamedAuthInfo>,
}

impl<'k> Entries<'k> {
    /// Those of `context`, or of the current one.
    pub(crate) fn of(kubeconfig: &'k Kubeconfig, context: Option<&String>) -> Self {
        let name = context.or(kubeconfig.current_context.as_ref());
        let context = kubeconfig.contexts.iter().find(|entry| Some(&entry.name) == name);
        let context = context.and_then(|entry| entry.context.as_ref());
        let cluster = context.map(|context| &context.cluster);
        let cluster = kubeconfig.clusters.iter().find(|entry| Some(&entry.name) == cluster);
        let user = context.and_then(|context| context.user.as_ref());
        let user = kubeconfig.auth_infos.iter().find(|entry| Some(&entry.name) == user);
        Self { context, cluster: cluster.and_then(|entry| entry.cluster.as_ref()), user }
    }
}

const RUNS: &str = "run a program here";
const READS: &str = "read a file here";

impl KubeconfigText {
    /// Takes the text's current context, with its cluster and user.
    ///
    /// # Errors
    /// Why the text is refused; quotes only the names of its entries. Entries that the current context
    /// does not use are not checked.
    pub fn parse(text: &str) -> Result<Self, String> {
        let kubeconfig = read(text)?;
        let name = kubeconfig.current_context.as_ref().filter(|name| !name.is_empty());
        let name = name.ok_or("the kubeconfig has no current-context")?;
        let missing = |entry, name: &str| format!("the kubeconfig has no {entry} {name:?}");
        let Entries { context, cluster, user } = Entries::of(&kubeconfig, None);
        let context = context.ok_or_else(|| missing("context", name))?;
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
        let refused = |entry, name: &str, (field, why, instead)| {
            format!(
                "the kubeconfig's {entry} {name:?} has {field}, which may {why}: put {instead} into it"
            )
        };
        if is_set(cluster.certificate_authority.as_ref()) {
            let field = ("certificate-authority", READS, "certificate-authority-data");
            return Err(refused("cluster", &context.cluster, field));
        }
        let server = cluster.server.as_ref().and_then(|server| server.parse::<Uri>().ok());
        if server.is_none_or(|server| server.scheme().is_none() || server.host().is_none()) {
            return Err(format!(
                "the kubeconfig's cluster {:?} has no server, or one that is no URL",
                context.cluster
            ));
        }
        let name = context.user.as_deref().unwrap_or_default();
        // kubectl writes an empty name for no user. kube uses an entry of that name nevertheless.
        if user.is_none() && !name.is_empty() {
            return Err(missing("user", name));
        }
        let Some(user) = user.and_then(|entry| entry.auth_info.as_ref()) else {
            return Ok(Self(text.into()));
        };
        const TOKEN: &str = "a token or client-certificate-data";
        let fields = [
            (user.exec.is_some(), ("exec", RUNS, TOKEN)),
            (user.auth_provider.is_some(), ("auth-provider", RUNS, TOKEN)),
            (
                is_set(user.client_certificate.as_ref()),
                ("client-certificate", READS, "client-certificate-data"),
            ),
            (is_set(user.client_key.as_ref()), ("client-key", READS, "client-key-data")),
            (is_set(user.token_file.as_ref()), ("tokenFile", READS, "token")),
        ];
        if let Some((_, field)) = fields.into_iter().find(|(has, _)| *has) {
            return Err(refused("user", name, field));
        }
        match token_fault(user) {
            Some(fault) => Err(format!(
                "the kubeconfig's user {name:?} has a token with {fault}, {TOKEN_REMEDY}"
            )),
            None => Ok(Self(text.into())),
        }
    }

    /// The kubeconfig as parsed by kube.
    pub(super) fn kubeconfig(&self) -> Result<Kubeconfig, String> {
        read(&self.0)
    }
}

/// Parses the text. Errors of the YAML reader quote lines, so they are dropped.
fn read(text: &str) -> Result<Kubeconfig, String> {
    let refused = "no kubeconfig: it is not YAML of that form";
    Kubeconfig::from_yaml(text).map_err(|_| refused.to_owned())
}

fn is_set(path: Option<&String>) -> bool {
    path.is_some_and(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(cluster: &str, user: &str) -> Result<KubeconfigText, String> {
        KubeconfigText::parse(&text(cluster, user))
    }

    fn text(cluster: &str, user: &str) -> String {
        format!(
            "{{current-context: x, contexts: [{{name: x, context: {{cluster: c, user: u}}}}],
            clusters: [{{name: c, cluster: {{{cluster}}}}}, {{name: o, cluster:
            {{certificate-authority: /o}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
        )
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
            // kube uses also the entry of an empty name.
            let nameless = text(SERVER, user).replace("user: u}", "user: ''}");
            let error = KubeconfigText::parse(&nameless.replace("name: u,", "name: '',"));
            assert!(error.is_err_and(|error| error.contains(r#"user "" has"#)), "{field}");
            KubeconfigText::parse(&nameless).unwrap();
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
            let error = KubeconfigText::parse(text).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        let error = |text| KubeconfigText::parse(text).unwrap_err();
        assert_eq!(error("current-context: x"), r#"the kubeconfig has no context "x""#);
        assert_eq!(error("kind: Config"), "the kubeconfig has no current-context");
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
