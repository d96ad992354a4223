#!/usr/bin/env bash
# A night on Dataflow from a Flex Template: builds the template where it is not there yet, then starts a job.
#
#   PROJECT=p REGION=us-central1 BUCKET=b IMAGE=us-central1-docker.pkg.dev/p/r/sentence-beam:cuda \
#       deploy/dataflow/run.sh --input 'gs://b/reviews/*.parquet' --store gs://b/store --id-column id
#
# Every option of `sentence-beam embed` that takes a value may follow. BUILD=1 builds the template again.
set -euo pipefail
: "${PROJECT:?the Google Cloud project}" "${REGION:?a Dataflow region}" "${BUCKET:?a bucket for the template and staging}"
: "${IMAGE:?the worker image, made from deploy/docker/Dockerfile}"
# the GPU of the embedding step and the machine that it is in; empty: CPU workers alone
accelerator=${ACCELERATOR-type:nvidia-l4;count:1;machine_type:g2-standard-8;install-nvidia-driver:5xx}
machine=${MACHINE:-n2-highmem-8} # of all other steps
workers=${MAX_WORKERS:-10}
start=${NUM_WORKERS:-1}
disk=${DISK_GB:-100} # of each worker: the image and 20 GB
name=${IMAGE%@*} # without a digest, and without a tag, which has no slash
name=${name%:"${name##*[:/]}"}
cpu_image=${CPU_IMAGE:-$name:cpu} # the launcher needs no CUDA, and starts in half the time without
template="gs://$BUCKET/templates/sentence-beam-embed.json"
launcher="$name:launcher"
cd "$(dirname "$0")/../.."

if [ "${BUILD:-0}" = 1 ] || ! gcloud storage ls "$template" >/dev/null 2>&1; then
    docker build -f deploy/dataflow/Dockerfile --build-arg "IMAGE=$cpu_image" -t "$launcher" .
    docker push "$launcher"
    gcloud dataflow flex-template build "$template" --project "$PROJECT" --image "$launcher" --sdk-language PYTHON \
        --metadata-file deploy/dataflow/metadata.json
fi

# gcloud splits parameters at commas unless told another separator; globs and hints may hold either of its usual ones.
case $accelerator in
*-t4* | *-v100*) dtype=float16 ;; # these have no bfloat16
*) dtype=bfloat16 ;;
esac
parameters="^~^sdk_container_image=$IMAGE~dtype=$dtype~disk_size_gb=$disk"
[ -z "$accelerator" ] || parameters+="~accelerator=$accelerator"
while [ $# -gt 0 ]; do
    case $1 in
    --*=*) parameters+="~${1#--}" && shift ;;
    --*) parameters+="~${1#--}=${2:?$1 needs a value}" && shift 2 ;;
    *) echo "run.sh: unknown argument $1 (a pattern needs quotes in the shell)" >&2 && exit 2 ;;
    esac
done

gcloud dataflow flex-template run "sentence-beam-$(date -u +%Y%m%d-%H%M%S)" \
    --project "$PROJECT" --region "$REGION" --template-file-gcs-location "$template" \
    --staging-location "gs://$BUCKET/staging" --temp-location "gs://$BUCKET/temp" \
    --worker-machine-type "$machine" --num-workers "$start" --max-workers "$workers" --parameters "$parameters"
