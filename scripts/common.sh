# shellcheck shell=bash
# shellcheck disable=SC2034 # the variables are for the scripts that source this
# What every script of this folder needs: where builds and tools live, and whether to colour.
# Sourced from the root of the checkout, never run.

target_dir=${CARGO_TARGET_DIR:-target}
# Outside the checkout, so that a tool built once serves every clone and survives `cargo clean`.
tools_dir=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/stayput/tools
case ":$PATH:" in
*":$tools_dir/bin:"*) ;;
*) export PATH="$tools_dir/bin:$PATH" ;;
esac

# The scripts pipe cargo through tee, which hides the terminal from it: it has to be told. A script
# that was started by another one finds the variable set and keeps it.
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'
    export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always}
else
    bold='' red='' plain=''
    export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
fi

# complain SENTENCE: says on standard error what is wrong.
complain() {
    printf '%s\n' "$*" >&2
}
