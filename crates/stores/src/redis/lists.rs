//! Lists of sessions: all of them, those whose time has come, and those that are long over.

use ::redis::{Cmd, Pipeline, cmd};
use stayput_core::{Owner, Record, SessionId, StoreError, Timestamp};

use super::{
    BATCH, REDIS, RedisStore, count,
    scripts::{POSTPONE, PURGE},
};
use crate::failure::corrupt;

pub(super) async fn list(
    store: &RedisStore,
    owner: Option<&Owner>,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<Record>, StoreError> {
    let index = owner.map_or_else(|| store.keys.all(), |owner| store.keys.owner(owner));
    let (mut page, mut after) = (Vec::new(), after);
    while page.len() < limit {
        let from = after.map_or_else(|| "-".to_owned(), |id| format!("({id}"));
        let most = BATCH.min(limit - page.len());
        let mut range = cmd("ZRANGE");
        range.arg((&index, from, "+", "BYLEX", "LIMIT", 0, most));
        let ids = read_ids(&store.link.one::<Vec<String>>(&range).await?)?;
        for (id, record) in ids.iter().zip(store.records(&ids).await?) {
            match record {
                Some(record) if record.is_live() && owner.is_none_or(|o| *o == record.owner) => {
                    page.push(record);
                }
                // Not even the owner is known of what is gone, so it is struck off here; settling
                // enters it again if it is only just being made.
                _ => {
                    let mut strike = cmd("ZREM");
                    strike.arg((&index, id.to_string()));
                    store.link.one::<()>(&strike).await?;
                    store.settle(*id).await?;
                }
            }
        }
        after = ids.last().copied();
        if ids.len() < most {
            break;
        }
    }
    Ok(page)
}

/// Deadlines in the index may be too early. Those are put off, and the index is read again, until it
/// is right as far as it is read.
pub(super) async fn due(
    store: &RedisStore,
    now: Timestamp,
    after: Option<(Timestamp, SessionId)>,
    limit: usize,
) -> Result<Vec<Record>, StoreError> {
    let index = store.keys.due();
    let after = after.map(|(at, id)| (at.as_millis() as f64, id));
    let from = after.map_or_else(|| "-inf".to_owned(), |(score, _)| score.to_string());
    let (most, mut passed) = (count(limit), 0);
    loop {
        let mut range = cmd("ZRANGE");
        range.arg((&index, &from, now.as_millis(), "BYSCORE", "LIMIT", passed, most, "WITHSCORES"));
        let entries: Vec<(String, f64)> = store.link.one(&range).await?;
        let Judged { over, early, strays } = judge(store, &index, &entries, after).await?;
        if early.is_empty() && strays.is_empty() {
            // What stands at or before `after` is passed over; there may be many at one moment.
            if over.is_empty() && entries.len() == limit && limit > 0 {
                passed += limit;
                continue;
            }
            return Ok(over);
        }
        store.link.many::<()>(&early).await?;
        for id in strays {
            store.settle(id).await?;
        }
    }
}

/// What a part of the index of deadlines is worth.
struct Judged {
    /// The records that are over.
    over: Vec<Record>,
    /// What puts off the entries that are too early.
    early: Pipeline,
    /// The entries that lead nowhere.
    strays: Vec<SessionId>,
}

async fn judge(
    store: &RedisStore,
    index: &str,
    entries: &[(String, f64)],
    after: Option<(f64, SessionId)>,
) -> Result<Judged, StoreError> {
    let mut judged = Judged { over: Vec::new(), early: Pipeline::new(), strays: Vec::new() };
    let ids = read_ids(entries.iter().map(|(id, _)| id))?;
    let records = ids.iter().zip(store.each_record(&ids).await?);
    for ((_, entered), (id, record)) in entries.iter().zip(records) {
        let Ok(record) = record else { continue }; // nobody can judge it
        let Some(record) = record.filter(Record::is_live) else {
            judged.strays.push(*id);
            continue;
        };
        let deadline = record.deadline().map(Timestamp::as_millis);
        if deadline.is_none_or(|deadline| deadline as f64 != *entered) {
            judged.early.add_command(postponing(index, *id, *entered, deadline)).ignore();
        } else if after.is_none_or(|(score, last)| (*entered, *id) > (score, last)) {
            judged.over.push(record);
        }
    }
    Ok(judged)
}

fn postponing(index: &str, id: SessionId, entered: f64, deadline: Option<u64>) -> Cmd {
    let deadline = deadline.map(|deadline| deadline.to_string());
    let mut call = POSTPONE.call(&[index]);
    call.arg((id.to_string(), entered.to_string(), deadline.unwrap_or_default()));
    call
}

pub(super) async fn purge(
    store: &RedisStore,
    ended_before: Timestamp,
    limit: usize,
) -> Result<u64, StoreError> {
    let mut gone = 0;
    while gone < limit {
        let before = format!("({}", ended_before.as_millis());
        let most = BATCH.min(limit - gone);
        let mut range = cmd("ZRANGE");
        range.arg((store.keys.ended(), "-inf", before, "BYSCORE", "LIMIT", 0, most));
        let ids = read_ids(&store.link.one::<Vec<String>>(&range).await?)?;
        if ids.is_empty() {
            break;
        }
        let mut pipe = Pipeline::new();
        for id in &ids {
            let keys = [store.keys.row(*id), store.keys.grave(*id), store.keys.state(*id)];
            let mut call = PURGE.call(&keys.each_ref().map(String::as_str));
            call.arg(ended_before.as_millis());
            pipe.add_command(call);
        }
        let codes: Vec<i64> = store.link.many(&pipe).await?;
        let (mut forgotten, mut others) = (Vec::new(), Vec::new());
        for (id, code) in ids.into_iter().zip(codes) {
            gone += usize::from(code == 1);
            if code == 0 { others.push(id) } else { forgotten.push(id) }
        }
        store.clean(&forgotten).await?;
        for id in others {
            store.settle(id).await?;
        }
    }
    Ok(gone as u64)
}

fn read_ids<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<Vec<SessionId>, StoreError> {
    let unreadable = |error| corrupt(REDIS, "an index", error);
    texts.into_iter().map(|text| text.parse().map_err(unreadable)).collect()
}
