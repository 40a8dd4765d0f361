# shellcheck shell=bash
# The peers: servers, SDKs, gateways and the conformance suite of others, pinned by the lock files in
# peers/ and kept in the user's cache. Sourced from the root of the checkout.
#
#   install_peers          fetches those of the tests, if what is there was not made from these lock files
#   install_bench_peers    likewise those that the benchmark of the gateway runs beside it
#   export_peers           names the folder to the tests, in STAYPUT_TEST_PEERS
#   export_bench_peers     names both to the benchmark, as far as they are there

# shellcheck source=scripts/common.sh
. scripts/common.sh

peers_dir=${tools_dir%/tools}/peers
bench_peers_dir=${tools_dir%/tools}/bench-peers

# What is in the folder is right if it was made from the same files, by the same Python.
peers_stamp() {
    { cat "$1/package-lock.json" "$1/requirements.txt" && python3 --version; } | sha256sum
}

# peers_are_there LOCKS FOLDER
peers_are_there() {
    [ "$(cat "$2/stamp" 2>/dev/null)" = "$(peers_stamp "$1")" ]
}

install_peers() {
    install_pinned peers "$peers_dir"
}

# Those of the tests too: the Node that they bring runs these.
install_bench_peers() {
    install_peers
    install_pinned peers/bench "$bench_peers_dir"
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
    python3 -m venv --clear "$2/python"
    "$2/python/bin/python" -m pip install --disable-pip-version-check --no-input --quiet \
        --only-binary :all: --require-hashes -r "$1/requirements.txt"
    peers_stamp "$1" >"$2/stamp"
}

export_peers() {
    export STAYPUT_TEST_PEERS=$peers_dir
}

export_bench_peers() {
    if peers_are_there peers "$peers_dir"; then export_peers; fi
    if peers_are_there peers/bench "$bench_peers_dir"; then export STAYPUT_BENCH_PEERS=$bench_peers_dir; fi
}
