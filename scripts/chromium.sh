#!/bin/sh
# The browser of the console's tests, from Debian's packages: without asking, and only where we may install something.
set -eu
if command -v chromium >/dev/null || ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    exit 0
fi
echo "installing chromium" >&2
export DEBIAN_FRONTEND=noninteractive
{ apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium; } >/dev/null 2>&1 ||
    echo "chromium cannot be installed: the tests of the console in a browser are skipped" >&2
