//! The connection to the server: one for all callers, made anew by itself when it breaks.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, PushInfo, PushKind,
    RedisError, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection, from_redis_value,
};
use stayput_core::StoreError;
use tokio::time::timeout;

use super::{REDIS, scripts};
use crate::failure::{corrupt, unavailable};

/// How long a connection may take to be made, encryption and sign-in included.
const CONNECT: Duration = Duration::from_secs(2);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// One connection that all callers share, each with its own questions in flight.
///
/// The driver has a manager of connections, but that one stays with a connection that only times out,
/// and gives up for good when the server refuses a new one, as a full or misconfigured server does for
/// a while. Here whatever looks broken is replaced at the next question.
pub(super) struct Link {
    client: Client,
    line: Mutex<Option<Line>>,
    /// Whoever has it makes the next connection; the others wait for that one.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Line {
    connection: MultiplexedConnection,
    broken: Arc<AtomicBool>,
}

enum Question<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        Self { client, line: Mutex::new(None), turn: tokio::sync::Mutex::new(()) }
    }

    /// Asks for one thing.
    pub(super) async fn one<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        read(self.ask(Question::One(command)).await)
    }

    /// Asks for several things in one round trip. They happen in order, not as one; if the server does
    /// not know a script, all are asked again, so they must bear that.
    pub(super) async fn many<T: FromRedisValue>(&self, pipe: &Pipeline) -> Result<T, StoreError> {
        if pipe.is_empty() {
            return read(Ok(Value::Array(Vec::new())));
        }
        read(self.ask(Question::Many(pipe)).await)
    }

    /// Asks as [`Link::many`] does, with the driver's own answer and error.
    pub(super) async fn raw(&self, pipe: &Pipeline) -> RedisResult<Value> {
        self.ask(Question::Many(pipe)).await
    }

    async fn ask(&self, question: Question<'_>) -> RedisResult<Value> {
        let mut line = match timeout(CONNECT, self.line()).await {
            Ok(line) => line?,
            Err(_) => return Err(late("no connection could be made in time")),
        };
        let mut answer = question.put(&mut line.connection).await;
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        if answer.as_ref().is_err_and(|error| error.kind() == unknown) {
            // Whoever flushed the scripts did so before this one could run: nothing has happened.
            load_scripts(&mut line.connection).await?;
            answer = question.put(&mut line.connection).await;
        }
        if answer.as_ref().is_err_and(breaks) {
            line.broken.store(true, Ordering::Release);
        }
        answer
    }

    async fn line(&self) -> RedisResult<Line> {
        if let Some(line) = self.usable() {
            return Ok(line);
        }
        let _turn = self.turn.lock().await;
        if let Some(line) = self.usable() {
            return Ok(line);
        }
        let line = self.connect().await?;
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.clone());
        Ok(line)
    }

    fn usable(&self) -> Option<Line> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.clone().filter(|line| !line.broken.load(Ordering::Acquire))
    }

    async fn connect(&self) -> RedisResult<Line> {
        let broken = Arc::new(AtomicBool::new(false));
        let noted = broken.clone();
        // Told as soon as the server hangs up, so that nobody is sent into a connection that is gone.
        let note = move |push: PushInfo| -> Result<(), ()> {
            if push.kind == PushKind::Disconnection {
                noted.store(true, Ordering::Release);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None) // There is one around all of it.
            .set_response_timeout(Some(ANSWER))
            .set_push_sender(note);
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await?;
        load_scripts(&mut connection).await?;
        Ok(Line { connection, broken })
    }
}

impl Question<'_> {
    async fn put(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
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

/// Whether the next question is better asked over a new connection: after any trouble on the way, and
/// when the server has become a replica, because its name may lead to another one by now.
fn breaks(error: &RedisError) -> bool {
    let replica = ErrorKind::Server(ServerErrorKind::ReadOnly);
    error.is_io_error() || error.is_unrecoverable_error() || error.kind() == replica
}

fn late(what: &'static str) -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, what).into()
}

fn read<T: FromRedisValue>(said: RedisResult<Value>) -> Result<T, StoreError> {
    match said {
        Ok(value) => answer(value),
        // Something that is not ours is where ours should be.
        Err(error) if error.code() == Some("WRONGTYPE") => Err(corrupt(REDIS, "a key", error)),
        Err(error) => Err(unavailable(REDIS, error)),
    }
}

/// Reads a part of an answer.
pub(super) fn answer<T: FromRedisValue>(value: Value) -> Result<T, StoreError> {
    from_redis_value(value).map_err(|error| corrupt(REDIS, "an answer", error))
}
