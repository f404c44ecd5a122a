#!/bin/sh
# Prints what `nvmesim describe` reads of a server. Run it there as root:
#   sh collect.sh > server.txt
# then, anywhere:
#   nvmesim describe server.txt -o server.toml
# It only reads. Serial numbers of drives are in its output.
export LC_ALL=C

run() {
    if ! command -v "$1" > /dev/null 2>&1; then
        echo "##### not installed: $1"
        return 1
    fi
    echo "##### $*"
    "$@" 2> /dev/null < /dev/null && return 0
    echo "##### failed: $*"
    return 1
}

[ "$(id -u)" = 0 ] || echo "not root: links of drives and arrays will be missing" >&2
run lscpu -J || run lscpu
run lspci -vv
run lstopo --of xml || run lstopo-no-graphics --of xml
run nvme list -v -o json || run nvme list -o json
run lsblk -J -b -o NAME,TYPE,MODEL,SIZE,ROTA,TRAN,MOUNTPOINT
if [ -r "${MDSTAT:=/proc/mdstat}" ]; then
    run cat "$MDSTAT"
    for array in $(sed -n 's/^\(md[^ ]*\) : active .*/\1/p' "$MDSTAT"); do
        run mdadm --detail "/dev/$array"
    done
fi
