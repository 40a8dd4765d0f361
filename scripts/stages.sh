# shellcheck shell=bash
# Runs the steps of a check one after the other, each against a time budget, and counts what the
# test runners report. Sourced.
#
#   run_stage NAME SECONDS COMMAND...     a step that passes or fails as a whole
#   run_tests NAME SECONDS COMMAND...     a step whose tests are counted
#   end_stages                            the table, the closing line, the exit code
#
# A step that fails does not stop the ones after it: one run tells everything that is wrong. What a step
# leaves of its budget the ones after it may use: all of them together have to be quick, not each one.
# STAYPUT_TEST_BUDGET_FACTOR, a whole number, multiplies every budget on a slow machine.

# shellcheck source=scripts/common.sh
. scripts/common.sh

passed=0 failed=0
stage_table=''
stage_pid='' stage_tee=''
log_dir=$target_dir/test-logs
budget_factor=${STAYPUT_TEST_BUDGET_FACTOR:-1}
# The budgets of all steps so far, and when the first began.
stages_budget=0 stages_start=$SECONDS

stage_header() {
    printf '\n%s==> %s%s (budget %s s)\n' "$bold" "$1" "$plain" "$2"
    stages_budget=$((stages_budget + $2))
}

# stage_footer NAME VERDICT TOOK BUDGET
stage_footer() {
    stage_table+=$(printf '%-10s %-10s %6s s %6s s' "$1" "$2" "$3" "$4")$'\n'
    printf '%s<== %s: %s after %s s%s\n' "$bold" "$1" "$2" "$3" "$plain"
}

# Prints the processes of a session that still run. A step leads a session, and what it starts stays
# in there even where it moves to a process group of its own, as every test of nextest does.
session_members() {
    local session=$1 stat line
    for stat in /proc/[0-9]*/stat; do
        { read -r line <"$stat"; } 2>/dev/null || continue
        # pid (name) state parent group session ...; the name may hold spaces and parentheses.
        # shellcheck disable=SC2086 # the fields are to be split
        set -- ${line##*) }
        if [ "$4" = "$session" ] && [ "$1" != Z ]; then printf '%s\n' "${line%% *}"; fi
    done
}

# Ends what is left of the running step: asks, gives it three seconds, kills.
kill_stage() {
    local pids i
    [ -n "$stage_pid" ] || return 0
    for ((i = 0; i <= 30; i++)); do
        mapfile -t pids < <(session_members "$stage_pid")
        [ ${#pids[@]} -gt 0 ] || break
        case $i in
        0) kill -TERM "${pids[@]}" 2>/dev/null || true ;;
        30) kill -KILL "${pids[@]}" 2>/dev/null || true ;;
        esac
        sleep 0.1
    done
    stage_pid=''
}

# Runs a command against its budget and what the steps before it left of theirs, showing its output and
# keeping it in the log of the step. Leaves the exit code in stage_code (124 when the time ran out) and
# the seconds in stage_took.
stage_code=0 stage_took=0
timed() {
    local name=$1 budget=$2 start=$SECONDS output
    local left=$((stages_budget - (SECONDS - stages_start)))
    if [ "$left" -gt "$budget" ]; then budget=$left; fi
    shift 2
    mkdir -p "$log_dir"
    # tee -i: Ctrl-C ends the step, and tee then ends with it, its last words shown.
    exec {output}> >(exec tee -i "$log_dir/$name.log")
    stage_tee=$!
    # `wait` below can be interrupted by a signal, a command in the foreground cannot: hence the
    # background. pdeathsig ends the step when this script is killed outright.
    setsid env --default-signal=INT,QUIT setpriv --pdeathsig TERM \
        timeout --kill-after=10 "$budget" "$@" >&"$output" 2>&1 {output}>&- </dev/null &
    stage_pid=$!
    exec {output}>&-
    stage_code=0
    # Quiet: bash would tell, in words of its own, which signal ended the step.
    wait "$stage_pid" 2>/dev/null || stage_code=$?
    kill_stage 2>/dev/null
    wait_for_tee
    stage_took=$((SECONDS - start))
    # 137: it did not heed the first signal either.
    if [ "$stage_code" -eq 137 ] && [ "$stage_took" -ge "$budget" ]; then stage_code=124; fi
}

# tee ends when nobody holds the pipe any more. A process that left the session could hold it for
# ever, and is not worth waiting for.
wait_for_tee() {
    local i
    for ((i = 0; i < 50; i++)); do
        kill -0 "$stage_tee" 2>/dev/null || break
        sleep 0.1
    done
    kill "$stage_tee" 2>/dev/null || true
    stage_tee=''
}

# Says in a word how the step ended.
verdict() {
    case "$1" in
    0) echo ok ;;
    124) echo 'TIMED OUT' ;;
    *) echo FAILED ;;
    esac
}

run_stage() {
    local name=$1 budget=$(($2 * budget_factor))
    shift 2
    stage_header "$name" "$budget"
    timed "$name" "$budget" "$@"
    [ "$stage_code" -eq 0 ] || failed=$((failed + 1))
    stage_footer "$name" "$(verdict "$stage_code")" "$stage_took" "$budget"
    return "$((stage_code != 0))"
}

# Prints "PASSED FAILED" for a log of cargo test (one `test result:` line per binary), of pytest (`=== 1 passed in
# 1.00s ===`) or of nextest (one `Summary [...]` line, where tests that timed out or could not start are counted
# apart). Where nextest speaks, its last summary counts: whatever came before is the output of a test.
count_tests() {
    sed -E 's/\x1b\[[0-9;]*[A-Za-z]//g; s/\r$//' "$1" | awk '
        # The number before the words `what`, nothing but a digit and a space before them.
        function number(line, what) {
            if (!match(line, "(^|[^0-9])[0-9]+ " what "([^a-z]|$)")) return 0
            line = substr(line, RSTART, RLENGTH)
            gsub(/[^0-9]/, "", line)
            return line + 0
        }
        /^test result: / && !nextest {
            passed += number($0, "passed")
            failed += number($0, "failed")
        }
        /^=+ .*(passed|failed|errors?).* in [0-9.]+s.* =+$/ && !nextest {
            passed += number($0, "passed")
            failed += number($0, "failed") + number($0, "errors?")
        }
        /^ *Summary \[ *[0-9.:]+s?\] .* tests? run: / {
            sub(/^.* tests? run: /, "")
            passed = number($0, "passed")
            failed = number($0, "failed") + number($0, "timed out") + number($0, "exec failed")
            nextest = 1
        }
        END { print passed + 0, failed + 0 }'
}

run_tests() {
    local name=$1 budget=$(($2 * budget_factor)) new_passed new_failed
    shift 2
    stage_header "$name" "$budget"
    timed "$name" "$budget" "$@"
    read -r new_passed new_failed < <(count_tests "$log_dir/$name.log")
    # A runner can fail with no test to blame: a build error, or its time was up.
    if [ "$stage_code" -ne 0 ] && [ "$new_failed" -eq 0 ]; then new_failed=1; fi
    passed=$((passed + new_passed)) failed=$((failed + new_failed))
    [ "$new_failed" -eq 0 ] || [ "$stage_code" -ne 0 ] || stage_code=1
    stage_footer "$name" "$(verdict "$stage_code")" "$stage_took" "$budget"
}

# The closing line is read by machines: it stays the last one.
end_stages() {
    if [ $((passed + failed)) -eq 0 ]; then
        complain "No test ran, which proves nothing."
        failed=1
    fi
    printf '\n%s%-10s %-10s %8s %8s%s\n' "$bold" stage result took budget "$plain"
    printf '%s' "$stage_table"
    [ "$failed" -eq 0 ] || printf '%sThe logs are in %s.%s\n' "$red" "$log_dir" "$plain"
    printf '\n%s passed, %s failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ] || exit 1
    exit 0
}

# stop_stages_on_signals: Ctrl-C and the polite signals end the running step and the script; the
# script's EXIT trap then does the rest.
stop_stages_on_signals() {
    trap 'interrupted 130' INT
    trap 'interrupted 143' TERM
    trap 'interrupted 129' HUP
}

interrupted() {
    trap '' INT TERM HUP
    kill_stage 2>/dev/null
    complain "Interrupted."
    exit "$1"
}
