#!/usr/bin/env bash
# One night: embed what changed, check the whole store, remove what no kept snapshot names.
#
# From the environment:
#   INPUT          pattern of the input files (several: one a line)
#   STORE          folder or URL of the store
#   EMBED_OPTIONS  further options of `embed`, separated by blanks (--id-column id --index auto --runner=FlinkRunner ...)
#   KEEP           snapshots to keep (default 14)
#   KEEP_DAYS      and everything younger than so many days (default 7)
#
# Ends with the exit status of the command that failed: 1 is worth another try, 2, 3 and 4 are not.
set -euo pipefail

: "${INPUT:?set INPUT to the pattern of the input files}"
: "${STORE:?set STORE to the folder or URL of the store}"

# The first process of a container ignores SIGTERM without a trap, and bash runs no trap before a command in the foreground
# has ended: so commands run in the background, and the signal is handed on to the one that runs.
child=
is_ended=
trap 'is_ended=1; [ -z "$child" ] || kill -TERM "$child" || true' TERM INT

run() {
    local status=0
    [ -z "$is_ended" ] || exit 143
    "$@" &
    child=$!
    [ -z "$is_ended" ] || kill -TERM "$child" || true # the signal came before the child had a number
    wait "$child" || status=$?
    while kill -0 "$child" 2>/dev/null; do # a trap ended the wait
        status=0
        wait "$child" || status=$?
    done
    child=
    return "$status"
}

inputs=()
while IFS= read -r glob; do
    if [ -n "$glob" ]; then inputs+=(--input "$glob"); fi
done <<< "$INPUT"
read -r -a options <<< "${EMBED_OPTIONS:-}"

run sentence-beam embed "${inputs[@]}" --store "$STORE" ${options[@]+"${options[@]}"}
run sentence-beam verify --store "$STORE"
run sentence-beam vacuum --store "$STORE" --keep "${KEEP:-14}" --older-than "${KEEP_DAYS:-7}d"
