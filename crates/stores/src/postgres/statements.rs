//! SQL statements. An operation of more than one statement is a function of the schema.

/// Columns of a record with a prefix. They are listed, because a prepared statement with a star
/// breaks when a later schema adds a column.
macro_rules! columns {
    ($of:literal) => {
        columns!(
            $of;
            owner agent key created last_used idle absolute generation provisional detail ended_at
            ended_reason holder revision
        )
    };
    ($of:literal; $($column:ident)*) => {
        concat!($of, "id", $(", ", $of, stringify!($column),)*)
    };
}

/// A new session has no other connections, so none is stale.
pub(super) const INSERT: &str = "\
    with made as materialized (select outcome, generation, taken_by from stayput_insert( \
        $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)) \
    select case when outcome <> 'done' or $16::bytea is null then outcome \
        else stayput_put_connection($1, $14, $16, $17, $18, 0, 1) end as outcome, \
        generation, taken_by from made";

pub(super) const LOAD: &str =
    concat!("select ", columns!("s."), " from stayput_session s where s.id = $1");

pub(super) const FIND_BY_KEY: &str = concat!(
    "select ",
    columns!("s."),
    " from stayput_session s where s.key_digest = $1 and s.ended_reason is null"
);

pub(super) const REPLACE: &str = "select outcome, revision, taken_by from stayput_replace(\
     $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

pub(super) const TOUCH: &str = "select touched from stayput_touch($1, $2, $3)";

pub(super) const REMOVE: &str = "select outcome from stayput_remove($1, $2)";

pub(super) const LIST: &str = concat!(
    "select ",
    columns!("s."),
    " from stayput_session s where s.ended_at is null \
     and s.id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') order by s.id limit $2"
);

pub(super) const LIST_OF_OWNER: &str = concat!(
    "select ",
    columns!("s."),
    " from stayput_session s where s.ended_at is null and s.owner_digest = $3 \
     and s.id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') order by s.id limit $2"
);

pub(super) const LIST_DUE: &str = concat!(
    "select ",
    columns!("s."),
    " from stayput_session s where s.deadline <= $1 and (s.deadline, s.id) > ($2, $3) \
     order by s.deadline, s.id limit $4"
);

/// Rows that are locked by another call are left for the next purge.
pub(super) const PURGE: &str = "\
    with gone as ( \
        delete from stayput_session where id = any (array( \
            select s.id from stayput_session s where s.ended_at < $1 \
            order by s.ended_at, s.id limit $2 for update skip locked \
        )) returning 1 \
    ) select count(*) from gone";

pub(super) const ADD_HANDLE: &str = "select outcome from stayput_add_handle($1, $2, $3, $4)";

pub(super) const FIND_BY_HANDLE: &str = concat!(
    "select ",
    columns!("s."),
    " from stayput_handle h join stayput_session s on s.id = h.session where h.hash = $1"
);

pub(super) const PUT_CONNECTION: &str =
    "select outcome from stayput_put_connection($1, $2, $3, $4, $5, $6, $7)";

pub(super) const LOAD_CONNECTION: &str =
    "select session, last_used, body from stayput_connection where name = $1";

pub(super) const TOUCH_CONNECTIONS: &str =
    "select touched from stayput_touch_connections($1, $2, $3)";

pub(super) const REMOVE_CONNECTION: &str = "select outcome from stayput_remove_connection($1, $2)";

pub(super) const LOAD_STATE: &str =
    "select revision, value from stayput_state where session = $1 and digest = sha256($2)";

pub(super) const LIST_STATE_KEYS: &str = "select key, revision, length(value)::bigint as size \
     from stayput_state where session = $1 order by key";

pub(super) const PUT_STATE: &str = "select outcome, revision, others, count \
     from stayput_put_state($1, $2, $3, $4, $5, $6, $7)";

pub(super) const REMOVE_STATE: &str = "select outcome from stayput_remove_state($1, $2, $3, $4)";

/// A lease without a row has expired, so expired rows can be deleted, except those that are being
/// renewed.
pub(super) const ACQUIRE_LEASE: &str = "\
    with gone as ( \
        delete from stayput_lease where epoch = any (array( \
            select epoch from stayput_lease where expires <= clock_timestamp() \
            order by epoch for update skip locked \
        )) \
    ) insert into stayput_lease (holder, address, expires) \
    values ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond') returning epoch";

pub(super) const RENEW_LEASE: &str = "\
    update stayput_lease set expires = clock_timestamp() + $2::bigint * interval '1 millisecond' \
    where lease = $1 and expires > clock_timestamp() returning epoch";

pub(super) const RELEASE_LEASE: &str = "delete from stayput_lease where lease = $1";

pub(super) const LEASE_HOLDER: &str = "select stayput_lease_address($1)";

pub(super) const CLAIM: &str = concat!(
    "select c.outcome, c.held_by, c.address, ",
    columns!("(c.session)."),
    " from stayput_claim($1, $2) as c"
);

pub(super) const RELEASE_CLAIM: &str =
    "update stayput_session set holder = null where id = $1 and holder = $2";

/// The row of the counter is locked until the event is inserted, so that numbers appear in order.
pub(super) const APPEND: &str = "\
    with topic as ( \
        insert into stayput_topic as t (owner_digest, session, stream, last) values ($1, $2, $3, 1) \
        on conflict (owner_digest, session, stream) do update set last = t.last + 1 \
        returning t.id, t.last \
    ) insert into stayput_event (topic, number, body) select id, last, $4 from topic returning number";

pub(super) const READ_AFTER: &str = "\
    select e.number, e.body from stayput_topic t join stayput_event e on e.topic = t.id \
    where t.owner_digest = $1 and t.session = $2 and t.stream = $3 and e.number > $4 \
    order by e.number limit $5";

pub(super) const TRIM: &str = "\
    delete from stayput_event e using stayput_topic t where e.topic = t.id \
    and t.owner_digest = $1 and t.session = $2 and t.stream = $3 and e.number <= $4";

/// Locked in one order, so that two removals of one session cannot deadlock.
pub(super) const REMOVE_SESSION: &str = "\
    delete from stayput_topic where id = any (array( \
        select id from stayput_topic where owner_digest = $1 and session = $2 \
        order by id for update \
    ))";
