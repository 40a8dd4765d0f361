//! Connections: how they are made, how long anything may take, and what their errors mean.

use std::{io, path::Path, sync::Arc, time::Duration};

use deadpool_postgres::{Hook, HookError, Manager, Object, Pool, PoolError, QueueMode};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use stayput_core::StoreError;
use tokio_postgres::{
    Config, NoTls, Row,
    config::{SslMode, SslNegotiation, TargetSessionAttrs},
    error::SqlState,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{STORE, values::Values};
use crate::{
    OpenError, PostgresAddress,
    address::Tls,
    failure::{corrupt, unavailable},
};

/// How long a caller waits for anything: for a connection, for a lock, for the answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long one address of a host may take, so that there is time left for another one.
const CONNECT: Duration = Duration::from_secs(2);

const CONNECTIONS: usize = 16;

/// The server gives up before the caller does, so that a call which waits for a lock ends on both
/// sides and its connection stays good. The functions of the schema rely on the isolation level. All
/// that is looked up is looked up by an index, so there is nothing to plan anew each time.
const SETTINGS: &str = "set statement_timeout = '4s'; \
     set idle_in_transaction_session_timeout = '10s'; \
     set default_transaction_isolation = 'read committed'; \
     set plan_cache_mode = force_generic_plan";

/// Makes the pool. Nothing is connected yet.
pub(super) fn pool(address: &PostgresAddress) -> Result<Pool, OpenError> {
    let unusable = |error: tokio_postgres::Error| OpenError::unreachable(STORE, &error);
    let mut config: Config = address.url.parse().map_err(unusable)?;
    prepare(&mut config);
    let manager = match &address.tls {
        Tls::Off => Manager::new(config.ssl_mode(SslMode::Disable).clone(), NoTls),
        Tls::Verified(authority) => {
            let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
            let tls = encryption(authority.as_deref(), direct)?;
            Manager::new(config.ssl_mode(SslMode::Require).clone(), tls)
        }
    };
    let settings = Hook::async_fn(|client, _| {
        Box::pin(async move {
            let set = client.batch_execute(SETTINGS).await;
            set.map_err(HookError::Backend)
        })
    });
    Pool::builder(manager)
        .max_size(CONNECTIONS)
        // The ones that were just used have their statements prepared and their caches warm.
        .queue_mode(QueueMode::Lifo)
        .post_create(settings)
        .build()
        .map_err(|error| OpenError::unreachable(STORE, &error))
}

/// Fills in what the URL does not say.
fn prepare(config: &mut Config) {
    if config.get_application_name().is_none() {
        config.application_name("stayput");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(PATIENCE);
    }
    // A host that is gone without a word is noticed in half a minute, not in the two hours that are
    // the system's default.
    config.keepalives_idle(Duration::from_secs(15));
    config.keepalives_interval(Duration::from_secs(5));
    config.keepalives_retries(3);
    // In the middle of a failover a replica may answer where the primary was.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
}

/// TLS that verifies the server's certificate and name: by the authorities in a file and no others, or
/// by the public ones.
fn encryption(authority: Option<&Path>, direct: bool) -> Result<MakeRustlsConnect, OpenError> {
    let roots = match authority {
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        Some(path) => authorities(path)
            .map_err(|problem| OpenError::File { path: path.to_owned(), problem })?,
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::unreachable(STORE, &error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if direct {
        // Without the question whether encryption is wanted, this is how the server knows the protocol.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("it holds no certificate in PEM form".to_owned());
    }
    Ok(roots)
}

/// Runs one statement on a connection of the pool, in one round trip once it is prepared there.
///
/// It is never run a second time: after a failure nobody knows whether it happened. If the caller does
/// not wait for the answer, the statement runs to its end before the connection serves anybody else.
pub(super) async fn rows(
    pool: &Pool,
    sql: &str,
    values: Values<'_>,
) -> Result<Vec<Row>, StoreError> {
    let mut used = None;
    let work = async {
        let client = used.insert(pool.get().await?);
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query(&statement, values).await?)
    };
    let result = tokio::time::timeout(PATIENCE, work).await;
    match result {
        Ok(Ok(rows)) => Ok(rows),
        Ok(Err(error)) => {
            if is_spoiled(&error) {
                drop(used.map(Object::take));
            }
            Err(fault(error))
        }
        Err(_) => {
            if used.is_some() {
                // Its answer may come yet, or never. The ones that idle may lead to the same silence,
                // and the next callers are not to find that out one by one.
                drop(used.map(Object::take));
                pool.retain(|_, _| false);
            }
            Err(unavailable(STORE, late()))
        }
    }
}

/// That nothing was heard in time.
pub(super) fn late() -> io::Error {
    let said = format!("no answer within {} s", PATIENCE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, said)
}

/// The driver's own error, without what the pool wraps around it.
pub(super) fn cause(error: &PoolError) -> Option<&tokio_postgres::Error> {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            Some(error)
        }
        _ => None,
    }
}

/// Whether a connection that works is of no use any more: its server became a replica, or what was
/// prepared on it is not good since a schema moved on.
fn is_spoiled(error: &PoolError) -> bool {
    let code = cause(error).and_then(tokio_postgres::Error::code);
    code.is_some_and(|code| {
        *code == SqlState::READ_ONLY_SQL_TRANSACTION
            || *code == SqlState::FEATURE_NOT_SUPPORTED
            || *code == SqlState::INVALID_SQL_STATEMENT_NAME
    })
}

/// What PostgreSQL says, in the words of the contract.
fn fault(error: PoolError) -> StoreError {
    let error = match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => error,
        other => return unavailable(STORE, other),
    };
    let what = match error.code().map(SqlState::code) {
        // Something that this version did not make, or may not use.
        Some(code) if code.starts_with("42") => "tables",
        Some(code) if code.starts_with("22") || code.starts_with("23") => "a value",
        Some("XX001" | "XX002") => "pages",
        // Shutting down, starting, too many connections, out of disk, a lock that took too long, a
        // deadlock, and all that happens on the way there.
        _ => return unavailable(STORE, error),
    };
    corrupt(STORE, what, error)
}
