#!/bin/sh
# One step of a build, with what the site gives: CA bundle, proxy, mirrors. All of it comes from build secrets
# (both may be absent) and lives in a folder that is removed at the end, so no layer holds any of it.
#
#   site.sh run CMD...                          any program, with the CA bundle and mirrors in its environment
#   site.sh apt ARGS...                         apt-get, without recommended packages, logs and translations
#   site.sh fetch URL SHA256 FILE               a download, checked before it gets its name
#   site.sh key URL FINGERPRINT FILE            one signing key out of a file of keys, by its fingerprint
#   site.sh git URL REF COMMIT FOLDER           a git tree with its submodules, at exactly this commit, or at
#                                               REF where only the first digits of its commit are given; later steps that clone
#                                               URL take it from there
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

# Replaces in lists of apt what the site's mirrors stand for; what one has put in, no other replaces again.
use_apt_mirrors() {
    for file in "$@"; do
        [ -e "$file" ] || continue
        count=0
        while IFS=' ' read -r original _; do
            count=$((count + 1))
            sed -i "s|$original|<mirror $count>|g" "$file"
        done <"$work/apt-mirrors"
        count=0
        while IFS=' ' read -r _ mirror; do
            count=$((count + 1))
            sed -i "s|<mirror $count>|$mirror|g" "$file"
        done <"$work/apt-mirrors"
    done
}

# The lists of apt in which an archive of the system is replaced by a snapshot: $1 is the archive without
# `http://`, `*.` before it stands for any host of a domain, $2 is the snapshot. Its release file is as old as it is, so how long that counted is not asked.
snapshot_lists() {
    same='function same(word,    tail, rest) {
        sub(/^https?:\/\//, "", word)
        sub(/\/+$/, "", word)
        if (substr(from, 1, 2) != "*.") return word == from
        tail = substr(from, 2)
        rest = length(word) - length(tail)
        return rest > 0 && substr(word, rest + 1) == tail && index(substr(word, 1, rest), "/") == 0
    }'
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -e "$file" ] || awk -v from="$1" -v to="$2" "$same"'
            $1 == "deb" {
                found = 0
                for (i = 2; i <= NF; i++) if (same($i)) { $i = to; found = 1 }
                if (!found) next
                if ($2 ~ /^\[/) $2 = "[check-valid-until=no " substr($2, 2)
                else $1 = "deb [check-valid-until=no]"
                print
            }' "$file" >>"$work/sources/snapshot-$3.list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$file" ] || awk -v from="$1" -v to="$2" "$same"'
            BEGIN { RS = ""; FS = "\n" }
            {
                found = 0
                text = "Check-Valid-Until: no\n"
                for (i = 1; i <= NF; i++) {
                    line = $i
                    count = split(line, words, /[ \t]+/)
                    if (tolower(words[1]) == "uris:") for (n = 2; n <= count; n++) if (same(words[n])) {
                        found = 1
                        line = "URIs: " to
                    }
                    text = text line "\n"
                }
                if (found) print text
            }' "$file" >>"$work/sources/snapshot-$3.sources"
    done
}

# Where the archives have dropped a locked version, the system's snapshots still have it.
add_snapshots() {
    echo "a locked version is gone from the archives: looking in their snapshots"
    number=0
    while read -r original snapshot; do
        number=$((number + 1))
        snapshot_lists "$original" "$snapshot" "$number"
    done </run/tk/lock.snapshots
    use_apt_mirrors "$work/sources"/snapshot-*
    # One that does not answer, or is of a time to come, leaves the others; the installation decides.
    [ -n "$offline" ] || apt-get --yes update || true
}

# Files of vendors' packages in apt's cache that are not what was locked: FILE, its SHA256 and the locked one.
wrong_debs() {
    while read -r sha256 name; do
        for file in /var/cache/apt/archives/"$name"*.deb; do
            [ -e "$file" ] || continue
            found=$(sha256sum "$file")
            [ "${found%% *}" = "$sha256" ] || printf '%s %s %s\n' "$file" "${found%% *}" "$sha256"
        done
    done </run/tk/lock.debs
}

# Downloads what is to be installed. What an earlier build kept may come from elsewhere, so that it is fetched again.
download_debs() {
    wrong_debs | while read -r file _; do rm -f "$file"; done
    apt-get --yes --download-only "$@"
    wrong_debs >"$work/wrong-debs"
    while read -r file found expected; do
        rm -f "$file"
        echo "error: ${file##*/} has sha256 $found, expected $expected" >&2
    done <"$work/wrong-debs"
    [ ! -s "$work/wrong-debs" ] || exit 1
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
    use_apt_mirrors "$work/sources.list" "$work/sources"/*
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
    export DEBIAN_FRONTEND=noninteractive APT_CONFIG="$work/apt.conf"
    if [ "$1" = install ] && [ -s /run/tk/lock.snapshots ]; then
        apt-get --yes --simulate "$@" >/dev/null 2>&1 || add_snapshots
    fi
    if [ "$1" = install ] && [ -s /run/tk/lock.debs ]; then
        download_debs "$@"
    fi
    apt-get --yes "$@"
    rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/aux-cache
}

download() {
    url=$(mirrored "$1")
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --retry 3 --connect-timeout "$silence" \
            --speed-limit 1 --speed-time "$silence" --output "$2" "$url"
    elif command -v wget >/dev/null; then
        wget --quiet --timeout="$silence" --tries=4 ${CURL_CA_BUNDLE:+--ca-certificate="$CURL_CA_BUNDLE"} \
            --output-document="$2" "$url"
    else
        python3 -c 'if True:
            import socket, sys, urllib.request
            socket.setdefaulttimeout(float(sys.argv[3]))
            urllib.request.urlretrieve(*sys.argv[1:3])' "$url" "$2" "$silence"
    fi
}

# What an earlier build fetched is kept by its sha256, and checked again.
fetch() {
    kept=$caches/tk-downloads/$2
    mkdir -p "$(dirname "$3")"
    if [ -f "$kept" ]; then
        cp "$kept" "$3.part"
    else
        download "$1" "$3.part"
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

# A file with the same key may be renewed, so it is fetched each time; a bundle brings it by the fingerprint.
# What is asked for must be a primary key: a stranger's key could have it as one of its subkeys.
key() {
    kept=$caches/tk-downloads/$2
    mkdir -p "$(dirname "$3")"
    mkdir -m 700 "$work/gnupg"
    if [ -n "$offline" ] && [ -f "$kept" ]; then
        cp "$kept" "$work/keys"
    else
        download "$1" "$work/keys"
    fi
    reader="gpg --homedir $work/gnupg --batch --quiet --no-autostart"
    $reader --import "$work/keys" || true # it also complains of single keys that nobody asks for
    found=$($reader --with-colons --list-keys "$2" | awk -F: '$1 == "pub" { own = 1 } $1 == "fpr" && own { print $10; own = 0 }')
    if [ "$found" != "$2" ]; then
        echo "error: $1 has no key with the fingerprint $2" >&2
        $reader --with-colons --list-keys | awk -F: '$1 == "fpr" { print "  it has " $10 }' >&2
        exit 1
    fi
    $reader --armor --export "$2" >"$3"
    rm -rf "$work/gnupg" "$work/keys"
}

tree() {
    export HOME="$work"
    store=$caches/tk-git/$(printf '%s' "$1" | sha256sum | cut -c 1-16)
    git init --quiet --bare "$store"
    git -C "$store" config uploadpack.allowAnySHA1InWant true
    commit=$3
    if [ "${#3}" -lt 40 ]; then
        git -C "$store" fetch --quiet --depth 1 "$1" "$2"
        commit=$(git -C "$store" rev-parse 'FETCH_HEAD^{commit}')
    fi
    case $commit in
    "$3"*) ;;
    *)
        echo "error: $1 $2 is at commit $commit, expected $3..." >&2
        exit 1 ;;
    esac
    git -C "$store" cat-file -e "$commit^{commit}" 2>/dev/null ||
        git -C "$store" fetch --quiet --depth 1 "$1" "$commit" ||
        git -C "$store" fetch --quiet "$1" "$2"
    git init --quiet "$4"
    git -C "$4" fetch --quiet --depth 1 "file://$store" "$commit"
    git -C "$4" -c advice.detachedHead=false checkout --quiet "$commit"
    if [ -e "$4/.gitmodules" ]; then
        git -C "$4" remote add origin "$1"
        git -C "$4" submodule --quiet update --init --recursive --depth 1
    fi
    found=$(git -C "$4" rev-parse HEAD)
    if [ "$found" != "$commit" ]; then
        echo "error: $1 $2 is at commit $found, expected $commit" >&2
        exit 1
    fi
    [ "$2" = "$commit" ] || git -C "$4" tag --force "$2" "$commit" >/dev/null
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
key) key "$@" ;;
git) tree "$@" ;;
user) user "$@" ;;
*)
    echo "error: unknown step $step" >&2
    exit 2 ;;
esac
