# Sourced by the other scripts: strict mode, the project's folder as the current one, and its Python.
set -euo pipefail
trap 'exit 130' INT
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=$PWD/.venv
if [ -n "${PINLATER_PYTHON-}" ]; then # another Python than find_python's, with an environment of its own
    VENV=$VENV/$("$PINLATER_PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
fi
if [ -n "${PYTHONDONTWRITEBYTECODE-}" ]; then # no __pycache__ in the folders, but no compiling at each start of a process
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX=$VENV/bytecode
fi

die() {
    printf '%s\n' "$@" >&2
    exit 1
}

# say_help ARGUMENTS: the first comment of the script, where one of its arguments asks for it.
say_help() {
    case " $* " in
        *" --help "* | *" -h "*)
            sed -n '2,/^[^#]/s/^# //p' "scripts/$(basename "$0")"
            exit
            ;;
    esac
}

# The one of the distribution comes first where it can make environments: it is built with profiles, and runs the tests in
# three quarters of the time of one built without, as pyenv builds unless it is told to.
find_python() {
    local candidate modules found
    local candidates=${PINLATER_PYTHON:-/usr/bin/python3.11 python3.11 python3 python3.12 python3.13 python3.14}
    for modules in ensurepip,sys sys; do
        for candidate in $candidates; do
            if "$candidate" -c "import $modules; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
                echo "$candidate"
                return
            fi
        done
    done
    found=$("${PINLATER_PYTHON:-python3}" --version 2>&1) || found="not there"
    die "PinLater needs Python 3.11 or newer; ${PINLATER_PYTHON:-python3} is $found." \
        "On Debian 12 and Ubuntu 24.04: apt-get install python3 python3-venv. Elsewhere put one on the PATH, as python3 or python3.12."
}

# as_root_install PACKAGE...: false where this user cannot.
as_root_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "installing with apt-get: $*"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
