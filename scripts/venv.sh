#!/bin/sh
# Makes .venv, or leaves it alone when it works. PYTHON=... chooses the interpreter; otherwise the first on the PATH
# that is new enough and really runs is taken (a pyenv shim may exist and yet refuse to start).
set -eu

fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'

works() {
    "$1" -c "import $2; $fits" >/dev/null 2>&1
}

find_python() {
    for name in python3.13 python3.12 python3.11 python3 python; do
        old_ifs=$IFS
        IFS=:
        for folder in $PATH; do
            if [ -x "$folder/$name" ] && works "$folder/$name" "venv, ensurepip"; then
                echo "$folder/$name"
                return
            fi
        done
        IFS=$old_ifs
    done
}

if works .venv/bin/python pip; then
    exit 0
fi

python=${PYTHON:-$(find_python)}
if [ -z "$python" ]; then
    echo "error: no Python 3.11, 3.12 or 3.13 that can make a virtual environment was found on the PATH" >&2
    echo "help: install one (on Debian and Ubuntu with its venv package: apt install python3 python3-venv)," >&2
    echo "      or name one: make PYTHON=/path/to/python3 ..." >&2
    exit 1
fi
if ! works "$python" "venv, ensurepip"; then
    echo "error: \`$python\` is not a Python 3.11, 3.12 or 3.13 that can make a virtual environment" >&2
    exit 1
fi
echo "making .venv with $("$python" --version) (once)" >&2
"$python" -m venv --clear .venv
