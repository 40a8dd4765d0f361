# shellcheck shell=bash
# The peers: servers, SDKs and the conformance suite of others, pinned by the lock files in peers/ and
# kept in the user's cache. Sourced from the root of the checkout.
#
#   install_peers      fetches them, if what is there was not made from these lock files
#   export_peers       names the folder to the tests, in STAYPUT_TEST_PEERS

# shellcheck source=scripts/common.sh
. scripts/common.sh

peers_dir=${tools_dir%/tools}/peers

# What is in the folder is right if it was made from the same files, by the same Python.
peers_stamp() {
    { cat peers/package-lock.json peers/requirements.txt && python3 --version; } | sha256sum
}

peers_are_there() {
    [ "$(cat "$peers_dir/stamp" 2>/dev/null)" = "$(peers_stamp)" ]
}

install_peers() {
    if peers_are_there; then return 0; fi
    mkdir -p "$peers_dir"
    # Two checkouts share the folder: one installs, the other waits and finds it done.
    exec {peers_lock}>"$peers_dir/lock"
    flock "$peers_lock"
    if ! peers_are_there; then fetch_peers; fi
    exec {peers_lock}>&-
}

fetch_peers() {
    echo "fetching the peers of the tests into $peers_dir"
    rm -f "$peers_dir/stamp"
    cp peers/package.json peers/package-lock.json "$peers_dir/"
    # No scripts: nothing runs, and no browser is downloaded, because somebody was installed.
    PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --prefix "$peers_dir" \
        --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
    python3 -m venv --clear "$peers_dir/python"
    "$peers_dir/python/bin/python" -m pip install --disable-pip-version-check --no-input --quiet \
        --only-binary :all: --require-hashes -r peers/requirements.txt
    peers_stamp >"$peers_dir/stamp"
}

export_peers() {
    export STAYPUT_TEST_PEERS=$peers_dir
}
