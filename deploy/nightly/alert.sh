#!/usr/bin/env bash
# alert.sh STATUS: say what the exit status of a night means, to the log and to ALERT_URL where it is set.
set -euo pipefail

status=${1:?give the exit status of the night}
case $status in
    0) exit 0 ;;
    1) text="failed; finished work is kept, so run it again: a file that cannot be read, another writer, a fault in the store" ;;
    2) text="refused an option; nothing was done" ;;
    3) text="stopped at a gate: too many rejected rows, or a model whose vectors moved; readers keep the last snapshot" ;;
    4) text="lost count of its rows; nothing was committed" ;;
    *) text="was ended from outside (out of memory, time limit, node gone); run it again" ;;
esac
line="sentence-beam ${STORE:-} ended with status $status: $text"
echo "$line" >&2
if [ -n "${ALERT_URL:-}" ]; then
    python3 - "$ALERT_URL" "$line" <<'PYTHON'
import sys
from urllib.parse import urlencode
from urllib.request import urlopen

urlopen(sys.argv[1], data=urlencode({"text": sys.argv[2]}).encode(), timeout=30).close()
PYTHON
fi
