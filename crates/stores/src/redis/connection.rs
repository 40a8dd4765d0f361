//! One shared connection to the server, replaced when it breaks.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, PushInfo, PushKind,
    RedisError, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection, from_redis_value,
};
use stayput_core::StoreError;
use stayput_sync::Mutex;
use tokio::time::timeout;

use super::{REDIS, scripts};
use crate::error::{corrupt, unavailable};

/// Maximum time for a new connection, including encryption and authentication.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Connection that all callers share, each with its own requests in flight.
///
/// The driver's connection manager keeps a connection that only times out, and gives up for good
/// when the server refuses a new one, as a full or misconfigured server does for a while. Here a
/// connection that looks broken is replaced at the next request.
pub(super) struct SharedConnection {
    client: Client,
    open: Mutex<Option<OpenConnection>>,
    /// Lock that is held by the caller that opens the next connection; the others wait for it.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct OpenConnection {
    connection: MultiplexedConnection,
    broken: Arc<AtomicBool>,
}

enum Request<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl SharedConnection {
    pub(super) fn new(client: Client) -> Self {
        Self { client, open: Mutex::new(None), connecting: tokio::sync::Mutex::new(()) }
    }

    /// Sends one command.
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        read(self.send(Request::One(command)).await)
    }

    /// Sends several commands in one round trip. They run in order, not as one transaction. If the
    /// server does not know a script, all are sent again, so they must be repeatable.
    pub(super) async fn query_pipeline<T: FromRedisValue>(
        &self,
        pipe: &Pipeline,
    ) -> Result<T, StoreError> {
        if pipe.is_empty() {
            return read(Ok(Value::Array(Vec::new())));
        }
        read(self.send(Request::Many(pipe)).await)
    }

    /// Same as [`SharedConnection::query_pipeline`], with the driver's own answer and error.
    pub(super) async fn query_raw(&self, pipe: &Pipeline) -> RedisResult<Value> {
        self.send(Request::Many(pipe)).await
    }

    async fn send(&self, request: Request<'_>) -> RedisResult<Value> {
        let mut open = match timeout(CONNECT_TIMEOUT, self.get_or_connect()).await {
            Ok(open) => open?,
            Err(_) => return Err(timed_out("no connection could be made in time")),
        };
        let mut answer = request.send_on(&mut open.connection).await;
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        if answer.as_ref().is_err_and(|error| error.kind() == unknown) {
            // The scripts were flushed before this one could run, so nothing has happened.
            load_scripts(&mut open.connection).await?;
            answer = request.send_on(&mut open.connection).await;
        }
        if answer.as_ref().is_err_and(breaks_connection) {
            open.broken.store(true, Ordering::Release);
        }
        answer
    }

    async fn get_or_connect(&self) -> RedisResult<OpenConnection> {
        if let Some(open) = self.usable() {
            return Ok(open);
        }
        let _guard = self.connecting.lock().await;
        if let Some(open) = self.usable() {
            return Ok(open);
        }
        let open = self.connect().await?;
        *self.open.lock() = Some(open.clone());
        Ok(open)
    }

    fn usable(&self) -> Option<OpenConnection> {
        let open = self.open.lock();
        open.clone().filter(|open| !open.broken.load(Ordering::Acquire))
    }

    async fn connect(&self) -> RedisResult<OpenConnection> {
        let broken = Arc::new(AtomicBool::new(false));
        let flag = broken.clone();
        // Marks the connection as soon as the server closes it, so that no caller uses it
        // afterwards.
        let on_push = move |push: PushInfo| -> Result<(), ()> {
            if push.kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None) // CONNECT_TIMEOUT covers it.
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_push_sender(on_push);
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await?;
        load_scripts(&mut connection).await?;
        Ok(OpenConnection { connection, broken })
    }
}

impl Request<'_> {
    async fn send_on(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Self::One(command) => command.query_async(connection).await,
            Self::Many(pipe) => pipe.query_async(connection).await,
        }
    }
}

async fn load_scripts(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let mut pipe = Pipeline::new();
    for script in scripts::ALL {
        pipe.add_command(script.load()).ignore();
    }
    pipe.query_async(connection).await
}

/// Returns whether the next request should use a new connection: after any I/O error, and when the
/// server has become a replica, because its name may lead to another one by now.
fn breaks_connection(error: &RedisError) -> bool {
    let replica = ErrorKind::Server(ServerErrorKind::ReadOnly);
    error.is_io_error() || error.is_unrecoverable_error() || error.kind() == replica
}

fn timed_out(what: &'static str) -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, what).into()
}

fn read<T: FromRedisValue>(answer: RedisResult<Value>) -> Result<T, StoreError> {
    match answer {
        Ok(value) => decode(value),
        // The key holds a type that this program does not use there.
        Err(error) if error.code() == Some("WRONGTYPE") => Err(corrupt(REDIS, "a key", error)),
        Err(error) => Err(unavailable(REDIS, error)),
    }
}

/// Decodes a part of an answer.
pub(super) fn decode<T: FromRedisValue>(value: Value) -> Result<T, StoreError> {
    from_redis_value(value).map_err(|error| corrupt(REDIS, "an answer", error))
}
