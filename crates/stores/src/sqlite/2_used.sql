-- Schema 2: when a connection was last used.

alter table connection add column used integer not null default 0;

drop index connection_session;
create index connection_session on connection (session, used);
