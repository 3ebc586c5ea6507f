//! Client certificates of X.509 v1, which kubectl presents and rustls by itself refuses.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use throughline::client::{CallError, Connections, JSON, Server, get};
use throughline_sim::apiserver::SimApiServerSettings;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
};

use crate::certificate::{Certificate, X509};
use crate::cluster::{connect, spec};
use crate::sim_apiserver::serve_with;

/// Requires this certificate. Go's servers compare as freely.
#[derive(Debug)]
struct Requires(Vec<u8>);

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
        if **end_entity == *self.0 {
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

/// Asks a server that requires `required` with the certificate `shown`.
async fn ask(
    required: &Certificate,
    shown: &Certificate,
    protocols: &[&str],
) -> Result<(), CallError> {
    let server = Certificate::self_signed("localhost", X509::V3);
    let clients = Arc::new(Requires(required.der.clone()));
    let tls = (server.acceptor_for(clients, protocols), server.der.clone());
    let served = serve_with(SimApiServerSettings::default(), Some(tls)).await;
    let user = json!({"client-certificate-data": STANDARD.encode(shown.pem()),
        "client-key-data": STANDARD.encode(shown.key_pem())});
    let spec = spec(&served.handle.url(), Some(&server.der), &user, Server::AsConfigured);
    let request = get("/api/v1/namespaces", JSON).unwrap();
    connect("one", spec, &Connections::default())
        .call(request, Duration::from_secs(10))
        .await
        .map(drop)
}

/// With TLS 1.3 a refusal follows the handshake, and hyper keeps it to itself.
#[tokio::test]
async fn a_client_certificate_of_either_version_is_presented_and_its_refusal_is_told() {
    for version in [X509::V1, X509::V3] {
        let shown = Certificate::self_signed("throughline", version);
        for protocols in [&["h2"][..], &["http/1.1"]] {
            ask(&shown, &shown, protocols).await.unwrap();
        }
        let required = Certificate::self_signed("other", X509::V3);
        let error = ask(&required, &shown, &["h2"]).await.unwrap_err();
        assert!(matches!(error, CallError::Certificate(_)), "{error}");
    }
}
