#!/usr/bin/env bash
#SBATCH --gres=gpu:1
#SBATCH --time=12:00:00
# One task of an array: one setting of a sweep, as a DVC experiment in a clone of its own that shares the project's cache of results.
# Submit from the project's folder, which all nodes see: sbatch --array=0-3 examples/slurm/sweep.sh
set -euo pipefail
settings=(
  'saes.topk-1k.train.k=16'
  'saes.topk-1k.train.k=64'
  'saes.topk-1k.width=512'
  'saes.topk-1k.width=1536'
)
setting=${settings[$SLURM_ARRAY_TASK_ID]}
project=${SLURM_SUBMIT_DIR:-$PWD}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
git clone --quiet "$project" "$scratch/project"
cd "$scratch/project"
# The code that runs is the clone's, in the environment of the project.
export PATH="$project/.venv/bin:$PATH" PYTHONPATH="$scratch/project/src"
dvc cache dir --local "$project/.dvc/cache"
dvc checkout --quiet --allow-missing
dvc exp run --name "task-$SLURM_ARRAY_TASK_ID" --set-param "$setting"
dvc exp push --no-cache origin "task-$SLURM_ARRAY_TASK_ID"
