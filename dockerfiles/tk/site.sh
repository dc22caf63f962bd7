#!/bin/sh
# One step of a build, with what the site gives: CA bundle, proxy, mirrors. All of it comes from build secrets
# (both may be absent) and lives in a folder that is removed at the end, so no layer holds any of it.
#
#   site.sh run CMD...                          any program, with the CA bundle and mirrors in its environment
#   site.sh apt ARGS...                         apt-get, without recommended packages, logs and translations
#   site.sh fetch URL SHA256 FILE               a download, checked before it gets its name
#   site.sh git URL REF COMMIT FOLDER           a git tree with its submodules, at exactly this commit; later steps
#                                               that clone URL take it from there
#   site.sh user NAME ID HOME                   a user and group of this id, without a date anywhere
set -eu
umask 022

# Seconds after which a server that sends nothing is given up; those of apt and pip are shorter by default.
silence=120

secrets=/run/secrets
caches=/var/cache
# Where `git` notes the trees that it has checked out.
trees=/src/gitconfig
scratch=/dev/shm
[ -d "$scratch" ] && [ -w "$scratch" ] || scratch=/var/tmp
work=$(mktemp -d "$scratch/tk-site.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 755 "$work"
: >"$work/apt-mirrors"
: >"$work/url-mirrors"
mkdir -p "$work/git"
: >"$work/git/config"

offline=

read_site() {
    [ -s "$secrets/tk-site" ] || return 0
    while IFS='=' read -r name value; do
        case $name in
        http_proxy | https_proxy | no_proxy | PIP_INDEX_URL | PIP_EXTRA_INDEX_URL | PIP_TRUSTED_HOST)
            export "$name=$value" ;;
        apt_mirror) printf '%s\n' "$value" >>"$work/apt-mirrors" ;;
        url_mirror) printf '%s\n' "$value" >>"$work/url-mirrors" ;;
        offline) offline=$value ;;
        git_mirror) printf '[url "%s"]\n\tinsteadOf = %s\n' "${value#* }" "${value%% *}" >>"$work/git/config" ;;
        esac
    done <"$secrets/tk-site"
}

use_ca_bundle() {
    [ -s "$secrets/tk-ca" ] || return 0
    cp "$secrets/tk-ca" "$work/ca.pem"
    chmod 644 "$work/ca.pem"
    export PIP_CERT="$work/ca.pem" SSL_CERT_FILE="$work/ca.pem" CURL_CA_BUNDLE="$work/ca.pem"
    export REQUESTS_CA_BUNDLE="$work/ca.pem" GIT_SSL_CAINFO="$work/ca.pem"
}

# Every git takes the site's mirrors, also one that a build starts (submodules, what configuring clones), and the
# trees that earlier steps have checked out for it: the longest of several addresses that fit counts.
use_git_mirrors() {
    [ ! -e "$trees" ] || cat "$trees" >>"$work/git/config"
    export XDG_CONFIG_HOME="$work" GIT_HTTP_LOW_SPEED_LIMIT=1 GIT_HTTP_LOW_SPEED_TIME="$silence"
}

# Replaces the first prefix that a line of the mirror list names: `<original prefix> <mirror prefix>`.
mirrored() {
    while IFS=' ' read -r original mirror; do
        case $1 in
        "$original"*)
            printf '%s%s\n' "$mirror" "${1#"$original"}"
            return ;;
        esac
    done <"$work/url-mirrors"
    printf '%s\n' "$1"
}

apt() {
    # Without network the lists are those that a bundle has put into the cache.
    if [ -n "$offline" ] && [ "$1" = update ]; then return 0; fi
    mkdir -p "$work/parts" "$work/sources"
    [ ! -e /etc/apt/sources.list ] || cp /etc/apt/sources.list "$work/sources.list"
    [ -e "$work/sources.list" ] || : >"$work/sources.list"
    for file in /etc/apt/sources.list.d/*; do
        [ ! -e "$file" ] || cp "$file" "$work/sources/"
    done
    while IFS=' ' read -r original mirror; do
        sed -i "s|$original|$mirror|g" "$work/sources.list"
        for file in "$work/sources"/*; do
            [ ! -e "$file" ] || sed -i "s|$original|$mirror|g" "$file"
        done
    done <"$work/apt-mirrors"
    cat >"$work/apt.conf" <<END
Dir::Etc::parts "$work/parts";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "$work/sources";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Keep-Downloaded-Packages "true";
Binary::apt-get::APT::Keep-Downloaded-Packages "true";
Dpkg::Use-Pty "0";
END
    [ ! -s /run/tk/lock.pref ] || echo 'Dir::Etc::preferences "/run/tk/lock.pref";' >>"$work/apt.conf"
    [ ! -e "$work/ca.pem" ] || printf 'Acquire::https::CaInfo "%s";\n' "$work/ca.pem" >>"$work/apt.conf"
    DEBIAN_FRONTEND=noninteractive APT_CONFIG="$work/apt.conf" apt-get --yes "$@"
    rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/aux-cache
}

# What an earlier build fetched is kept by its sha256, and checked again.
fetch() {
    url=$(mirrored "$1")
    kept=$caches/tk-downloads/$2
    mkdir -p "$(dirname "$3")"
    if [ -f "$kept" ]; then
        cp "$kept" "$3.part"
    elif command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --retry 3 --connect-timeout "$silence" \
            --speed-limit 1 --speed-time "$silence" --output "$3.part" "$url"
    elif command -v wget >/dev/null; then
        wget --quiet --timeout="$silence" --tries=4 ${CURL_CA_BUNDLE:+--ca-certificate="$CURL_CA_BUNDLE"} \
            --output-document="$3.part" "$url"
    else
        python3 -c 'if True:
            import socket, sys, urllib.request
            socket.setdefaulttimeout(float(sys.argv[3]))
            urllib.request.urlretrieve(*sys.argv[1:3])' "$url" "$3.part" "$silence"
    fi
    found=$(sha256sum "$3.part")
    if [ "${found%% *}" != "$2" ]; then
        rm -f "$3.part" "$kept"
        echo "error: $1 has sha256 ${found%% *}, expected $2" >&2
        exit 1
    fi
    if [ -d "$caches/tk-downloads" ] && [ ! -f "$kept" ]; then
        cp "$3.part" "$kept.$$" && mv "$kept.$$" "$kept"
    fi
    mv "$3.part" "$3"
}

tree() {
    export HOME="$work"
    store=$caches/tk-git/$(printf '%s' "$1" | sha256sum | cut -c 1-16)
    git init --quiet --bare "$store"
    git -C "$store" config uploadpack.allowAnySHA1InWant true
    git -C "$store" cat-file -e "$3^{commit}" 2>/dev/null ||
        git -C "$store" fetch --quiet --depth 1 "$1" "$3" ||
        git -C "$store" fetch --quiet "$1" "$2"
    git init --quiet "$4"
    git -C "$4" fetch --quiet --depth 1 "file://$store" "$3"
    git -C "$4" -c advice.detachedHead=false checkout --quiet "$3"
    if [ -e "$4/.gitmodules" ]; then
        git -C "$4" remote add origin "$1"
        git -C "$4" submodule --quiet update --init --recursive --depth 1
    fi
    found=$(git -C "$4" rev-parse HEAD)
    if [ "$found" != "$3" ]; then
        echo "error: $1 $2 is at commit $found, expected $3" >&2
        exit 1
    fi
    [ "$2" = "$3" ] || git -C "$4" tag --force "$2" "$3" >/dev/null
    printf '[url "%s"]\n\tinsteadOf = %s\n\tinsteadOf = %s.git\n' "$4" "${1%.git}" "${1%.git}" >>"$trees"
}

user() {
    grep -q "^$1:" /etc/group || printf '%s:x:%s:\n' "$1" "$2" >>/etc/group
    grep -q "^$1:" /etc/passwd || printf '%s:x:%s:%s::%s:/bin/sh\n' "$1" "$2" "$2" "$3" >>/etc/passwd
    mkdir -p "$3"
    chown "$2:$2" "$3"
}

read_site
use_ca_bundle
use_git_mirrors
if [ -d "$caches/tk-pip" ]; then export PIP_CACHE_DIR="$caches/tk-pip"; fi
if [ -d "$caches/tk-ccache" ]; then export CCACHE_DIR="$caches/tk-ccache"; fi
export PIP_NO_COMPILE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
step=$1
shift
case $step in
run) "$@" ;;
apt) apt "$@" ;;
fetch) fetch "$@" ;;
git) tree "$@" ;;
user) user "$@" ;;
*)
    echo "error: unknown step $step" >&2
    exit 2 ;;
esac
