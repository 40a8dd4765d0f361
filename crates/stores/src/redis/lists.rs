//! Lists of live, expired and ended sessions.

use ::redis::{Cmd, Pipeline, cmd};
use stayput_core::{Owner, Record, SessionId, StoreError, Timestamp};

use super::{
    BATCH_SIZE, REDIS, RedisStore, redis_limit,
    scripts::{CORRECT_DEADLINE, PURGE},
};
use crate::error::corrupt;

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
        let most = BATCH_SIZE.min(limit - page.len());
        let mut range = cmd("ZRANGE");
        range.arg((&index, from, "+", "BYLEX", "LIMIT", 0, most));
        let ids = read_ids(&store.connection.query::<Vec<String>>(&range).await?)?;
        for (id, record) in ids.iter().zip(store.records(&ids).await?) {
            match record {
                Some(record) if record.is_live() && owner.is_none_or(|o| *o == record.owner) => {
                    page.push(record);
                }
                // The owner of a missing session is unknown, so its entry is removed here; the
                // repair adds it again if the session is just being created.
                _ => {
                    let mut strike = cmd("ZREM");
                    strike.arg((&index, id.to_string()));
                    store.connection.query::<()>(&strike).await?;
                    store.repair_indexes(*id).await?;
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

/// Deadlines in the index may be too early. Those are corrected, and the index is read again until
/// the page is right.
pub(super) async fn list_due(
    store: &RedisStore,
    now: Timestamp,
    after: Option<(Timestamp, SessionId)>,
    limit: usize,
) -> Result<Vec<Record>, StoreError> {
    let index = store.keys.due();
    let after = after.map(|(at, id)| (at.as_millis() as f64, id));
    let from = after.map_or_else(|| "-inf".to_owned(), |(score, _)| score.to_string());
    let (most, mut skipped) = (redis_limit(limit), 0);
    loop {
        let mut range = cmd("ZRANGE");
        range.arg((
            &index,
            &from,
            now.as_millis(),
            "BYSCORE",
            "LIMIT",
            skipped,
            most,
            "WITHSCORES",
        ));
        let entries: Vec<(String, f64)> = store.connection.query(&range).await?;
        let CheckedEntries { expired, corrections, missing } =
            check_entries(store, &index, &entries, after).await?;
        if corrections.is_empty() && missing.is_empty() {
            // Entries at or before `after` are skipped; there may be many with one deadline.
            if expired.is_empty() && entries.len() == limit && limit > 0 {
                skipped += limit;
                continue;
            }
            return Ok(expired);
        }
        store.connection.query_pipeline::<()>(&corrections).await?;
        for id in missing {
            store.repair_indexes(id).await?;
        }
    }
}

/// Checked entries of the index of deadlines.
struct CheckedEntries {
    /// Records of expired sessions.
    expired: Vec<Record>,
    /// Corrections of deadlines that are too early.
    corrections: Pipeline,
    /// Entries without a live session.
    missing: Vec<SessionId>,
}

async fn check_entries(
    store: &RedisStore,
    index: &str,
    entries: &[(String, f64)],
    after: Option<(f64, SessionId)>,
) -> Result<CheckedEntries, StoreError> {
    let mut checked =
        CheckedEntries { expired: Vec::new(), corrections: Pipeline::new(), missing: Vec::new() };
    let ids = read_ids(entries.iter().map(|(id, _)| id))?;
    let records = ids.iter().zip(store.each_record(&ids).await?);
    for ((_, entered), (id, record)) in entries.iter().zip(records) {
        let Ok(record) = record else { continue }; // an undecodable record is skipped
        let Some(record) = record.filter(Record::is_live) else {
            checked.missing.push(*id);
            continue;
        };
        let deadline = record.deadline().map(Timestamp::as_millis);
        if deadline.is_none_or(|deadline| deadline as f64 != *entered) {
            checked
                .corrections
                .add_command(correct_deadline(index, *id, *entered, deadline))
                .ignore();
        } else if after.is_none_or(|(score, last)| (*entered, *id) > (score, last)) {
            checked.expired.push(record);
        }
    }
    Ok(checked)
}

fn correct_deadline(index: &str, id: SessionId, entered: f64, deadline: Option<u64>) -> Cmd {
    let deadline = deadline.map(|deadline| deadline.to_string());
    let mut call = CORRECT_DEADLINE.call(&[index]);
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
        let most = BATCH_SIZE.min(limit - gone);
        let mut range = cmd("ZRANGE");
        range.arg((store.keys.ended(), "-inf", before, "BYSCORE", "LIMIT", 0, most));
        let ids = read_ids(&store.connection.query::<Vec<String>>(&range).await?)?;
        if ids.is_empty() {
            break;
        }
        let mut pipe = Pipeline::new();
        for id in &ids {
            let keys = [store.keys.row(*id), store.keys.removed_row(*id), store.keys.state(*id)];
            let mut call = PURGE.call(&keys.each_ref().map(String::as_str));
            call.arg(ended_before.as_millis());
            pipe.add_command(call);
        }
        let codes: Vec<i64> = store.connection.query_pipeline(&pipe).await?;
        let (mut forgotten, mut others) = (Vec::new(), Vec::new());
        for (id, code) in ids.into_iter().zip(codes) {
            gone += usize::from(code == 1);
            if code == 0 { others.push(id) } else { forgotten.push(id) }
        }
        store.clean_up_removed(&forgotten).await?;
        for id in others {
            store.repair_indexes(id).await?;
        }
    }
    Ok(gone as u64)
}

fn read_ids<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<Vec<SessionId>, StoreError> {
    let unreadable = |error| corrupt(REDIS, "an index", error);
    texts.into_iter().map(|text| text.parse().map_err(unreadable)).collect()
}
