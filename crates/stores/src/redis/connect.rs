//! How a server is reached, and what is asked of it before it is used.

use std::path::Path;

use ::redis::{
    Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, Pipeline, ProtocolVersion, RedisResult,
    TlsCertificates, from_redis_value, io::tcp::TcpSettings,
};

use super::{REDIS, SCHEMA, keys::Keys, link::Link};
use crate::{OpenError, RedisAddress, address::Tls};

/// The driver's client for an address. Nothing is connected yet.
pub(super) fn client(address: &RedisAddress) -> Result<Client, OpenError> {
    let failed = |error| OpenError::unreachable(REDIS, &error);
    let info = connection(address).map_err(failed)?;
    let Tls::Verified(authority) = &address.tls else {
        return Client::open(info).map_err(failed);
    };
    // The driver uses the cryptography that the program has chosen. If it has chosen none, it is this.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root_cert = authority.as_deref().map(certificates).transpose()?;
    let certificates = TlsCertificates { client_tls: None, root_cert };
    Client::build_with_tls(info, certificates).map_err(failed)
}

fn connection(address: &RedisAddress) -> RedisResult<ConnectionInfo> {
    let info = address.url.as_str().into_connection_info()?;
    // Only in this version of the protocol the driver tells when the server has hung up.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    // Questions are small, and somebody waits for each: none waits for a fuller packet.
    let tcp = TcpSettings::default().set_nodelay(true);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

fn certificates(path: &Path) -> Result<Vec<u8>, OpenError> {
    let unusable = |problem: String| OpenError::File { path: path.to_owned(), problem };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let begin = b"-----BEGIN CERTIFICATE-----";
    // The driver would take it and then trust nobody, without a word about this file.
    if !pem.windows(begin.len()).any(|window| window == begin) {
        return Err(unusable("it holds no certificate in PEM form".to_owned()));
    }
    Ok(pem)
}

/// Refuses a cluster that this client would get lost in.
pub(super) async fn one_node(link: &Link) -> Result<(), OpenError> {
    let mut pipe = Pipeline::new();
    pipe.cmd("CLUSTER").arg("INFO");
    let said = match link.raw(&pipe).await {
        Ok(said) => said,
        // It is no cluster, or we may not ask.
        Err(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
            return Ok(());
        }
        Err(error) => return Err(OpenError::unreachable(REDIS, &error)),
    };
    let info: Vec<String> = from_redis_value(said).unwrap_or_default();
    let size = info.iter().flat_map(|info| info.lines()).find_map(|line| {
        line.strip_prefix("cluster_size:").and_then(|size| size.trim().parse::<u32>().ok())
    });
    match size {
        Some(nodes) if nodes > 1 => Err(OpenError::Unreachable {
            store: REDIS,
            problem: format!(
                "it is a cluster of {nodes} nodes, and this client speaks to one server; \
                 name a single server"
            ),
        }),
        _ => Ok(()),
    }
}

/// Notes the schema, and refuses one that a newer version has made. What was added since the first needs
/// nothing to be moved.
pub(super) async fn known_schema(link: &Link, keys: &Keys) -> Result<(), OpenError> {
    let mut pipe = Pipeline::new();
    pipe.cmd("SET").arg((keys.schema(), SCHEMA, "NX")).ignore();
    pipe.cmd("GET").arg(keys.schema());
    let failed = |error| OpenError::unreachable(REDIS, &error);
    let said = link.raw(&pipe).await.map_err(failed)?;
    let (found,): (i64,) = from_redis_value(said).map_err(|error| failed(error.into()))?;
    if found > SCHEMA {
        return Err(OpenError::NewerSchema { store: REDIS, found, known: SCHEMA });
    }
    if found < SCHEMA {
        let mut pipe = Pipeline::new();
        pipe.cmd("SET").arg((keys.schema(), SCHEMA)).ignore();
        link.raw(&pipe).await.map_err(failed)?;
    }
    Ok(())
}
