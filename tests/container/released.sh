#!/usr/bin/env bash
# The path of the released host: compare it with ours, run ten of its rounds, verify what they left.
#
#     tests/container/released.sh CALM OUT          (CALM is a checkout, OUT a run directory; some minutes)
#
# Its model is an embedded one, served on this machine; nothing is trained. Runs in the image as outside of it.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$here/.venv/bin:$PATH
calm=$1
out=$2
work=$(mktemp -d)
trap 'kill ${server:-} 2>/dev/null; rm -rf "$work"' EXIT

# The host asks NVML for the graphics cards while it is imported, and needs none for a served model.
python -c 'import pynvml; pynvml.nvmlInit()' 2>/dev/null || export PYTHONPATH=$here/tests/unit/search/hosts/packages

# 11: nothing differs, and something was not compared, such as a problem that the checkout lacks.
words=()
[[ ! -f $calm/words.toml ]] || words=(--words "$calm/words.toml") # a stand-in has words of its own
s2s conformance --calm "$calm" --any-revision "${words[@]}" >"$work/conformance.log" || [[ $? == 11 ]] || differs=1
tail -1 "$work/conformance.log"
[[ -z ${differs:-} ]]

s2s serve qwen2-2.1m --port 0 >"$work/serve.log" &
server=$!
for _ in $(seq 600); do
    url=$(sed -n 's/^s2s: .* at \(http[^ ]*\) .*$/\1/p' "$work/serve.log")
    [[ -n $url ]] && break
    sleep 0.2
done

cat >"$work/ten.yaml" <<END
problem_name: tsp
log_name: ten
max_steps: 10
max_stuck_threshold: 25
n_generations: 1
model_name: online/qwen2-2.1m
base_url: $url
api_key: none
seed_algo_fp: ''
template_fp: ''
END
s2s released --calm "$calm" --any-revision --config "$work/ten.yaml" --out "$out"
s2s verify "$out"
