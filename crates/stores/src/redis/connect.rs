//! Setup of the client, and checks before a server is used.

use std::{collections::HashMap, path::Path};

use ::redis::{
    Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, Pipeline, ProtocolVersion, RedisResult,
    TlsCertificates, from_redis_value, io::tcp::TcpSettings,
};

use super::{OLDEST_SCHEMA, REDIS, SCHEMA, connection::SharedConnection, keys::Keys};
use crate::{RedisAddress, StoreOpenError, address::Tls};

/// Builds the driver's client for an address, without a connection yet.
pub(super) fn client(address: &RedisAddress) -> Result<Client, StoreOpenError> {
    let failed = |error| StoreOpenError::unreachable(REDIS, &error);
    let info = connection(address).map_err(failed)?;
    let Tls::Verified(authority) = &address.tls else {
        return Client::open(info).map_err(failed);
    };
    // The driver uses the provider that the program has installed. If there is none, this one is
    // used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root_cert = authority.as_deref().map(read_certificates).transpose()?;
    let certificates = TlsCertificates { client_tls: None, root_cert };
    Client::build_with_tls(info, certificates).map_err(failed)
}

fn connection(address: &RedisAddress) -> RedisResult<ConnectionInfo> {
    let info = address.url.as_str().into_connection_info()?;
    // Only with RESP3 does the driver report that the server has closed the connection.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    // Requests are small and a caller waits for each, so none is delayed to fill a packet.
    let tcp = TcpSettings::default().set_nodelay(true);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

fn read_certificates(path: &Path) -> Result<Vec<u8>, StoreOpenError> {
    let unusable = |problem: String| StoreOpenError::File { path: path.to_owned(), problem };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let begin = b"-----BEGIN CERTIFICATE-----";
    // The driver would accept the file and then trust no server, without an error about the file.
    if !pem.windows(begin.len()).any(|window| window == begin) {
        return Err(unusable("it holds no certificate in PEM form".to_owned()));
    }
    Ok(pem)
}

/// Refuses a cluster of several nodes, whose redirections this client does not follow.
pub(super) async fn check_single_node(connection: &SharedConnection) -> Result<(), StoreOpenError> {
    let mut pipe = Pipeline::new();
    pipe.cmd("CLUSTER").arg("INFO");
    let answer = match connection.query_raw(&pipe).await {
        Ok(answer) => answer,
        // Not a cluster, or the command is not permitted.
        Err(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
            return Ok(());
        }
        Err(error) => return Err(StoreOpenError::unreachable(REDIS, &error)),
    };
    let info: Vec<String> = from_redis_value(answer).unwrap_or_default();
    let size = info.iter().flat_map(|info| info.lines()).find_map(|line| {
        line.strip_prefix("cluster_size:").and_then(|size| size.trim().parse::<u32>().ok())
    });
    match size {
        Some(nodes) if nodes > 1 => Err(StoreOpenError::Unreachable {
            store: REDIS,
            problem: format!(
                "it is a cluster of {nodes} nodes, and this client speaks to one server; \
                 name a single server"
            ),
        }),
        _ => Ok(()),
    }
}

/// Returns whether the server writes its data to disk. `None` if it does not tell.
pub(super) async fn persists(connection: &SharedConnection) -> Option<bool> {
    let mut pipe = Pipeline::new();
    pipe.cmd("CONFIG").arg("GET").arg("save");
    pipe.cmd("CONFIG").arg("GET").arg("appendonly");
    let answer = connection.query_raw(&pipe).await.ok()?;
    let settings: [HashMap<String, String>; 2] = from_redis_value(answer).ok()?;
    let setting = |name: &str| settings.iter().find_map(|it| it.get(name));
    Some(!setting("save")?.is_empty() || setting("appendonly")? != "no")
}

/// Writes the schema of a new store, and refuses a newer or too old one.
pub(super) async fn check_schema(
    connection: &SharedConnection,
    keys: &Keys,
) -> Result<(), StoreOpenError> {
    let mut pipe = Pipeline::new();
    pipe.cmd("SET").arg((keys.schema(), SCHEMA, "NX")).ignore();
    pipe.cmd("GET").arg(keys.schema());
    let failed = |error| StoreOpenError::unreachable(REDIS, &error);
    let answer = connection.query_raw(&pipe).await.map_err(failed)?;
    let (found,): (i64,) = from_redis_value(answer).map_err(|error| failed(error.into()))?;
    if found > SCHEMA {
        return Err(StoreOpenError::NewerSchema { store: REDIS, found, known: SCHEMA });
    }
    if found < OLDEST_SCHEMA {
        return Err(StoreOpenError::OlderSchema { store: REDIS, found, oldest: OLDEST_SCHEMA });
    }
    Ok(())
}
