//! Creation, change and removal of records.

use ::redis::{Cmd, Pipeline};
use stayput_core::{
    Connection, ExpectedRevision, Generation, Lease, Record, Revision, SessionId, StoreError,
    Timestamp,
};

use super::{
    BATCH_SIZE, MAX_ATTEMPTS, REDIS, RedisStore, SEALED, check_code, handles,
    index::SessionState,
    lease_text, row,
    scripts::{INSERT, RAISE_GENERATION, REMOVE, REPLACE, TOUCH},
};
use crate::error::unavailable;

/// Writes the row first and moves the key to it last: a row whose key does not lead to it was never
/// acknowledged. If the process dies in between, it is a session without a key that ends at its
/// deadline and does not block the key.
pub(super) async fn insert(
    store: &RedisStore,
    record: &Record,
    connection: Option<&Connection>,
) -> Result<Generation, StoreError> {
    let Some(key) = store.keys.key_of(record) else {
        write_new(store, record, connection).await?;
        return Ok(record.generation);
    };
    // Generation of the row that was written.
    let mut written: Option<Generation> = None;
    for _ in 0..MAX_ATTEMPTS {
        let seen = store.load_key_entry(&key).await?;
        let least = match &seen {
            None => Generation(0),
            Some(place) => match store.seal(place.id).await? {
                // After a removal the successor starts at generation 0.
                SessionState::Missing => Generation(0),
                SessionState::Ended(generation) => generation.max(place.floor).next(),
                SessionState::Live => {
                    remove_loser(store, record, written).await?;
                    return Err(StoreError::Taken { by: place.id });
                }
            },
        };
        let generation = least.max(written.unwrap_or(record.generation));
        match written {
            None => write_new(store, &Record { generation, ..record.clone() }, connection).await?,
            Some(written) if written == generation => {}
            Some(_) => raise_generation(store, record.id, generation).await?,
        }
        written = Some(generation);
        let place = (record.id, Generation(0));
        if store.move_key(&key, seen.as_ref(), place).await? {
            return Ok(generation);
        }
    }
    remove_loser(store, record, written).await?;
    Err(unavailable(REDIS, "too many concurrent calls with the same key"))
}

/// Writes a row between two additions to the indexes: before, so that it is never missing in them;
/// after, because a call that saw the first entry without a row has removed the entry.
async fn write_new(
    store: &RedisStore,
    record: &Record,
    connection: Option<&Connection>,
) -> Result<(), StoreError> {
    let mut insert = handles::connections_command(store, &INSERT, record.id);
    match connection {
        None => insert.arg(("", "", 0)),
        Some(it) => insert.arg((it.name.as_bytes(), &it.body, it.last_used.as_millis())),
    };
    row::write_new(&mut insert, record)?;
    let mut pipe = Pipeline::new();
    store.add_to_indexes(&mut pipe, record);
    pipe.add_command(insert);
    store.add_to_indexes(&mut pipe, record);
    if let Some(connection) = connection {
        handles::add_name(store, &mut pipe, connection.name, record.id);
    }
    let (written,): (bool,) = store.connection.query_pipeline(&pipe).await?;
    if written {
        return Ok(());
    }
    if let Some(connection) = connection {
        store.connection.query::<()>(&store.delete_name(connection.name, record.id)).await?;
    }
    Err(StoreError::Taken { by: record.id })
}

async fn raise_generation(
    store: &RedisStore,
    id: SessionId,
    generation: Generation,
) -> Result<(), StoreError> {
    let mut call = RAISE_GENERATION.call(&[&store.keys.row(id)]);
    store.connection.query(call.arg(generation.0)).await
}

/// Removes a row that lost the race for its key, unless another process has claimed it by now.
async fn remove_loser(
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
    expected: ExpectedRevision,
    by: Option<Lease>,
) -> Result<Revision, StoreError> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(old) = store.row(record.id).await? else {
            return Err(StoreError::Missing);
        };
        check_expected(&old.record, expected, by)?;
        let new = Record {
            owner: old.record.owner.clone(),
            last_used: record.last_used.max(old.record.last_used),
            revision: expected.revision.next(),
            ..record.clone()
        };
        let reviving = new.is_live() && !old.record.is_live();
        let sooner = new.is_live()
            && new
                .deadline()
                .is_some_and(|new| reviving || old.record.deadline().is_none_or(|old| new < old));
        let mut pipe = Pipeline::new();
        if reviving {
            store.take_key_back(&old.record).await?;
            store.add_to_indexes(&mut pipe, &new);
        } else if sooner {
            store.add_deadline(&mut pipe, &new);
        }
        let seal = if reviving { old.seal.as_str() } else { "" };
        pipe.add_command(replace_command(store, &new, expected, by, seal)?);
        let (code,) = store.connection.query_pipeline(&pipe).await?;
        if reviving && code != 1 {
            store.undo_revival(&old.record).await?;
        }
        if code == SEALED {
            continue;
        }
        check_code(code)?;
        if new.ended != old.record.ended {
            store.repair_indexes(new.id).await?;
        } else if sooner {
            // Once more: a call that saw the first entry too early has corrected it.
            let mut pipe = Pipeline::new();
            store.add_deadline(&mut pipe, &new);
            store.connection.query_pipeline::<()>(&pipe).await?;
        }
        return Ok(new.revision);
    }
    Err(unavailable(REDIS, "too many concurrent calls with the same key"))
}

fn replace_command(
    store: &RedisStore,
    new: &Record,
    expected: ExpectedRevision,
    by: Option<Lease>,
    seal: &str,
) -> Result<Cmd, StoreError> {
    let used = expected.last_used.map(|at| at.as_millis().to_string()).unwrap_or_default();
    let mut call = REPLACE.call(&[&store.keys.row(new.id), &store.keys.state(new.id)]);
    call.arg((lease_text(by), expected.revision.0, used, seal));
    call.arg((new.last_used.as_millis(), row::end(new)));
    row::write_changing(&mut call, new)?;
    Ok(call)
}

/// Updates times of use in the rows only. The deadline in the index is then too early, and
/// [`list_due`](super::lists::list_due) corrects it.
pub(super) async fn touch(
    store: &RedisStore,
    used: &[(SessionId, Timestamp)],
    by: Option<Lease>,
) -> Result<u64, StoreError> {
    let (by, mut touched) = (lease_text(by), 0);
    for some in used.chunks(BATCH_SIZE) {
        let mut pipe = Pipeline::new();
        for (id, at) in some {
            let mut call = TOUCH.call(&[&store.keys.row(*id)]);
            call.arg(&by).arg(at.as_millis());
            pipe.add_command(call);
        }
        touched += store.connection.query_pipeline::<Vec<u64>>(&pipe).await?.iter().sum::<u64>();
    }
    Ok(touched)
}

pub(super) async fn remove(
    store: &RedisStore,
    id: SessionId,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    let keys = [store.keys.row(id), store.keys.removed_row(id), store.keys.state(id)];
    let mut call = REMOVE.call(&keys.each_ref().map(String::as_str));
    match check_code(store.connection.query(call.arg(lease_text(by))).await?)? {
        0 => Ok(()),
        _ => store.clean_up_removed(&[id]).await,
    }
}

/// Checks what the script checks again, so that a revival that cannot succeed does not take a key.
fn check_expected(
    old: &Record,
    expected: ExpectedRevision,
    by: Option<Lease>,
) -> Result<(), StoreError> {
    if old.holder.is_some() && old.holder != by {
        return Err(StoreError::NotHolder);
    }
    let used = expected.last_used.is_some_and(|last_used| last_used != old.last_used);
    if old.revision != expected.revision || used {
        return Err(StoreError::Stale);
    }
    Ok(())
}
