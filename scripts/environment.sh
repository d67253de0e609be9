# Sourced by the other scripts: strict mode, the project's folder as the current one, and its Python.
set -euo pipefail
trap 'exit 130' INT
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=$PWD/.venv
if [ -n "${PYTHONDONTWRITEBYTECODE-}" ]; then # no __pycache__ in the folders, but no compiling at each start of a process
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX=$VENV/bytecode
fi

die() {
    printf '%s\n' "$@" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in python3.11 python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    die "Python 3.11 or newer was found neither as python3.11 nor as python3." \
        "On Debian 12 and Ubuntu 24.04: apt-get install python3 python3-venv"
}

# as_root_install PACKAGE...: false where this user cannot.
as_root_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "installing with apt-get: $*"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
