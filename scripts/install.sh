#!/bin/sh
# Installs what is named into .venv, with the pinned versions: `sh scripts/install.sh -e '.[dev]'`.
# uv takes a tenth of the CPU time that pip takes. pip is asked where uv cannot be installed, or cannot reach a package
# index that pip is configured for. Modules are compiled when they are first imported: most of them never are.
set -eu

pip() {
    .venv/bin/python -m pip --disable-pip-version-check -qq install --no-compile -c constraints.txt "$@"
}

if [ -x .venv/bin/uv ] || pip uv 2>/dev/null; then
    .venv/bin/uv pip install -q --python .venv/bin/python -c constraints.txt --no-build-isolation "$@" && exit 0
    echo "uv could not install, trying pip" >&2
fi
pip --no-build-isolation "$@"
