
-- An operation of more than one statement is one function. All functions are volatile and run in a
-- read committed transaction, so every statement sees what was committed before it began: a value
-- that is read after its row was locked stays true for as long as the lock is held.
--
-- The session's row is locked first, then the rows that belong to it, so that two calls cannot
-- deadlock. An outcome is a word that the program knows.

-- Locks a session and returns whether `p_by` may write to it.
create function stayput_writable(p_id uuid, p_by text, p_live boolean) returns text
language plpgsql as $$
declare
    held text;
    over bigint;
begin
    select s.holder, s.ended_at into held, over
        from stayput_session s where s.id = p_id for no key update;
    if not found then
        return 'missing';
    elsif held is not null and held is distinct from p_by then
        return 'not_holder';
    elsif p_live and over is not null then
        return 'missing';
    end if;
    return 'done';
end $$;

create function stayput_insert(
    p_id uuid, p_owner text, p_owner_digest bytea, p_agent text, p_key text, p_key_digest bytea,
    p_created bigint, p_last_used bigint, p_idle bigint, p_absolute bigint, p_generation bigint,
    p_provisional boolean, p_detail text, p_holder text, p_revision bigint,
    out outcome text, out generation bigint, out taken_by uuid
)
language plpgsql as $$
begin
    loop
        -- Waits for a concurrent call that takes the same key or frees it.
        insert into stayput_session (
            id, owner, owner_digest, agent, key, key_digest, created, last_used, idle, absolute,
            generation, provisional, detail, holder, revision
        ) values (
            p_id, p_owner, p_owner_digest, p_agent, p_key, p_key_digest, p_created, p_last_used,
            p_idle, p_absolute, p_generation, p_provisional, p_detail, p_holder, p_revision
        ) on conflict do nothing;
        exit when found;
        select s.id into taken_by from stayput_session s
            where s.id = p_id or (s.key_digest = p_key_digest and s.ended_reason is null)
            order by s.id = p_id desc limit 1;
        if taken_by is not null then
            outcome := 'taken';
            return;
        end if;
        -- The conflicting session ended meanwhile, so the key may be free.
    end loop;
    -- Only the live session of a key can become a tombstone of it, and that is this one from now on:
    -- no tombstone can be missed here.
    select greatest(p_generation, max(least(s.generation, 9223372036854775806)) + 1) into generation
        from stayput_session s where s.key_digest = p_key_digest and s.ended_reason is not null;
    if generation > p_generation then
        update stayput_session s set generation = stayput_insert.generation where s.id = p_id;
    end if;
    outcome := 'done';
end $$;

create function stayput_replace(
    p_id uuid, p_by text, p_expected_revision bigint, p_expected_last_used bigint,
    p_created bigint, p_last_used bigint, p_idle bigint, p_absolute bigint, p_generation bigint, p_provisional boolean,
    p_detail text, p_ended_at bigint, p_ended_reason text,
    out outcome text, out revision bigint, out taken_by uuid
)
language plpgsql as $$
declare
    old stayput_session;
begin
    outcome := stayput_writable(p_id, p_by, false);
    if outcome <> 'done' then
        return;
    end if;
    select s.* into old from stayput_session s where s.id = p_id;
    if old.revision <> p_expected_revision or old.last_used <> p_expected_last_used then
        outcome := 'stale';
        return;
    end if;
    loop
        begin
            update stayput_session s set
                created = p_created, last_used = greatest(s.last_used, p_last_used), idle = p_idle,
                absolute = p_absolute, generation = p_generation, provisional = p_provisional,
                detail = p_detail, ended_at = p_ended_at, ended_reason = p_ended_reason,
                -- An end releases the claim, a revival sets it, and no other change touches it.
                holder = case when p_ended_at is not null then null
                    when s.ended_at is not null then p_by else s.holder end,
                revision = s.revision + 1,
                state_bytes = case when p_ended_at is null then s.state_bytes else 0 end,
                state_keys = case when p_ended_at is null then s.state_keys else 0 end
                where s.id = p_id
                returning s.revision into stayput_replace.revision;
            exit;
        exception when unique_violation then
            -- A revival, and another session has its key or had it a moment ago.
            select s.id into taken_by from stayput_session s
                where s.key_digest = old.key_digest and s.ended_reason is null;
            if taken_by is not null then
                outcome := 'taken';
                return;
            end if;
        end;
    end loop;
    if p_ended_at is not null then
        delete from stayput_state s where s.session = p_id;
    end if;
end $$;

-- Updates in the order of ids, so that two calls on the same sessions cannot deadlock. One update per
-- session, with a condition on liveness that no index has, so that each is found by its id whatever the
-- statistics say.
create function stayput_touch(p_ids uuid[], p_times bigint[], p_by text, out touched bigint)
language plpgsql as $$
declare
    used record;
begin
    touched := 0;
    for used in
        select u.id, max(u.at) as at from unnest(p_ids, p_times) as u (id, at)
            group by u.id order by u.id
    loop
        update stayput_session s set last_used = greatest(s.last_used, used.at)
            where s.id = used.id and coalesce(s.ended_at, -1) = -1
                and (s.holder is null or s.holder = p_by);
        if found then
            touched := touched + 1;
        end if;
    end loop;
end $$;

create function stayput_remove(p_id uuid, p_by text, out outcome text)
language plpgsql as $$
begin
    outcome := stayput_writable(p_id, p_by, false);
    if outcome = 'done' then
        delete from stayput_session s where s.id = p_id;
    end if;
end $$;

create function stayput_add_handle(p_id uuid, p_by text, p_hash bytea, p_limit bigint, out outcome text)
language plpgsql as $$
begin
    outcome := stayput_writable(p_id, p_by, false);
    if outcome <> 'done' then
        return;
    end if;
    -- A repeated one becomes the newest.
    insert into stayput_handle (hash, session) values (p_hash, p_id)
        on conflict (hash) do update set session = excluded.session, number = default;
    delete from stayput_handle h where h.hash in (
        select o.hash from stayput_handle o where o.session = p_id order by o.number desc offset p_limit
    );
end $$;

-- Removes the connections of a session that were last used before `p_stale_before`, except the
-- `p_retained` most recently used ones.
create function stayput_put_connection(
    p_id uuid, p_by text, p_name bytea, p_body bytea, p_last_used bigint, p_stale_before bigint,
    p_retained bigint, out outcome text
)
language plpgsql as $$
begin
    outcome := stayput_writable(p_id, p_by, false);
    if outcome <> 'done' then
        return;
    end if;
    insert into stayput_connection as c (name, session, body, last_used)
        values (p_name, p_id, p_body, p_last_used)
        on conflict (name) do update set session = excluded.session, body = excluded.body,
            last_used = greatest(c.last_used, excluded.last_used);
    -- With fewer connections the subquery is null, and nothing is deleted.
    delete from stayput_connection c
        where c.session = p_id and c.last_used < p_stale_before and c.last_used < (
            select o.last_used from stayput_connection o where o.session = p_id
                order by o.last_used desc limit 1 offset p_retained - 1
        );
end $$;

-- Updates in one order, so that two calls on the same connections cannot deadlock.
create function stayput_touch_connections(
    p_names bytea[], p_times bigint[], p_by text, out touched bigint
)
language plpgsql as $$
declare
    used record;
begin
    touched := 0;
    for used in
        select u.name, max(u.at) as at from unnest(p_names, p_times) as u (name, at)
            group by u.name order by u.name
    loop
        update stayput_connection c set last_used = greatest(c.last_used, used.at)
            from stayput_session s
            where c.name = used.name and s.id = c.session and (s.holder is null or s.holder = p_by);
        if found then
            touched := touched + 1;
        end if;
    end loop;
end $$;

create function stayput_remove_connection(p_name bytea, p_by text, out outcome text)
language plpgsql as $$
declare
    owner_session uuid;
begin
    select c.session into owner_session from stayput_connection c where c.name = p_name;
    outcome := stayput_writable(owner_session, p_by, false);
    if outcome = 'done' then
        delete from stayput_connection c where c.name = p_name and c.session = owner_session;
    end if;
end $$;

-- Returns whether the found revision is as expected: any (null), none (-1) or this one.
create function stayput_is_expected(p_expected bigint, p_found bigint) returns boolean
language sql immutable as $$
    select p_expected is null or p_expected = coalesce(p_found, -1)
$$;

-- The other values may have at most `p_max_other_bytes` bytes and `p_max_other_keys` keys.
create function stayput_put_state(
    p_id uuid, p_by text, p_key bytea, p_value bytea, p_expected bigint, p_max_other_bytes bigint,
    p_max_other_keys bigint,
    out outcome text, out revision bigint, out others bigint, out count bigint
)
language plpgsql as $$
declare
    old_revision bigint;
    old_size bigint;
begin
    outcome := stayput_writable(p_id, p_by, true);
    if outcome <> 'done' then
        return;
    end if;
    select v.revision, length(v.key) + length(v.value) into old_revision, old_size
        from stayput_state v where v.session = p_id and v.digest = sha256(p_key);
    if not stayput_is_expected(p_expected, old_revision) then
        outcome := 'stale';
        return;
    end if;
    select s.state_revision + 1, s.state_bytes - coalesce(old_size, 0),
            s.state_keys - case when old_revision is null then 0 else 1 end
        into revision, others, count from stayput_session s where s.id = p_id;
    if others > p_max_other_bytes or count > p_max_other_keys then
        outcome := 'too_large';
        return;
    end if;
    insert into stayput_state as v (session, key, revision, value)
        values (p_id, p_key, stayput_put_state.revision, p_value)
        on conflict (session, digest) do update set revision = excluded.revision, value = excluded.value;
    update stayput_session s set
        state_revision = stayput_put_state.revision,
        state_bytes = others + length(p_key) + length(p_value),
        state_keys = stayput_put_state.count + 1
        where s.id = p_id;
end $$;

create function stayput_remove_state(p_id uuid, p_by text, p_key bytea, p_expected bigint, out outcome text)
language plpgsql as $$
declare
    old_revision bigint;
    old_size bigint;
begin
    outcome := stayput_writable(p_id, p_by, true);
    if outcome <> 'done' then
        return;
    end if;
    select v.revision, length(v.key) + length(v.value) into old_revision, old_size
        from stayput_state v where v.session = p_id and v.digest = sha256(p_key);
    if not stayput_is_expected(p_expected, old_revision) then
        outcome := 'stale';
    elsif old_revision is not null then
        delete from stayput_state v where v.session = p_id and v.digest = sha256(p_key);
        update stayput_session s set
            state_bytes = s.state_bytes - old_size, state_keys = s.state_keys - 1
            where s.id = p_id;
    end if;
end $$;

-- Returns the address of the holder of a lease, or null if the lease has expired.
create function stayput_lease_address(p_lease text) returns text
language plpgsql as $$
declare
    found_address text;
begin
    select l.address into found_address
        from stayput_lease l where l.lease = p_lease and l.expires > clock_timestamp();
    if not found then
        -- A renewal in progress began in time and will extend the lease. Waits for it, so that no
        -- caller sees a lease as expired that is valid afterwards.
        perform 1 from stayput_lease l where l.lease = p_lease for share;
        select l.address into found_address
            from stayput_lease l where l.lease = p_lease and l.expires > clock_timestamp();
    end if;
    return found_address;
end $$;

create function stayput_claim(
    p_id uuid, p_lease text,
    out outcome text, out held_by text, out address text, out session stayput_session
)
language plpgsql as $$
begin
    select s.holder into held_by
        from stayput_session s where s.id = p_id and s.ended_at is null for no key update;
    if not found then
        outcome := 'missing';
        return;
    end if;
    if held_by <> p_lease then
        address := stayput_lease_address(held_by);
        if address is not null then
            outcome := 'held';
            return;
        end if;
    end if;
    update stayput_session s set holder = p_lease where s.id = p_id returning s.* into session;
    outcome := 'done';
end $$;
