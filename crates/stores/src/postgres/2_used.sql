-- When a connection was last used.

alter table stayput_connection add column used bigint not null default 0;

drop index stayput_connection_session;
create index stayput_connection_session on stayput_connection (session, used);

-- Of the connections of a session those go that were last used before `p_unused`, but for the `p_most` that
-- were used last.
drop function stayput_put_connection(uuid, text, bytea, bytea);
create function stayput_put_connection(
    p_id uuid, p_by text, p_name bytea, p_body bytea, p_used bigint, p_unused bigint, p_most bigint,
    out outcome text
)
language plpgsql as $$
begin
    outcome := stayput_writable(p_id, p_by, false);
    if outcome <> 'done' then
        return;
    end if;
    insert into stayput_connection as c (name, session, body, used) values (p_name, p_id, p_body, p_used)
        on conflict (name) do update set
            session = excluded.session, body = excluded.body, used = greatest(c.used, excluded.used);
    -- Where there are not so many, nothing is before what the inner one finds.
    delete from stayput_connection c where c.session = p_id and c.used < p_unused and c.used < (
        select o.used from stayput_connection o where o.session = p_id
            order by o.used desc limit 1 offset p_most - 1
    );
end $$;

-- In one order, so that two who note the same ones do not wait for each other.
create function stayput_touch_connections(
    p_names bytea[], p_times bigint[], p_by text, out noted bigint
)
language plpgsql as $$
declare
    seen record;
begin
    noted := 0;
    for seen in
        select u.name, max(u.at) as at from unnest(p_names, p_times) as u (name, at)
            group by u.name order by u.name
    loop
        update stayput_connection c set used = greatest(c.used, seen.at)
            from stayput_session s
            where c.name = seen.name and s.id = c.session and (s.holder is null or s.holder = p_by);
        if found then
            noted := noted + 1;
        end if;
    end loop;
end $$;
