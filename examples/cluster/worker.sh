#!/usr/bin/env bash
# Workers on this machine, one per core or as many as --nworkers says. A worker ends when it loses its scheduler; this loop
# starts it again, until the loop itself is stopped.
#
#   worker.sh tcp://head:8786 --nworkers 16 --memory-limit 4GB
#   worker.sh --scheduler-file /shared/scheduler.json --nworkers 16 --memory-limit 4GB
here=$(cd "$(dirname "$0")" && pwd)
export DASK_CONFIG=${DASK_CONFIG:-$here/dask.yaml}
export OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
trap 'kill $! 2>/dev/null; wait; exit 0' INT TERM
while true; do
  dask worker --nthreads 1 --no-dashboard --local-directory "${TMPDIR:-/tmp}" "$@" &
  wait $!
  sleep 2
done
