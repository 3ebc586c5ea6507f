//! TLS as configured by a kubeconfig.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::client::{ConfigExt, RustlsTlsError};
use kube::config::AuthInfo;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use xxhash_rust::xxh3::Xxh3Default;

use super::{CallError, root_cause};

/// The trusted certificates, and the client certificate.
pub(super) struct Tls {
    /// Offers no protocol by ALPN, which means HTTP/1.1.
    pub(super) http1: Arc<ClientConfig>,
    /// Offers HTTP/2 and HTTP/1.1.
    pub(super) both: Arc<ClientConfig>,
    /// Replaces the host's name in the check of the server certificate.
    pub(super) server_name: Option<String>,
    /// Equal for equal certificates and options: connections may be shared.
    pub(super) identity: u128,
}

impl Tls {
    /// Reads certificates. A credential plugin that gives a client certificate is run.
    ///
    /// # Errors
    /// [`CallError::NoClient`]: a certificate or key that can't be read or used.
    pub(super) fn new(
        config: &kube::Config,
        plugin_gives_certificate: bool,
    ) -> Result<Self, CallError> {
        let mut asked = config.clone();
        if !plugin_gives_certificate {
            // kube would run it again only to see whether it gives a certificate.
            asked.auth_info.exec = None;
        }
        let client_config = match asked.rustls_client_config() {
            Err(kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(error)))
                if matches!(error, rustls::Error::InvalidCertificate(_)) =>
            {
                with_v1_certificate(&asked, &error)
            }
            other => other.map_err(|error| root_cause(&error)),
        };
        let http1 = client_config.map_err(CallError::NoClient)?;
        let mut both = http1.clone();
        both.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            http1: Arc::new(http1),
            both: Arc::new(both),
            server_name: config.tls_server_name.clone(),
            identity: identity(config, plugin_gives_certificate),
        })
    }
}

/// A client configuration with an X.509 v1 certificate: `openssl x509 -req` without extensions still
/// makes them, and kubectl sends them. A client need not parse its certificate, but rustls does so to
/// compare it with its key, and its parser accepts only v3. So this presents the chain unchanged.
fn with_v1_certificate(
    config: &kube::Config,
    error: &rustls::Error,
) -> Result<ClientConfig, String> {
    let unusable = |reason: &str| format!("the client certificate can't be used: {reason}");
    let auth = &config.auth_info;
    let from_plugin = || {
        let what = format!("the plugin gave one that can't be read ({error})");
        unusable(&format!("{what}; if it is X.509 v1, issue it as v3"))
    };
    let pem = certificate_pem(auth).ok_or_else(from_plugin)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|e| unusable(&e.to_string()))?;
    if !chain.first().is_some_and(|certificate| is_v1(certificate)) {
        return Err(unusable(&error.to_string()));
    }
    let key = key_pem(auth).ok_or_else(|| unusable("its key can't be read"))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| unusable("its key is no PEM"))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key);
    let key = key.map_err(|e| unusable(&e.to_string()))?;
    let mut anonymous = config.clone();
    let auth = &mut anonymous.auth_info;
    auth.client_certificate = None;
    auth.client_certificate_data = None;
    auth.client_key = None;
    auth.client_key_data = None;
    let mut config = anonymous.rustls_client_config().map_err(|error| root_cause(&error))?;
    let certified = Arc::new(CertifiedKey::new(chain, key));
    config.client_auth_cert_resolver = Arc::new(AsItIs(certified));
    Ok(config)
}

/// Presents a certificate without parsing it.
#[derive(Debug)]
struct AsItIs(Arc<CertifiedKey>);

impl ResolvesClientCert for AsItIs {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Whether a certificate in DER has no version, which means v1 (RFC 5280, section 4.1): its first inner
/// field is then the serial number.
fn is_v1(certificate: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    let inside = |der: &'_ [u8]| -> Option<usize> {
        let tag = *der.first()?;
        let length = *der.get(1)?;
        let long = if length < 0x80 { 0 } else { usize::from(length & 0x7f) };
        (tag == SEQUENCE).then_some(2 + long)
    };
    let Some(outer) = inside(certificate) else { return false };
    let Some(to_be_signed) = certificate.get(outer..) else { return false };
    let Some(inner) = inside(to_be_signed) else { return false };
    to_be_signed.get(inner) == Some(&INTEGER)
}

fn certificate_pem(auth: &AuthInfo) -> Option<Vec<u8>> {
    match &auth.client_certificate_data {
        Some(data) => STANDARD.decode(data).ok(),
        None => fs::read(auth.client_certificate.as_ref()?).ok(),
    }
}

fn key_pem(auth: &AuthInfo) -> Option<Vec<u8>> {
    match secret_field(auth, "client-key-data") {
        Some(data) => STANDARD.decode(data).ok(),
        None => fs::read(auth.client_key.as_ref()?).ok(),
    }
}

/// A secret field in kube's kubeconfig format.
pub(super) fn secret_field(auth: &AuthInfo, field: &str) -> Option<String> {
    let auth = serde_json::to_value(auth).ok()?;
    auth.get(field)?.as_str().map(str::to_owned)
}

fn identity(config: &kube::Config, plugin_gives_certificate: bool) -> u128 {
    static PLUGIN_CERTIFICATES: AtomicU64 = AtomicU64::new(1);
    let mut hash = Xxh3Default::new();
    let mut part = |part: Option<&[u8]>| {
        hash.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        hash.update(part.unwrap_or_default());
    };
    part(Some(&[config.accept_invalid_certs.into()]));
    part(config.tls_server_name.as_deref().map(str::as_bytes));
    part(config.root_cert_file.as_ref().map(|path| path.as_os_str().as_encoded_bytes()));
    for certificate in config.root_cert.iter().flatten() {
        part(Some(certificate));
    }
    part(None);
    part(certificate_pem(&config.auth_info).as_deref());
    part(key_pem(&config.auth_info).as_deref());
    if plugin_gives_certificate {
        // Its certificate is unknown here, so it equals no other.
        part(Some(&PLUGIN_CERTIFICATES.fetch_add(1, Relaxed).to_le_bytes()));
    }
    hash.digest128()
}
