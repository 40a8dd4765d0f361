-- Times are milliseconds since 1970 and durations are milliseconds, as in the records.
-- A digest replaces a text that may be too long for an index.

create table stayput_session (
    id uuid primary key,
    owner text not null,
    owner_digest bytea not null,
    agent text not null,
    key text,
    key_digest bytea,
    created bigint not null,
    last_used bigint not null,
    idle bigint,
    absolute bigint,
    generation bigint not null,
    provisional boolean not null,
    detail text not null,
    ended_at bigint,
    ended_reason text,
    holder text,
    revision bigint not null,
    -- Last revision of a value. It outlives the values, so that none is used twice.
    state_revision bigint not null default 0,
    -- Size of all values with their keys, and their number.
    state_bytes bigint not null default 0,
    state_keys bigint not null default 0,
    -- Time at which it expires unless it is used again; null is never. A sum that is too large is the
    -- latest time.
    deadline bigint generated always as (
        case when ended_at is null then least(
            case when idle is not null
                then last_used + least(idle, 9223372036854775807 - last_used) end,
            case when absolute is not null
                then created + least(absolute, 9223372036854775807 - created) end
        ) end
    ) stored,
    check ((key is null) = (key_digest is null)),
    check ((ended_at is null) = (ended_reason is null))
);

-- `ended_at` and `ended_reason` are null together. Before there are statistics, the planner may pick any
-- index whose condition a statement repeats, and the plan is cached for a while. So the indexes of keys
-- use `ended_reason`, the others use `ended_at`, and a statement uses the condition of its own index.

-- A key has one live session. Its next session gets a generation above those of its tombstones.
create unique index stayput_session_key on stayput_session (key_digest)
    where key_digest is not null and ended_reason is null;
create index stayput_session_ended_key on stayput_session (key_digest)
    where key_digest is not null and ended_reason is not null;
create index stayput_session_live on stayput_session (id) where ended_at is null;
create index stayput_session_owner on stayput_session (owner_digest, id) where ended_at is null;
create index stayput_session_deadline on stayput_session (deadline, id) where deadline is not null;
create index stayput_session_ended on stayput_session (ended_at, id) where ended_at is not null;

create table stayput_handle (
    hash bytea primary key,
    session uuid not null references stayput_session on delete cascade,
    -- Order of insertion.
    number bigint not null generated always as identity
);

create index stayput_handle_session on stayput_handle (session, number);

create table stayput_connection (
    name bytea primary key,
    session uuid not null references stayput_session on delete cascade,
    last_used bigint not null,
    body bytea not null
);

create index stayput_connection_session on stayput_connection (session, last_used);

-- Keys are bytes: they sort in byte order in every locale, and may hold every character.
create table stayput_state (
    session uuid not null references stayput_session on delete cascade,
    digest bytea not null generated always as (sha256(key)) stored,
    key bytea not null,
    revision bigint not null,
    value bytea not null,
    primary key (session, digest)
);

-- A lease without a row has expired.
create table stayput_lease (
    epoch bigint primary key generated always as identity,
    holder text not null,
    address text not null,
    expires timestamptz not null,
    -- Same text as in stayput_session.holder.
    lease text not null unique generated always as (cast(epoch as text) || '@' || holder) stored
);

-- The counter outlives trimmed events, so that no number is used twice.
create table stayput_topic (
    id bigint primary key generated always as identity,
    owner_digest bytea not null,
    session uuid not null,
    stream bigint not null,
    last bigint not null,
    unique (owner_digest, session, stream)
);

create table stayput_event (
    topic bigint not null references stayput_topic on delete cascade,
    number bigint not null,
    body bytea not null,
    primary key (topic, number)
);
