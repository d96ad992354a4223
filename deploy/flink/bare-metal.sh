#!/usr/bin/env bash
# bare-metal.sh EMBED-OPTIONS...: one night on a Flink cluster that is started for it and stopped after it.
#
#   FLINK_HOME=/opt/flink SLOTS=8 deploy/flink/bare-metal.sh \
#       --input '/shared/reviews/*.parquet' --store /shared/store --id-column review_id --dtype bfloat16
#
#   FLINK_HOME  Flink, the same on every machine; its conf/masters and conf/workers name them (ssh reaches them)
#   MASTER      host:port of the JobManager's REST interface (default: this machine's 8081)
#   SLOTS       slots to wait for before the job is submitted (default: one)
#
# sentence-beam has to be installed at the same place on every machine, and --input and --store on a disk that all of them
# see, or on gs:// or s3://. Ends with the exit status of `embed`.
set -euo pipefail
: "${FLINK_HOME:?the folder of Flink}"
master=${MASTER:-localhost:8081}
slots=${SLOTS:-1}

"$FLINK_HOME/bin/start-cluster.sh"
trap '"$FLINK_HOME/bin/stop-cluster.sh"' EXIT

for _ in $(seq 60); do
    found=$(curl --silent --max-time 5 "http://$master/overview" | sed -n 's/.*"slots-total":\([0-9]*\).*/\1/p' || true)
    if [ "${found:-0}" -ge "$slots" ]; then break; fi
    sleep 2
done
if [ "${found:-0}" -lt "$slots" ]; then
    echo "bare-metal.sh: $master has ${found:-0} of $slots slots after two minutes; see $FLINK_HOME/log" >&2
    exit 1
fi

sentence-beam embed --runner=FlinkRunner --flink_master="$master" --environment_type=PROCESS "$@"
