//! Pool of connections: setup, timeouts and errors.

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
    PostgresAddress, StoreOpenError,
    address::Tls,
    error::{corrupt, unavailable},
};

/// Maximum time of a call: for a connection, a lock and the answer.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time for one address of a host, so that there is time left for another one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Largest number of connections for all calls but those on leases.
pub(super) const MAX_CONNECTIONS: usize = 16;

/// Largest number of connections for calls on leases. A renewal has to come in time, so it does not wait until a
/// connection is free that other calls use.
pub(super) const MAX_LEASE_CONNECTIONS: usize = 1;

/// Settings of every connection. The server's timeout is shorter than the caller's, so that a call
/// that waits for a lock ends on both sides and its connection stays usable. The functions of the
/// schema rely on the isolation level. Every lookup uses an index, so a plan never needs to be made
/// again.
const SETTINGS: &str = "set statement_timeout = '4s'; \
     set idle_in_transaction_session_timeout = '10s'; \
     set default_transaction_isolation = 'read committed'; \
     set plan_cache_mode = force_generic_plan";

/// Builds a pool of at most `size` connections, without a connection yet.
pub(super) fn pool(address: &PostgresAddress, size: usize) -> Result<Pool, StoreOpenError> {
    let unusable = |error: tokio_postgres::Error| StoreOpenError::unreachable(STORE, &error);
    let mut config: Config = address.url.parse().map_err(unusable)?;
    set_defaults(&mut config);
    let manager = match &address.tls {
        Tls::Off => Manager::new(config.ssl_mode(SslMode::Disable).clone(), NoTls),
        Tls::Verified(authority) => {
            let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
            let tls = verified_tls(authority.as_deref(), direct)?;
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
        .max_size(size)
        // The most recently used connections have their statements prepared and their caches warm.
        .queue_mode(QueueMode::Lifo)
        .post_create(settings)
        .build()
        .map_err(|error| StoreOpenError::unreachable(STORE, &error))
}

/// Sets the defaults of parameters that the URL does not have.
fn set_defaults(config: &mut Config) {
    if config.get_application_name().is_none() {
        config.application_name("stayput");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(CALL_TIMEOUT);
    }
    // A host that disappears is noticed in half a minute instead of the system's default of two
    // hours.
    config.keepalives_idle(Duration::from_secs(15));
    config.keepalives_interval(Duration::from_secs(5));
    config.keepalives_retries(3);
    // During a failover a replica may answer at the address of the primary.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
}

/// Builds TLS that verifies the server's certificate and name, by the authorities in a file and no
/// others, or by the public ones.
fn verified_tls(
    authority: Option<&Path>,
    direct: bool,
) -> Result<MakeRustlsConnect, StoreOpenError> {
    let roots = match authority {
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        Some(path) => read_authorities(path)
            .map_err(|problem| StoreOpenError::File { path: path.to_owned(), problem })?,
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreOpenError::unreachable(STORE, &error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if direct {
        // Without an SSLRequest message, the server knows the protocol by this name only.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

fn read_authorities(path: &Path) -> Result<RootCertStore, String> {
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
/// It is never run a second time, because after a failure it is unknown whether it happened. If the
/// caller is cancelled, the statement runs to its end before the connection is used again.
pub(super) async fn rows(
    pool: &Pool,
    sql: &str,
    values: Values<'_>,
) -> Result<Vec<Row>, StoreError> {
    let mut connection = None;
    let work = async {
        let client = connection.insert(pool.get().await?);
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query(&statement, values).await?)
    };
    let result = tokio::time::timeout(CALL_TIMEOUT, work).await;
    match result {
        Ok(Ok(rows)) => Ok(rows),
        Ok(Err(error)) => {
            if is_unusable(&error) {
                drop(connection.map(Object::take));
            }
            Err(fault(error))
        }
        Err(_) => {
            if connection.is_some() {
                // The answer may still come, or never. Idle connections may hang in the same way,
                // and the next callers should not find that out one by one.
                drop(connection.map(Object::take));
                pool.retain(|_, _| false);
            }
            Err(unavailable(STORE, timed_out()))
        }
    }
}

/// Builds the error for a call without an answer in time.
pub(super) fn timed_out() -> io::Error {
    let text = format!("no answer within {} s", CALL_TIMEOUT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Returns the driver's error inside an error of the pool.
pub(super) fn cause(error: &PoolError) -> Option<&tokio_postgres::Error> {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            Some(error)
        }
        _ => None,
    }
}

/// Returns whether a working connection can no longer be used: its server became a replica, or a
/// newer schema invalidated its prepared statements.
fn is_unusable(error: &PoolError) -> bool {
    let code = cause(error).and_then(tokio_postgres::Error::code);
    code.is_some_and(|code| {
        *code == SqlState::READ_ONLY_SQL_TRANSACTION
            || *code == SqlState::FEATURE_NOT_SUPPORTED
            || *code == SqlState::INVALID_SQL_STATEMENT_NAME
    })
}

/// Converts an error of PostgreSQL.
fn fault(error: PoolError) -> StoreError {
    let error = match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => error,
        other => return unavailable(STORE, other),
    };
    let what = match error.code().map(SqlState::code) {
        // A table that this version did not create, or may not use.
        Some(code) if code.starts_with("42") => "tables",
        Some(code) if code.starts_with("22") || code.starts_with("23") => "a value",
        Some("XX001" | "XX002") => "pages",
        // Shutdown, startup, too many connections, full disk, lock timeout, deadlock, and network
        // errors.
        _ => return unavailable(STORE, error),
    };
    corrupt(STORE, what, error)
}
