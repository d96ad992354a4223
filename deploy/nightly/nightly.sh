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

inputs=()
while IFS= read -r glob; do
    if [ -n "$glob" ]; then inputs+=(--input "$glob"); fi
done <<< "$INPUT"
read -r -a options <<< "${EMBED_OPTIONS:-}"

sentence-beam embed "${inputs[@]}" --store "$STORE" ${options[@]+"${options[@]}"}
sentence-beam verify --store "$STORE"
sentence-beam vacuum --store "$STORE" --keep "${KEEP:-14}" --older-than "${KEEP_DAYS:-7}d"
