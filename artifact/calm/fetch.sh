#!/usr/bin/env bash
# Fetch the released CALM source:   artifact/calm/fetch.sh PIN DESTINATION
#
# Makes DESTINATION/source (the tree at the pinned revision, without its history), DESTINATION/REVISION (the
# full hash), DESTINATION/SHA256SUMS (every file of the tree) and DESTINATION/NOTICE. Stops when the repository
# does not hold exactly one commit of that name.
set -euo pipefail

pin=$1
to=$2
value() { sed -n "s/^$1 = \"\(.*\)\"$/\1/p" "$pin"; }
url=$(value url)
revision=$(value revision)

git clone --quiet --no-checkout "$url" "$to/source"
if ! full=$(git -C "$to/source" rev-parse --verify --quiet "$revision^{commit}") || [[ $full != "$revision"* ]]; then
    printf 's2s: error: %s holds no commit %s\n' "$url" "$revision" >&2
    exit 1
fi
git -C "$to/source" -c advice.detachedHead=false -c core.autocrlf=false checkout --quiet "$full"
rm -rf "$to/source/.git"

printf '%s\n' "$full" >"$to/REVISION"
(cd "$to" && find source -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)
licence=$(cd "$to" && find source -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) | LC_ALL=C sort | paste -sd ' ')
cat >"$to/NOTICE" <<NOTICE
This directory holds, unchanged, the source of CALM (Huang et al., ICLR 2026), a work of its authors:
    $url
    commit $full
Its terms: ${licence:-no licence file stands at the top of that commit; ask its authors before you pass it on}.
It is no part of search-to-signal and not under its licence. SHA256SUMS lists every file.
NOTICE
printf 's2s: CALM at %s, %s files\n' "$full" "$(wc -l <"$to/SHA256SUMS")"
