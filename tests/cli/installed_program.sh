#!/usr/bin/env bash
# usage: installed_program.sh CMAKE BUILD_FOLDER
set -euo pipefail
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
"$1" --install "$2" --prefix "$prefix" >/dev/null
unset DEEPINFER_MODEL
cd /
"$prefix/bin/deepinfer" run -i "$prefix/share/deepinfer/examples/batch.jsonl" -o "$prefix/out.jsonl" -q
[[ $(wc -l <"$prefix/out.jsonl") == $(wc -l <"$prefix/share/deepinfer/examples/batch.jsonl") ]]
! grep -q '"response":null' "$prefix/out.jsonl"
"$prefix/bin/deepinfer" doctor | grep -q "^model  *$prefix/share/deepinfer/models/demo-v41$"
echo "the installed program answers from $prefix"
