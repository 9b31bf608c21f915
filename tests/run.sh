#!/usr/bin/env bash
# Runs all checks and tests, and installs what they need. Works from a fresh clone on Debian with Rust installed.
#
#   bash tests/run.sh           everything, in short form
#   bash tests/run.sh --quick   formatting, lints, unit and property tests; names what it leaves out
#   bash tests/run.sh --long    everything, in long form: more seeds, rounds and minutes, and the bounds that are claimed
#   bash tests/run.sh --long lab [NAME]   of that only one group of tests/ (lab, sim, property, ...), or tests named so in it
set -euo pipefail
cd "$(dirname "$0")/.."
form=short
case "${1:-}" in
  "") ;;
  --quick) form=quick ;;
  --long) form=long ;;
  *) echo "usage: tests/run.sh [--quick|--long [GROUP [NAME]]]" >&2; exit 2 ;;
esac
export CANOPY_TEST_FORM=$form
if [ $# -gt 1 ]; then
  [ $form = long ] || { echo "tests/run.sh: a group is run in long form: --long $2" >&2; exit 2; }
  exec cargo test -p canopy-tests --locked --test "$2" -- "${@:3}"
fi

step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

install_debian() { # packages that the tests start: only what is missing
  local missing=()
  for package in "$@"; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return
  local sudo=""; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -yq --no-install-recommends "${missing[@]}" >/dev/null
}

step "format"
cargo fmt --all --check
step "lints"
cargo clippy --workspace --all-targets --locked -- -D warnings
step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
if [ $form = quick ]; then
  step "unit, property and architecture tests"
  cargo test --workspace --locked --exclude canopy-tests
  cargo test -p canopy-tests --locked --test tidy --test property
  echo "left out by --quick: simulation, end to end, chaos, browser, quickstart"
  exit 0
fi
step "browser for the search page"
install_debian chromium chromium-driver
step "all tests"
cargo build --workspace --bins --locked
cargo test --workspace --locked
step "quickstart"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cargo run --release --locked -- quickstart --once --json --dir "$dir" >"$dir/answer.json"
grep -q '"complete": true' "$dir/answer.json"
step "done"
