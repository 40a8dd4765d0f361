-- Schema 3. Times are milliseconds since 1970, durations are milliseconds.

create table session (
    id             text    primary key,
    owner          text    not null,
    agent          text    not null,          -- '' is the owner's own namespace
    key            text,
    created        integer not null,
    last_used      integer not null,
    idle           integer,
    absolute       integer,
    deadline       integer,                   -- derived: the earlier of idle and absolute
    generation     integer not null,
    provisional    integer not null,
    detail         text    not null,          -- JSON that no statement reads
    ended_at       integer,
    ended_reason   text,
    holder         text,                      -- lease of the claim
    revision       integer not null,
    state_revision integer not null default 0 -- only grows, so that revisions of values never repeat
) strict, without rowid;

create unique index session_key on session (owner, agent, key) where key is not null and ended_at is null;
create index session_ended_key on session (owner, agent, key) where key is not null and ended_at is not null;
create index session_owner on session (owner, id) where ended_at is null;
create index session_due on session (deadline) where ended_at is null and deadline is not null;
create index session_ended on session (ended_at) where ended_at is not null;

create table handle (
    number  integer primary key autoincrement, -- lowest for the oldest
    hash    blob    not null unique,
    session text    not null references session on delete cascade
) strict;

create index handle_session on handle (session);

create table connection (
    name      blob    primary key,
    session   text    not null references session on delete cascade,
    last_used integer not null,
    body      blob    not null
) strict, without rowid;

create index connection_session on connection (session, last_used);

create table state (
    session  text    not null references session on delete cascade,
    key      text    not null,
    revision integer not null,
    bytes    blob    not null,
    primary key (session, key)
) strict, without rowid;

create table lease (
    epoch   integer primary key autoincrement,
    holder  text    not null,
    address text    not null,
    expires integer not null                  -- by the clock of the database
) strict;

create table topic (
    number  integer primary key,
    owner   text    not null,
    session text    not null,
    stream  integer not null,                 -- the bits of an unsigned number
    last    integer not null,                 -- outlives trimmed events
    unique (owner, session, stream)
) strict;

create table event (
    topic  integer not null references topic on delete cascade,
    number integer not null,
    body   blob    not null,
    primary key (topic, number)
) strict, without rowid;
