# shellcheck shell=bash
# The peers: servers, SDKs, gateways and the conformance suite of others, pinned by the lock files in
# peers/ and kept in the user's cache. Sourced from the root of the checkout.
#
#   install_peers          fetches those of the tests, if what is there was not made from these lock files
#   install_bench_peers    likewise those that the benchmark of the gateway runs beside it
#   install_hosts          likewise the hosts whose list of servers `make hosts` asks
#   export_peers           names the folder to the tests, in STAYPUT_TEST_PEERS
#   export_bench_peers     names its folder to the benchmark, in STAYPUT_BENCH_PEERS, if it is there

# shellcheck source=scripts/common.sh
. scripts/common.sh

peers_dir=${tools_dir%/tools}/peers
bench_peers_dir=${tools_dir%/tools}/bench-peers
hosts_dir=${tools_dir%/tools}/hosts

# The Python environments that LOCKS asks for, each with the file that pins it. FastMCP, mcp-proxy and the snippets for
# the SDK's version 1 want different versions of the SDK, so they do not share one.
environments() {
    case "$1" in
    peers/bench) printf '%s\n' "python-fastmcp peers/requirements.txt" "python peers/bench/requirements.txt" ;;
    peers/hosts) ;;
    *) printf '%s\n' "python $1/requirements.txt" "python-sdk1 $1/requirements-sdk1.txt" ;;
    esac
}

# What is in the folder is right if it was made from the same files, by the same Python.
peers_stamp() {
    local name file
    {
        cat "$1/package-lock.json"
        environments "$1" | while read -r name file; do cat "$file"; done
        python3 --version
    } | sha256sum
}

# peers_are_there LOCKS FOLDER
peers_are_there() {
    [ "$(cat "$2/stamp" 2>/dev/null)" = "$(peers_stamp "$1")" ]
}

install_peers() {
    install_pinned peers "$peers_dir"
}

# In a folder of their own: to measure never touches what the tests need.
install_bench_peers() {
    install_pinned peers/bench "$bench_peers_dir"
}

# In a folder of their own: they are large, and no test of `make test` needs them.
install_hosts() {
    install_pinned peers/hosts "$hosts_dir"
}

# install_pinned LOCKS FOLDER
install_pinned() {
    if peers_are_there "$1" "$2"; then return 0; fi
    mkdir -p "$2"
    # Two checkouts share the folder: one installs, the other waits and finds it done.
    exec {peers_lock}>"$2/lock"
    flock "$peers_lock"
    if ! peers_are_there "$1" "$2"; then fetch_pinned "$1" "$2"; fi
    exec {peers_lock}>&-
}

fetch_pinned() {
    echo "fetching what $1 pins into $2"
    rm -f "$2/stamp"
    cp "$1/package.json" "$1/package-lock.json" "$2/"
    # No scripts: nothing runs, and no browser is downloaded, because somebody was installed.
    PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --prefix "$2" \
        --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
    local name file
    environments "$1" | while read -r name file; do
        python3 -m venv --clear "$2/$name"
        "$2/$name/bin/python" -m pip install --disable-pip-version-check --no-input --quiet \
            --only-binary :all: --require-hashes -r "$file" </dev/null
    done
    peers_stamp "$1" >"$2/stamp"
}

export_peers() {
    export STAYPUT_TEST_PEERS=$peers_dir
}

export_bench_peers() {
    if peers_are_there peers/bench "$bench_peers_dir"; then export STAYPUT_BENCH_PEERS=$bench_peers_dir; fi
}
