//! Records: how they are made, changed and forgotten.

use ::redis::{Cmd, Pipeline};
use stayput_core::{
    Connection, Generation, Lease, Record, Revision, Seen, SessionId, StoreError, Timestamp,
};

use super::{
    BATCH, REDIS, RedisStore, SEALED, TURNS, allowed,
    index::Last,
    lease_text, names, row,
    scripts::{INSERT, RAISE, REMOVE, REPLACE, TOUCH},
};
use crate::failure::unavailable;

/// Writes the row first and moves the key to it last: a row whose key does not lead to it was
/// never acknowledged. If nobody finishes, it is a session without a name that ends at its
/// deadline; it keeps nobody from the key.
pub(super) async fn insert(
    store: &RedisStore,
    record: &Record,
    connection: Option<&Connection>,
) -> Result<Generation, StoreError> {
    let Some(key) = store.keys.key_of(record) else {
        write_new(store, record, connection).await?;
        return Ok(record.generation);
    };
    // The generation under which the row is there by now.
    let mut written: Option<Generation> = None;
    for _ in 0..TURNS {
        let seen = store.place(&key).await?;
        let least = match &seen {
            None => Generation(0),
            Some(place) => match store.seal(place.id).await? {
                // Forgotten is forgotten: a successor inherits nothing.
                Last::Gone => Generation(0),
                Last::Over(generation) => generation.max(place.floor).next(),
                Last::Live => {
                    take_back(store, record, written).await?;
                    return Err(StoreError::Taken { by: place.id });
                }
            },
        };
        let generation = least.max(written.unwrap_or(record.generation));
        match written {
            None => write_new(store, &Record { generation, ..record.clone() }, connection).await?,
            Some(written) if written == generation => {}
            Some(_) => raise(store, record.id, generation).await?,
        }
        written = Some(generation);
        let place = (record.id, Generation(0));
        if store.move_place(&key, seen.as_ref(), place).await? {
            return Ok(generation);
        }
    }
    take_back(store, record, written).await?;
    Err(unavailable(REDIS, "too many want the same key at once"))
}

/// Writes a row between two entries into the indexes: before, so that it is never in none; after,
/// because whoever met the first entry without a row has taken it out.
async fn write_new(
    store: &RedisStore,
    record: &Record,
    connection: Option<&Connection>,
) -> Result<(), StoreError> {
    let mut insert = names::on_connections(store, &INSERT, record.id);
    match connection {
        None => insert.arg(("", "", 0)),
        Some(it) => insert.arg((it.name.as_bytes(), &it.body, it.used.as_millis())),
    };
    row::write_new(&mut insert, record)?;
    let mut pipe = Pipeline::new();
    store.enter(&mut pipe, record);
    pipe.add_command(insert);
    store.enter(&mut pipe, record);
    if let Some(connection) = connection {
        names::enter(store, &mut pipe, connection.name, record.id);
    }
    let (written,): (bool,) = store.link.many(&pipe).await?;
    if written {
        return Ok(());
    }
    if let Some(connection) = connection {
        store.link.one::<()>(&store.drop_name(connection.name, record.id)).await?;
    }
    Err(StoreError::Taken { by: record.id })
}

async fn raise(
    store: &RedisStore,
    id: SessionId,
    generation: Generation,
) -> Result<(), StoreError> {
    let mut call = RAISE.call(&[&store.keys.row(id)]);
    store.link.one(call.arg(generation.0)).await
}

/// Forgets a row that lost the race for its key, unless somebody has claimed it by now.
async fn take_back(
    store: &RedisStore,
    record: &Record,
    written: Option<Generation>,
) -> Result<(), StoreError> {
    if written.is_none() {
        return Ok(());
    }
    match remove(store, record.id, record.holder).await {
        Err(StoreError::NotHolder) => Ok(()),
        result => result,
    }
}

pub(super) async fn replace(
    store: &RedisStore,
    record: &Record,
    seen: Seen,
    by: Option<Lease>,
) -> Result<Revision, StoreError> {
    for _ in 0..TURNS {
        let Some(old) = store.row(record.id).await? else {
            return Err(StoreError::Missing);
        };
        check(&old.record, seen, by)?;
        let new = Record {
            owner: old.record.owner.clone(),
            last_used: record.last_used.max(old.record.last_used),
            revision: seen.revision.next(),
            ..record.clone()
        };
        let reviving = new.is_live() && !old.record.is_live();
        let sooner = new.is_live()
            && new
                .deadline()
                .is_some_and(|new| reviving || old.record.deadline().is_none_or(|old| new < old));
        let mut pipe = Pipeline::new();
        if reviving {
            store.take_place(&old.record).await?;
            store.enter(&mut pipe, &new);
        } else if sooner {
            store.enter_due(&mut pipe, &new);
        }
        let seal = if reviving { old.seal.as_str() } else { "" };
        pipe.add_command(replacing(store, &new, seen, by, seal)?);
        let (code,) = store.link.many(&pipe).await?;
        if reviving && code != 1 {
            store.withdraw(&old.record).await?;
        }
        if code == SEALED {
            continue;
        }
        allowed(code)?;
        if new.ended != old.record.ended {
            store.settle(new.id).await?;
        } else if sooner {
            // Once more: whoever met the first entry too early has put it off.
            let mut pipe = Pipeline::new();
            store.enter_due(&mut pipe, &new);
            store.link.many::<()>(&pipe).await?;
        }
        return Ok(new.revision);
    }
    Err(unavailable(REDIS, "too many want the same key at once"))
}

fn replacing(
    store: &RedisStore,
    new: &Record,
    seen: Seen,
    by: Option<Lease>,
    seal: &str,
) -> Result<Cmd, StoreError> {
    let used = seen.last_used.map(|at| at.as_millis().to_string()).unwrap_or_default();
    let mut call = REPLACE.call(&[&store.keys.row(new.id), &store.keys.state(new.id)]);
    call.arg((lease_text(by), seen.revision.0, used, seal));
    call.arg((new.last_used.as_millis(), row::end(new)));
    row::write_changing(&mut call, new)?;
    Ok(call)
}

/// Times of use are written into rows alone: the index of deadlines has then one that is too
/// early, and [`due`](super::lists::due) puts it off when that comes.
pub(super) async fn touch(
    store: &RedisStore,
    used: &[(SessionId, Timestamp)],
    by: Option<Lease>,
) -> Result<u64, StoreError> {
    let (by, mut noted) = (lease_text(by), 0);
    for some in used.chunks(BATCH) {
        let mut pipe = Pipeline::new();
        for (id, at) in some {
            let mut call = TOUCH.call(&[&store.keys.row(*id)]);
            call.arg(&by).arg(at.as_millis());
            pipe.add_command(call);
        }
        noted += store.link.many::<Vec<u64>>(&pipe).await?.iter().sum::<u64>();
    }
    Ok(noted)
}

pub(super) async fn remove(
    store: &RedisStore,
    id: SessionId,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let keys = [store.keys.row(id), store.keys.grave(id), store.keys.state(id)];
    let mut call = REMOVE.call(&keys.each_ref().map(String::as_str));
    match allowed(store.link.one(call.arg(lease_text(by))).await?)? {
        0 => Ok(()),
        _ => store.clean(&[id]).await,
    }
}

/// What the script asks again, so that a revival that cannot happen does not take a key.
fn check(old: &Record, seen: Seen, by: Option<Lease>) -> Result<(), StoreError> {
    if old.holder.is_some() && old.holder != by {
        return Err(StoreError::NotHolder);
    }
    let used = seen.last_used.is_some_and(|last_used| last_used != old.last_used);
    if old.revision != seen.revision || used {
        return Err(StoreError::Stale);
    }
    Ok(())
}
