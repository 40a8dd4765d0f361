//! Trusted certificate authorities.

use std::{path::Path, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::ClientError;

/// Trusted certificate authorities. By default these are the public ones and no others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trust {
    /// Whether the public authorities are trusted: those that browsers trust, as of the build of this program.
    pub public: bool,
    /// Files of further authorities, in PEM form, as `SSL_CERT_FILE` names one.
    pub ca_files: Vec<PathBuf>,
}

impl Default for Trust {
    fn default() -> Self {
        Self { public: true, ca_files: Vec::new() }
    }
}

impl Trust {
    /// Returns the TLS configuration.
    ///
    /// The cryptography provider is set here and not taken from the process: a program that embeds us may have
    /// chosen another one for itself, or none.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, ClientError> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ClientError::Tls(error.to_string()))?
            .with_root_certificates(self.roots()?)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, ClientError> {
        let mut roots = RootCertStore::empty();
        if self.public {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        for path in &self.ca_files {
            add(&mut roots, path)?;
        }
        Ok(roots)
    }
}

/// Adds every certificate of the file, or fails: a certificate that was left out would be missed much later, by
/// a user who does not know of this file.
fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), ClientError> {
    let unusable = |problem: String| ClientError::CaFile { path: path.to_owned(), problem };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.len() == before {
        return Err(unusable("it holds no certificate in PEM form".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(content: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let trust = Trust { public: false, ca_files: vec![path.clone()] };
        let message = trust.config().unwrap_err().to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        message
    }

    #[test]
    fn unusable_ca_file_is_refused() {
        assert!(problem(None).contains("No such file"));
        assert!(problem(Some("hello")).contains("no certificate"));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(problem(Some(broken)).contains("certificate"));
        let open = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(!problem(Some(open)).is_empty());
    }

    #[test]
    fn public_authorities_are_the_default() {
        let public = Trust::default().roots().unwrap();
        assert!(public.len() > 50);
        let no_authority = Trust { public: false, ca_files: Vec::new() };
        assert!(no_authority.roots().unwrap().is_empty());
    }
}
