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
step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

install_debian() { # packages that the tests start: only what is missing
  local missing=()
  for package in "$@"; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return
  local sudo=""; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -yq --no-install-recommends "${missing[@]}" >/dev/null
}

# The workspace is compiled once, with the store in etcd: its client needs protoc, the tests need the server. The build without it,
# which is everybody's, is what --quick and the quickstart at the end (and its refusal of an etcd store) go by.
all=(--features canopy-tests/etcd)
install_debian nats-server # the log is tested on a real one, in every form
if [ $form = quick ]; then all=(); else
  install_debian protobuf-compiler libprotobuf-dev etcd-server openssl
fi
if [ $# -gt 1 ]; then
  [ $form = long ] || { echo "tests/run.sh: a group is run in long form: --long $2" >&2; exit 2; }
  exec cargo test -p canopy-tests "${all[@]}" --locked --test "$2" -- "${@:3}"
fi

step "format"
cargo fmt --all --check
step "lints"
cargo clippy --workspace --all-targets "${all[@]}" --locked -- -D warnings
step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps "${all[@]}" --locked --quiet
if [ $form = quick ]; then
  step "unit, property and architecture tests"
  cargo test --workspace --locked --exclude canopy-tests
  cargo test -p canopy-tests --locked --test tidy --test property
  echo "left out by --quick: simulation, end to end, stores, chaos, browser, quickstart"
  exit 0
fi
step "browser for the search page"
install_debian chromium chromium-driver
step "a second S3 server"
install_debian python3-venv
moto="${CARGO_TARGET_DIR:-target}/moto"
[ -x "$moto/bin/moto_server" ] || { python3 -m venv "$moto" && "$moto/bin/pip" install -q --disable-pip-version-check 'moto[server]==5.2.5'; }
step "all tests"
cargo build --workspace --bins "${all[@]}" --locked
cargo test --workspace "${all[@]}" --locked
step "quickstart"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cargo run --release --locked -- quickstart --once --json --dir "$dir" >"$dir/answer.json"
grep -q '"complete": true' "$dir/answer.json"
cat >"$dir/etcd.toml" <<END
[store]
url = "$dir"
[topology]
store = "etcd://127.0.0.1:2379/canopy"
nodes = [{ id = "t", role = "topology", address = "127.0.0.1:47999" }]
END
if cargo run --release --locked -- topology -c "$dir/etcd.toml" >"$dir/refused" 2>&1; then exit 1; fi
grep -q 'cargo build --release --features etcd' "$dir/refused"
step "done"
