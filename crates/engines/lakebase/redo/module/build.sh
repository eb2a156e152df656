#!/bin/sh
# build.sh HEADERS MODULE: builds the module for the version of Postgres whose server headers (the folder with postgres.h) are HEADERS.
set -eu
exec "${CC:-cc}" -O2 -Wall -Werror -fPIC -shared -fno-strict-aliasing -fwrapv -I"$1" -o "$2" "$(dirname "$0")/thalweg_redo.c"
