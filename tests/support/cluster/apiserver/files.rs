//! The files that an API server starts with.

use std::fs;
use std::path::Path;

use super::super::certificate::{Certificate, X509};
use super::{ADMIN, NOBODY, THROUGHLINE, token};

const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: [throughline]
  - level: None
"#;

/// Writes them into the API server's folder.
pub(super) fn write(folder: &Path) {
    let users: Vec<_> = [(ADMIN, "system:masters"), (THROUGHLINE, ""), (NOBODY, "")]
        .iter()
        .map(|(user, group)| format!("{},{user},{user},\"{group}\"\n", token(user)))
        .collect();
    fs::write(folder.join("users.csv"), users.concat()).unwrap();
    fs::write(folder.join("audit.yaml"), AUDIT_POLICY).unwrap();
    // Its own certificate would have an RSA key, which takes long to make.
    let certificate = Certificate::self_signed("localhost", X509::V3);
    fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(folder.join("tls.key"), certificate.key_pem()).unwrap();
    write_signing_keys(folder);
}

/// The API server does not start without keys to sign ServiceAccount tokens.
fn write_signing_keys(folder: &Path) {
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    /// RFC 5480: the header of a P-256 public key, up to where the point begins.
    const SPKI_P256: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
    let random = ring::rand::SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random).unwrap();
    let bytes = (0..SPKI_P256.len()).step_by(2);
    let mut public: Vec<_> =
        bytes.map(|i| u8::from_str_radix(&SPKI_P256[i..i + 2], 16).unwrap()).collect();
    public.extend_from_slice(pair.public_key().as_ref());
    let write = |name: &str, tag: &str, key: &[u8]| {
        fs::write(folder.join(name), pem::encode(&pem::Pem::new(tag, key))).unwrap();
    };
    write("signing.key", "PRIVATE KEY", private.as_ref());
    write("signing.pub", "PUBLIC KEY", &public);
}
