# shellcheck shell=bash
# Two Redis, one of them a cluster of one node, and a PostgreSQL on free loopback ports, with data folders of their own, for as long
# as the calling script lives. Sourced by a script that calls `start_servers` and, in its EXIT trap,
# `stop_servers`. A Redis or PostgreSQL that already runs is never used.
#
# start_servers exports
#   STAYPUT_TEST_REDIS           redis://127.0.0.1:PORT
#   STAYPUT_TEST_REDIS_CLUSTER   redis://127.0.0.1:PORT
#   STAYPUT_TEST_POSTGRES        postgres://stayput@127.0.0.1:PORT/postgres

# shellcheck source=scripts/common.sh
. scripts/common.sh

server_pids=()
server_dirs=()
# All servers are up this many seconds after they were asked for, or they count as failed.
server_budget=40
server_deadline=0

# The seconds that are left; never 0, which timeout(1) takes as for ever.
server_seconds() {
    local left=$((server_deadline - SECONDS))
    printf '%s\n' "$((left > 0 ? left : 1))"
}

# Prints the folder that holds the PostgreSQL server programs, the newest one of several.
postgres_bin() {
    local initdb
    for initdb in $(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -rV) "$(command -v initdb || true)"; do
        if [ -x "$initdb" ] && [ -x "${initdb%/*}/postgres" ]; then
            printf '%s\n' "${initdb%/*}"
            return 0
        fi
    done
    return 1
}

# A port that nothing answers on. Below the range from which the kernel hands out client ports, so
# that a connection of another test cannot take it meanwhile. Another program still could: callers
# try again with another port when their server does not come up.
pick_port() {
    local port
    while :; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            printf '%s\n' "$port"
            return 0
        fi
    done
}

# wait_until SECONDS PID COMMAND...: succeeds once COMMAND does, fails when PID ends or time is up.
wait_until() {
    local end=$((SECONDS + $1)) pid=$2
    shift 2
    while [ "$SECONDS" -lt "$end" ]; do
        if "$@"; then return 0; fi
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

# What a server is started through. A session of its own, so that Ctrl-C reaches the script alone,
# and without the signals that bash has its background jobs ignore.
# shellcheck disable=SC2054 # the comma belongs to env
detach=(setsid env --default-signal=INT,QUIT)
# The server ends with the script even when the script is killed outright. SIGINT is the quick
# orderly stop of both servers. A change of user forgets this, so it comes after one.
end_with_us=(setpriv --pdeathsig INT)

redis_is_ready() {
    grep -q 'Ready to accept connections' "$1/log" 2>/dev/null
}

# start_redis OPTION...: starts one and leaves its port in redis_port.
redis_port=''
start_redis() {
    local dir pid attempt
    dir=$(new_server_dir redis)
    server_dirs+=("$dir")
    for attempt in 1 2 3 4 5; do
        redis_port=$(pick_port)
        : >"$dir/log"
        "${detach[@]}" "${end_with_us[@]}" redis-server --bind 127.0.0.1 --port "$redis_port" --save '' \
            --appendonly no --daemonize no --dir "$dir" "$@" >"$dir/log" 2>&1 </dev/null &
        pid=$!
        if wait_until "$(server_seconds)" "$pid" redis_is_ready "$dir"; then
            server_pids+=("$pid")
            return 0
        fi
        stop_server "$pid"
        [ "$SECONDS" -lt "$server_deadline" ] || break
    done
    complain "redis-server did not start (attempts: $attempt); it last said:"
    tail -n 20 "$dir/log" >&2
    return 1
}

# A node of a cluster refuses what crosses slots, and one node that has all slots is a cluster. It
# takes Redis two seconds to believe that, which is why the tests share one.
start_redis_cluster() {
    local bus
    bus=$(pick_port)
    start_redis --cluster-enabled yes --cluster-port "$bus" || return 1
    redis-cli -p "$redis_port" cluster addslotsrange 0 16383 >/dev/null || return 1
    wait_until "$(server_seconds)" "${server_pids[-1]}" redis_cluster_is_ready
}

redis_cluster_is_ready() {
    redis-cli -p "$redis_port" cluster info 2>/dev/null | grep -q 'cluster_state:ok'
}

# PostgreSQL refuses to run as root, so root lends it another user.
as_postgres=()
postgres_owner=''
choose_postgres_user() {
    as_postgres=()
    postgres_owner=$(id -un)
    [ "$(id -u)" -eq 0 ] || return 0
    postgres_owner=postgres
    id postgres >/dev/null 2>&1 || postgres_owner=nobody
    as_postgres=(setpriv --reuid "$(id -u "$postgres_owner")" --regid "$(id -g "$postgres_owner")" --clear-groups --)
}

# new_server_dir NAME: makes and prints an empty folder inside the build folder.
new_server_dir() {
    mkdir -p "$target_dir/test-servers"
    mktemp -d "$(cd "$target_dir/test-servers" && pwd)/$1.XXXXXXXX"
}

# Makes the data folder of PostgreSQL and leaves its name in postgres_dir. The user that PostgreSQL
# runs as may be unable to reach the checkout, as when that lies in root's home: then the folder is
# made where temporary files go.
postgres_dir=''
make_postgres_dir() {
    local base dir
    for base in '' "${TMPDIR:-/tmp}" /tmp /var/tmp; do
        if [ -z "$base" ]; then
            dir=$(new_server_dir postgres)
        else
            dir=$(mktemp -d "$base/stayput-postgres.XXXXXXXX") || continue
        fi
        server_dirs+=("$dir")
        chown "$postgres_owner" "$dir"
        if (cd / && "${as_postgres[@]}" test -w "$dir/.") 2>/dev/null; then
            postgres_dir=$dir
            return 0
        fi
    done
    complain "No folder was found in which the user $postgres_owner can keep a PostgreSQL cluster."
    return 1
}

# The last line of postmaster.pid says how far the server has come; being in our own data folder, it
# cannot be about another server.
postgres_is_ready() {
    [ -s "$1/data/postmaster.pid" ] && [[ $(sed -n 8p "$1/data/postmaster.pid" 2>/dev/null) == ready* ]]
}

start_postgres() {
    local bin port pid attempt fsync=${1:-off}
    bin=$(postgres_bin)
    choose_postgres_user
    make_postgres_dir || return 1
    : >"$postgres_dir/log"
    # From /, for the user may be unable to enter the current folder.
    if ! (cd / && exec timeout "$(server_seconds)" "${as_postgres[@]}" "$bin/initdb" -D "$postgres_dir/data" --auth=trust -U stayput \
        --locale=C --encoding=UTF8 --no-sync) >>"$postgres_dir/log" 2>&1 </dev/null; then
        complain "initdb failed; it said:"
        tail -n 20 "$postgres_dir/log" >&2
        return 1
    fi
    for attempt in 1 2 3 4 5; do
        port=$(pick_port)
        (cd / && exec "${detach[@]}" "${as_postgres[@]}" "${end_with_us[@]}" "$bin/postgres" -D "$postgres_dir/data" -p "$port" \
            -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 \
            -c fsync="$fsync" -c full_page_writes="$fsync") >>"$postgres_dir/log" 2>&1 </dev/null &
        pid=$!
        if wait_until "$(server_seconds)" "$pid" postgres_is_ready "$postgres_dir"; then
            server_pids+=("$pid")
            export STAYPUT_TEST_POSTGRES=postgres://stayput@127.0.0.1:$port/postgres
            return 0
        fi
        stop_server "$pid"
        [ "$SECONDS" -lt "$server_deadline" ] || break
    done
    complain "PostgreSQL did not start (attempts: $attempt); it last said:"
    tail -n 20 "$postgres_dir/log" >&2
    return 1
}

# start_servers [on|off]: `on` makes PostgreSQL wait for the disk at every commit. Tests prove
# behaviour and throw the data away, so they do without.
start_servers() {
    server_deadline=$((SECONDS + server_budget))
    start_redis || return 1
    export STAYPUT_TEST_REDIS=redis://127.0.0.1:$redis_port
    start_redis_cluster || return 1
    export STAYPUT_TEST_REDIS_CLUSTER=redis://127.0.0.1:$redis_port
    start_postgres "${1:-off}" || return 1
    echo "redis          $STAYPUT_TEST_REDIS"
    echo "redis cluster  $STAYPUT_TEST_REDIS_CLUSTER"
    echo "postgresql     $STAYPUT_TEST_POSTGRES"
}

# stop_server PID: asks, then insists, then kills; returns when the process is gone.
stop_server() {
    local signal
    # Quiet: bash would tell, in words of its own, which signal ended the server.
    {
        for signal in INT QUIT KILL; do
            kill "-$signal" "$1" || break
            if wait_until 5 "$1" process_is_gone "$1"; then break; fi
        done
        wait "$1" || true
    } 2>/dev/null
}

# A process that has ended but was not waited for still answers `kill -0`, so its state is asked.
process_is_gone() {
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    [[ $stat == *') Z '* ]]
}

stop_servers() {
    local pid dir
    for pid in "${server_pids[@]}"; do stop_server "$pid"; done
    server_pids=()
    for dir in "${server_dirs[@]}"; do rm -rf "$dir"; done
    server_dirs=()
    if [ -d "$target_dir/test-servers" ]; then
        rmdir --ignore-fail-on-non-empty "$target_dir/test-servers" || true
    fi
    unset STAYPUT_TEST_REDIS STAYPUT_TEST_REDIS_CLUSTER STAYPUT_TEST_POSTGRES
}
