//! Certificate and key of the HTTP listener: `tls`.

use std::{fmt, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
};
use stayput_config::{ConfigValue, Problem, ReadResult};

use super::keys;

/// Certificate and key of the HTTP listener, as read from their files. A change of the files is a change of the
/// configuration, so they are read again like it.
#[derive(Clone)]
pub(crate) struct Tls {
    /// Settings for the handshake with clients: TLS 1.2 and 1.3.
    pub(crate) server: Arc<ServerConfig>,
}

/// Shows nothing of the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// Reads `tls`.
pub(super) fn tls(setting: &ConfigValue<'_>) -> ReadResult<Tls> {
    let table = setting.object_with_keys(keys::TLS)?;
    let expected = "an object with \"cert\" and \"key\", which are paths of PEM files";
    let missing = || setting.error(Problem::Form { expected });
    let chain = table.read("cert", chain)?.ok_or_else(missing)?;
    let key = table.read("key", key)?.ok_or_else(missing)?;
    let versions = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions();
    let server = versions.and_then(|it| it.with_no_client_auth().with_single_cert(chain, key));
    let mut server = server.map_err(|error| {
        let sentence = match error {
            rustls::Error::InconsistentKeys(_) => {
                "the key in \"key\" does not belong to the certificate in \"cert\"".to_owned()
            }
            error => format!("the certificate cannot be used: {error}"),
        };
        setting.error(Problem::Other(sentence))
    })?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Tls { server: server.into() })
}

/// Reads a certificate and those that lead from it to an authority.
fn chain(setting: &ConfigValue<'_>) -> ReadResult<Vec<CertificateDer<'static>>> {
    let text = read(setting)?;
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| broken(setting, &error))?;
    if chain.is_empty() {
        return Err(broken(setting, &pem::Error::NoItemsFound));
    }
    Ok(chain)
}

fn key(setting: &ConfigValue<'_>) -> ReadResult<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(&read(setting)?).map_err(|error| broken(setting, &error))
}

fn read(setting: &ConfigValue<'_>) -> ReadResult<Vec<u8>> {
    let path = setting.context.file(&setting.text()?).map_err(|problem| setting.error(problem))?;
    std::fs::read(path).map_err(|error| setting.error(Problem::Unreadable(error.kind())))
}

fn broken(setting: &ConfigValue<'_>, error: &pem::Error) -> stayput_config::ValueError {
    let sentence = match error {
        pem::Error::NoItemsFound => "the file holds none in PEM format".to_owned(),
        error => format!("the file is not in PEM format: {error}"),
    };
    setting.error(Problem::Other(sentence))
}
