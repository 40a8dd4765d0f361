//! The same statements by the drivers alone.

use std::{sync::Arc, time::Instant};

use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use rusqlite::{Connection, params};
use stayput_core::SessionId;

use super::{VALUE, Verb, per_second, rate};

/// Driver on a database that the store has filled.
pub(super) enum Bare {
    Sqlite(String),
    Postgres(deadpool_postgres::Pool),
    Redis { connection: MultiplexedConnection, prefix: String, put: Script },
}

const LOAD: &str =
    "select id, owner, agent, key, created, last_used, idle, absolute, generation, provisional,
    detail, ended_at, ended_reason, holder, revision from";

impl Bare {
    pub(super) async fn open(url: &str) -> Self {
        match url.split_once(':').unwrap() {
            ("sqlite", path) => Self::Sqlite(path.to_owned()),
            ("postgres", _) => {
                let config: tokio_postgres::Config = url.parse().unwrap();
                let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
                Self::Postgres(
                    deadpool_postgres::Pool::builder(manager).max_size(16).build().unwrap(),
                )
            }
            _ => {
                let (url, prefix) = url.split_once("?prefix=").unwrap();
                let client = redis::Client::open(url).unwrap();
                let connection = client.get_multiplexed_async_connection().await.unwrap();
                let put = Script::new(concat!(
                    include_str!("../../../crates/stores/src/redis/scripts/fence.lua"),
                    include_str!("../../../crates/stores/src/redis/scripts/expected_value.lua"),
                    include_str!("../../../crates/stores/src/redis/scripts/put_state.lua"),
                ));
                Self::Redis { connection, prefix: prefix.to_owned(), put }
            }
        }
    }

    pub(super) async fn rate(
        self: Arc<Self>,
        verb: Verb,
        ids: Arc<[SessionId]>,
        count: usize,
    ) -> f64 {
        match &*self {
            // One connection in a plain loop, because SQLite is fastest without sharing.
            Self::Sqlite(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || sqlite(&path, verb, &ids, count)).await.unwrap()
            }
            Self::Postgres(_) | Self::Redis { .. } => {
                rate(count, move |n| {
                    let (bare, id) = (self.clone(), ids[n % ids.len()]);
                    async move { bare.ask(verb, id).await }
                })
                .await
            }
        }
    }

    async fn ask(&self, verb: Verb, id: SessionId) {
        match self {
            Self::Sqlite(_) => {}
            Self::Postgres(pool) => postgres(pool, verb, id).await,
            Self::Redis { connection, prefix, put } => {
                let (mut connection, key) =
                    (connection.clone(), |part| format!("{prefix}:{{{id}}}:{part}"));
                match verb {
                    Verb::Load => {
                        drop(connection.hgetall::<_, Vec<Vec<u8>>>(key("r")).await.unwrap());
                    }
                    Verb::State => {
                        drop(
                            connection
                                .hmget::<_, _, Vec<Vec<u8>>>(key("s"), &["rkey", "vkey"])
                                .await
                                .unwrap(),
                        );
                    }
                    Verb::Put => {
                        let mut call = put.key(key("r"));
                        call.key(key("s")).arg("").arg("key").arg("").arg(VALUE).arg(VALUE.len());
                        call.arg(256).arg(1 << 18).arg(1 << 22).arg(1024);
                        drop(call.invoke_async::<Vec<i64>>(&mut connection).await.unwrap());
                    }
                }
            }
        }
    }
}

async fn postgres(pool: &deadpool_postgres::Pool, verb: Verb, id: SessionId) {
    let client = pool.get().await.unwrap();
    let id = id.as_uuid();
    let rows = match verb {
        Verb::Load => {
            let load = format!("{LOAD} stayput_session where id = $1");
            client.query(&client.prepare_cached(&load).await.unwrap(), &[&id]).await
        }
        Verb::State => {
            let state = "select revision, value from stayput_state where session = $1 and digest = sha256($2)";
            client
                .query(&client.prepare_cached(state).await.unwrap(), &[&id, &b"key".as_slice()])
                .await
        }
        Verb::Put => {
            let put = "select outcome, revision, others, count from stayput_put_state($1, $2, $3, $4, $5, $6, $7)";
            let statement = client.prepare_cached(put).await.unwrap();
            let none: (Option<&str>, Option<i64>) = (None, None);
            let room = 1_i64 << 22;
            client
                .query(
                    &statement,
                    &[&id, &none.0, &b"key".as_slice(), &VALUE, &none.1, &room, &1_024_i64],
                )
                .await
        }
    };
    assert_eq!(rows.unwrap().len(), 1);
}

fn sqlite(path: &str, verb: Verb, ids: &[SessionId], count: usize) -> f64 {
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "synchronous", "full").unwrap();
    let start = Instant::now();
    for n in 0..count {
        let id = ids[n % ids.len()].to_string();
        match verb {
            Verb::Load => {
                let load = format!("{LOAD} session where id = ?1");
                let read = |row: &rusqlite::Row<'_>| {
                    (0..15)
                        .map(|at| row.get::<_, rusqlite::types::Value>(at))
                        .collect::<Result<Vec<_>, _>>()
                };
                db.prepare_cached(&load).unwrap().query_row([id], read).unwrap();
            }
            Verb::State => {
                let state = "select revision, bytes from state where session = ?1 and key = ?2";
                let read = |row: &rusqlite::Row<'_>| row.get::<_, Vec<u8>>(1);
                db.prepare_cached(state).unwrap().query_row([&id, "key"], read).unwrap();
            }
            Verb::Put => {
                let transaction = db.unchecked_transaction().unwrap();
                let next = "update session set state_revision = state_revision + 1 where id = ?1
                            and holder is null and ended_at is null returning state_revision";
                let revision: i64 =
                    db.prepare_cached(next).unwrap().query_row([&id], |row| row.get(0)).unwrap();
                let put = "insert into state (session, key, revision, bytes) values (?1, 'key', ?2, ?3)
                           on conflict do update set revision = excluded.revision, bytes = excluded.bytes";
                db.prepare_cached(put).unwrap().execute(params![id, revision, VALUE]).unwrap();
                transaction.commit().unwrap();
            }
        }
    }
    per_second(count, start.elapsed())
}
