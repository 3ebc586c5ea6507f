//! Client certificates of X.509 v1, which kubectl presents and rustls by itself refuses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use throughline::client::{
    CallError, ClusterClient, ConnectionSpec, Connections, Credentials, JSON, KubeconfigText,
    Server, get,
};
use throughline::core::data::ids::{ClusterName, Role};
use throughline::metrics::Metrics;
use throughline_sim::apiserver::SimApiServerSettings;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use crate::certificate::{Certificate, X509};
use crate::cluster::kubeconfig;
use crate::sim_apiserver::serve_with;

/// Requires one certificate, and takes down what it saw. Go's servers compare as freely.
#[derive(Debug)]
struct Requires {
    certificate: Vec<u8>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl ClientCertVerifier for Requires {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.seen.lock().unwrap().push(end_entity.to_vec());
        if **end_entity == *self.certificate {
            return Ok(ClientCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

fn acceptor(server: &Certificate, required: Requires, protocols: &[&str]) -> TlsAcceptor {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(server.key.clone()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(required))
        .with_single_cert(vec![CertificateDer::from(server.der.clone())], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Asks a server that requires `required` with the certificate `shown`.
async fn ask(
    required: &Certificate,
    shown: &Certificate,
    protocols: &[&str],
) -> (Result<(), CallError>, Vec<Vec<u8>>) {
    let server = Certificate::self_signed("localhost", X509::V3);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let requires = Requires { certificate: required.der.clone(), seen: seen.clone() };
    let tls = (acceptor(&server, requires, protocols), server.der.clone());
    let served = serve_with(SimApiServerSettings::default(), Some(tls)).await;
    let cluster = json!({"server": served.handle.url(),
        "certificate-authority-data": STANDARD.encode(server.pem())});
    let user = json!({"client-certificate-data": STANDARD.encode(shown.pem()),
        "client-key-data": STANDARD.encode(shown.key_pem())});
    let text = kubeconfig(&cluster, &user).to_string();
    let credentials = Credentials::Text(KubeconfigText::parse(&text).unwrap());
    let spec = ConnectionSpec { credentials, server: Server::AsConfigured };
    let (name, metrics) = (ClusterName::from("one"), Arc::new(Metrics::new()));
    let connections = Connections::default();
    let client = ClusterClient::shared(name, vec![Role::Upstream], spec, &connections, metrics);
    let request = get("/api/v1/namespaces", JSON).unwrap();
    let answer = client.call(request, Duration::from_secs(10)).await.map(drop);
    let seen = seen.lock().unwrap().clone();
    (answer, seen)
}

#[tokio::test]
async fn a_client_certificate_of_either_version_is_presented_as_it_is() {
    for version in [X509::V1, X509::V3] {
        for protocols in [&["h2"][..], &["http/1.1"]] {
            let certificate = Certificate::self_signed("throughline", version);
            let (answer, seen) = ask(&certificate, &certificate, protocols).await;
            answer.unwrap();
            assert!(!seen.is_empty() && seen.iter().all(|seen| *seen == certificate.der));
        }
    }
}

/// With TLS 1.3 the refusal follows the handshake, and hyper keeps it to itself.
#[tokio::test]
async fn a_client_certificate_that_the_server_refuses_is_told_as_such() {
    let required = Certificate::self_signed("throughline", X509::V3);
    for version in [X509::V1, X509::V3] {
        let shown = Certificate::self_signed("other", version);
        let error = ask(&required, &shown, &["h2"]).await.0.unwrap_err();
        assert!(matches!(error, CallError::Certificate(_)), "{error}");
    }
}
