//! Trusted certificate authorities.

use std::{path::Path, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::ClientError;

/// Trusted certificate authorities. By default these are those of the system and no others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trust {
    /// Whether the authorities of the system are trusted: those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name, if one
    /// of them is set, else those of the operating system. Where it has none, as in a container without
    /// certificates, the public authorities as of the build of this program replace them.
    pub system: bool,
    /// Files of further authorities, in PEM form.
    pub ca_files: Vec<PathBuf>,
}

impl Default for Trust {
    fn default() -> Self {
        Self { system: true, ca_files: Vec::new() }
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

    /// Reads the files of further authorities.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn check(&self) -> Result<(), ClientError> {
        let mut roots = RootCertStore::empty();
        self.ca_files.iter().try_for_each(|path| add(&mut roots, path))
    }

    fn roots(&self) -> Result<RootCertStore, ClientError> {
        let mut roots = if self.system { system_roots() } else { RootCertStore::empty() };
        for path in &self.ca_files {
            add(&mut roots, path)?;
        }
        Ok(roots)
    }
}

/// Returns the authorities of the system.
///
/// A variable that names an unusable file replaces the system's authorities all the same: its user wanted others.
/// Servers without TLS work then, and the warning explains why those with TLS do not.
fn system_roots() -> RootCertStore {
    let loaded = rustls_native_certs::load_native_certs();
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    for error in loaded.errors {
        match named {
            true => tracing::warn!(
                "SSL_CERT_FILE or SSL_CERT_DIR names certificates that cannot be used: {error}"
            ),
            false => tracing::debug!(%error, "certificate of the system is not used"),
        }
    }
    if roots.is_empty() && !named {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
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
        let trust = Trust { system: false, ca_files: vec![path.clone()] };
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
    fn authorities_of_the_system_are_the_default() {
        assert!(!Trust::default().roots().unwrap().is_empty());
        let no_authority = Trust { system: false, ca_files: Vec::new() };
        assert!(no_authority.roots().unwrap().is_empty());
    }
}
