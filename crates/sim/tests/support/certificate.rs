//! Self-signed certificates for servers on loopback, and the TLS settings of such a server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

/// A certificate with its key, both in DER; the key in PKCS #8.
pub(crate) struct Certificate {
    pub(crate) der: Vec<u8>,
    key: Vec<u8>,
}

/// X.509 versions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum X509 {
    /// Has no extensions.
    V1,
    /// Names `localhost` and 127.0.0.1.
    V3,
}

impl Certificate {
    /// A self-signed P-256 certificate with this common name, valid for years.
    pub(crate) fn self_signed(common_name: &str, version: X509) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap().as_ref().to_vec();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, &key, &random).unwrap();
        let ecdsa_with_sha256 = der(SEQUENCE, &[&[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
        let common_name =
            der(SEQUENCE, &[&[0x06, 3, 0x55, 4, 3], &der(0x0c, &[common_name.as_bytes()])]);
        let name = der(SEQUENCE, &[&der(SET, &[&common_name])]);
        let validity = der(
            SEQUENCE,
            &[&der(UTC_TIME, &[b"250101000000Z"]), &der(UTC_TIME, &[b"490101000000Z"])],
        );
        let p256 = der(
            SEQUENCE,
            &[
                &[0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1],
                &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7],
            ],
        );
        let public_key =
            der(SEQUENCE, &[&p256, &der(BIT_STRING, &[&[0], pair.public_key().as_ref()])]);
        let (number, extensions) = match version {
            X509::V1 => (Vec::new(), Vec::new()),
            X509::V3 => {
                let names = der(SEQUENCE, &[&der(0x82, &[b"localhost"]), &[0x87, 4, 127, 0, 0, 1]]);
                let extension =
                    der(SEQUENCE, &[&[0x06, 3, 0x55, 0x1d, 17], &der(OCTET_STRING, &[&names])]);
                (vec![0xa0, 3, 2, 1, 2], der(0xa3, &[&der(SEQUENCE, &[&extension])]))
            }
        };
        let serial = [2, 1, 1];
        let content = der(
            SEQUENCE,
            &[
                &number,
                &serial,
                &ecdsa_with_sha256,
                &name,
                &validity,
                &name,
                &public_key,
                &extensions,
            ],
        );
        let signature = pair.sign(&random, &content).unwrap();
        let signature = der(BIT_STRING, &[&[0], signature.as_ref()]);
        Self { der: der(SEQUENCE, &[&content, &ecdsa_with_sha256, &signature]), key }
    }

    pub(crate) fn pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.der.clone()))
    }

    pub(crate) fn key_pem(&self) -> String {
        pem::encode(&pem::Pem::new("PRIVATE KEY", self.key.clone()))
    }

    /// TLS for a server that shows this certificate and offers these protocols (ALPN), such as `h2` and
    /// `http/1.1`. It asks for no client certificate.
    pub(crate) fn acceptor(&self, protocols: &[&str]) -> TlsAcceptor {
        self.acceptor_for(WebPkiClientVerifier::no_client_auth(), protocols)
    }

    /// The same, for such client certificates.
    pub(crate) fn acceptor_for(
        &self,
        clients: Arc<dyn ClientCertVerifier>,
        protocols: &[&str],
    ) -> TlsAcceptor {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.clone()));
        let chain = vec![CertificateDer::from(self.der.clone())];
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// One DER element.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut element = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => element.push(short),
        Ok(short) => element.extend([0x81, short]),
        Err(_) => {
            element.push(0x82);
            element.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    parts.iter().for_each(|part| element.extend_from_slice(part));
    element
}
