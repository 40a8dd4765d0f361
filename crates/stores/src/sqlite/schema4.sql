-- Schema 4: a counter that shows that this file was replaced by an older copy.

create table counter (
    database text    not null,                -- random name of this database
    number   integer not null                 -- grows with each change of a lease
) strict;

insert into counter (database, number) values (lower(hex(randomblob(16))), 0);
