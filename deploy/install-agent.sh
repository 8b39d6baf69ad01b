#!/usr/bin/env bash
# Installs, upgrades or removes the Muster agent on a Debian or Ubuntu host. `install-agent.sh --help` tells how.
# What always holds: nothing of an archive runs or is installed before its sha256 was found right; the token is never an
# argument of a process; what runs for renters goes on through an upgrade, and is never ended by --uninstall.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: install-agent.sh [--archive FILE|URL --sha256 HEX] [--url PLATFORM --token-file FILE|- [--ca FILE]] [--force]
       install-agent.sh --uninstall
       each with [--dry-run] [--root DIR]

  --archive FILE|URL   the agent's archive (make release makes it); a URL must be https
  --sha256 HEX         what the archive must hash to
  --url PLATFORM       enrol this host at the platform's address for hosts, unless it is enrolled
  --token-file FILE|-  where the one-time token is read from; - is standard input
  --ca FILE            PEM file to verify the platform with (default: the system's)
  --force              install although muster-agent doctor finds what keeps this host from being rented out
  --uninstall          remove the agent; refused while a lease runs. Its identity and journal stay
  --dry-run            check everything and say what would change; change nothing
  --root DIR           install below DIR instead of /, without systemd (for images and tests)

A script that a platform serves (https://PLATFORM/install-agent.sh) knows that platform's archive and address: it needs
only --token-file.

Run again with the same archive, it changes nothing; with another, it upgrades. What runs for renters goes on.
USAGE
}

say() { printf '%s\n' "$*"; }
die() {
  printf 'install-agent: %s\n' "$*" >&2
  report "$step" "$*" failed
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# A platform that serves this script fills these in: the address of its archives, their version and hashes (ARCH=HEX …),
# its address for hosts, and the certificates to verify that with, if they are its own.
served_archives='' served_version='' served_sums='' served_url='' served_ca=''

archive='' sha='' url='' token_file='' ca='' root='' force='' dry='' uninstall=''
changes=0 # made, or with --dry-run: to be made
version='' # of the archive's agent
replaced='' # something the running agent is made of
work=''
token='' # the one-time token, once it is read
step=start # of the installation, as the platform's page names it: start, fetch, check, install, enrol

# report STEP [DETAIL [failed]] tells the platform how far this is, for the page that the command is from. Nothing depends
# on it. The token is no argument of a process: printf is part of the shell.
report() {
  step=$1
  if [ -n "$dry" ] || [ -z "$served_archives" ] || ! [[ $token =~ ^[A-Za-z0-9_]{1,200}$ ]] || ! have curl; then
    return 0
  fi
  local detail=${2:-}
  detail=${detail//[^[:print:]]/ }
  detail=${detail:0:400}
  detail=${detail//\\/\\\\}
  detail=${detail//\"/\\\"}
  printf 'header = "Authorization: Bearer %s"\nsilent\noutput = "/dev/null"\nmax-time = 5\ndata-urlencode = "step=%s"\ndata-urlencode = "detail=%s"\ndata-urlencode = "failed=%s"\nurl = "%s/hosts/enrolling"\n' \
    "$token" "$1" "$detail" "${3:-}" "${served_archives%/agent/*}" | curl --config - || true
}

# read_token reads the token before the agent needs it, so that the platform can be told how far this is.
read_token() {
  if [ -z "$token_file" ] || [ -n "$dry" ]; then
    return 0
  fi
  if [ "$token_file" = - ]; then
    token=$(cat)
  elif [ -r "$token_file" ]; then
    token=$(<"$token_file")
  fi
}

# change WHAT COMMAND… says and does one thing, or only says it.
change() {
  local what=$1
  shift
  changes=$((changes + 1))
  if [ -n "$dry" ]; then
    say "would $what"
  else
    say "$what"
    "$@"
  fi
}

finish() {
  if [ "$changes" = 0 ]; then
    say 'Nothing to change.'
  elif [ -n "$dry" ]; then
    say "Nothing was changed: $changes to do."
  fi
}

systemd() { [ -z "$root" ]; }

parse() {
  while [ $# -gt 0 ]; do
    case $1 in
      --archive | --sha256 | --url | --token-file | --ca | --root)
        [ $# -ge 2 ] || die "$1 needs a value"
        case $1 in
          --archive) archive=$2 ;;
          --sha256) sha=$2 ;;
          --url) url=$2 ;;
          --token-file) token_file=$2 ;;
          --ca) ca=$2 ;;
          --root) root=${2%/} ;;
        esac
        shift
        ;;
      --force) force=yes ;;
      --dry-run) dry=yes ;;
      --uninstall) uninstall=yes ;;
      -h | --help) usage; exit 0 ;;
      --token | --token=*) die 'a token on the command line can be read by every user of this machine: use --token-file' ;;
      *) die "unknown argument: $1 (--help tells what there is)" ;;
    esac
    shift
  done
  bin=$root/usr/local/bin lib=$root/usr/local/lib/muster-agent unit=$root/etc/systemd/system/muster-agent.service state=$root/var/lib/muster-agent
  if [ -n "$uninstall" ]; then
    [ -z "$archive$sha$url$token_file$ca$force" ] || die '--uninstall goes with --dry-run and --root only'
    return
  fi
  use_served
  [ -n "$archive" ] || die '--archive is missing: the file or https address of the archive (--help tells more)'
  [[ $sha =~ ^[0-9a-fA-F]{64}$ ]] || die '--sha256 is missing or not 64 hexadecimal digits: take it from the SHA256SUMS you verified'
  sha=${sha,,}
  [ -z "$url" ] || [ -n "$token_file" ] || die '--url needs --token-file'
  [ -n "$url" ] || [ -z "$token_file$ca" ] || die '--token-file and --ca go with --url'
}

# use_served takes what the platform that served this script filled in, where no argument says otherwise.
use_served() {
  [ -n "$served_archives" ] || return 0
  [ -n "$url" ] || [ -z "$token_file" ] || url=$served_url
  [ -z "$archive" ] || return 0
  local arch
  case $(uname -m) in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *) arch=$(uname -m) ;;
  esac
  [[ " $served_sums " == *" $arch="* ]] || die "the platform serves no agent for $(uname -m) machines"
  archive=$served_archives/muster-agent-$served_version-linux-$arch.tar.gz
  [ -n "$sha" ] || sha=$(tr ' ' '\n' <<<"$served_sums" | sed -n "s/^$arch=//p")
}

# prepare_host refuses what the rest could not mend.
prepare_host() {
  if systemd; then
    [ "$(id -u)" = 0 ] || die 'run it as root: sudo'
    [ -d /run/systemd/system ] || die 'this host was not booted with systemd, which keeps the agent running'
    grep -qiE '^(ID|ID_LIKE)=.*(debian|ubuntu)' /etc/os-release || say 'note: this script is made for Debian and Ubuntu; it goes on here'
  elif [ ! -d "$root" ]; then
    die "--root: there is no directory $root"
  fi
}

# fetch puts the archive's checked content into $work/new.
fetch() {
  local file=$archive got
  local proto='=https'
  case $archive in
    "${served_archives:-none}"/*) proto='=http,https' ;; # its hash came with this script
  esac
  case $archive in
    https://* | "${served_archives:-none}"/*)
      file=$work/archive
      say "fetching $archive"
      if have curl; then
        curl --fail --silent --show-error --location --proto "$proto" --output "$file" -- "$archive" || die "the archive cannot be fetched from $archive"
      elif have wget; then
        local only=(--https-only)
        [ "$proto" = =https ] || only=()
        wget --quiet ${only[@]+"${only[@]}"} --output-document="$file" -- "$archive" || die "the archive cannot be fetched from $archive"
      else
        die 'fetching needs curl or wget: apt-get install curl'
      fi
      ;;
    *://*) die "the archive's address must begin with https://" ;;
  esac
  [ -f "$file" ] || die "there is no archive $file"
  got=$(sha256sum <"$file")
  got=${got%% *}
  [ "$got" = "$sha" ] || die "the archive is not the one you named: its sha256 is $got, not $sha. Nothing was changed"
  mkdir "$work/new"
  tar --extract --gzip --no-same-owner --file "$file" --directory "$work/new" muster-agent muster-guest muster-agent.service ||
    die 'the archive does not hold muster-agent, muster-guest and muster-agent.service'
  local name
  for name in muster-agent muster-guest muster-agent.service; do
    if [ ! -f "$work/new/$name" ] || [ -L "$work/new/$name" ]; then
      die "$name in the archive is not a file"
    fi
  done
  "$work/new/muster-agent" version </dev/null >"$work/version" 2>&1 ||
    die "the archive's agent does not run on this $(uname -m) machine: $(head -c 300 "$work/version"). Is it for another architecture, or a newer glibc; is ${TMPDIR:-/tmp} mounted noexec (set TMPDIR)?"
}

# name_version finds out what the archive's version is called: its folder bears the name.
name_version() {
  version=$(awk 'NR == 1 && $1 == "muster-agent" { print $2 }' "$work/version")
  [[ $version =~ ^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$ ]] || die "the archive's agent does not say its version: $(head -c 300 "$work/version")"
}

# examine shows what the doctor of the new agent says of this host.
examine() {
  say 'checking this host (muster-agent doctor):'
  local look=()
  # An agent of before looks at no ports.
  if "$work/new/muster-agent" doctor --help </dev/null 2>&1 | grep -- --url >/dev/null; then
    look+=(--state "$state")
    [ -z "$url" ] || look+=(--url "$url")
    [ -z "$ca" ] || look+=(--ca "$ca")
  fi
  if ! "$work/new/muster-agent" doctor ${look[@]+"${look[@]}"} </dev/null | tee "$work/doctor"; then
    if [ -z "$force" ]; then
      report check "$(grep -w bad "$work/doctor" | tr -s ' \n' ' ')" failed
      token='' # the page shows these lines, not the next one
    fi
    [ -n "$force" ] || die 'mend what is "bad" above and run this again, or add --force to install all the same. Nothing was changed'
    say 'going on because of --force: the host cannot be rented out until this is mended'
  fi
}

# put NEW MODE TARGET replaces a file at once: a running program, and one mounted into containers, keeps its old content.
put() {
  mkdir -p "$(dirname "$3")"
  install -m "$2" "$1" "$3.new"
  mv -f "$3.new" "$3"
}

# place puts a file where it differs from what is there.
place() {
  if ! cmp -s "$1" "$3"; then
    change "install $3" put "$1" "$2" "$3"
    replaced=yes
  fi
}

# point makes a link, at once.
point() {
  if [ "$(readlink "$2" 2>/dev/null)" != "$1" ]; then
    change "let $2 be $1" put_link "$1" "$2"
    replaced=yes
  fi
}

put_link() {
  mkdir -p "$(dirname "$2")"
  ln -sfn "$1" "$2.new"
  mv -fT "$2.new" "$2"
}

enrolled() { [ -e "$state/identity.json" ]; }

enrol() {
  if [ -z "$url" ]; then
    return
  fi
  if enrolled; then
    say 'this host is enrolled already: the token is not used'
    return
  fi
  if [ -z "$dry" ] && [ "$token_file" != - ] && [ ! -r "$token_file" ]; then
    die "the token file $token_file cannot be read; the agent is installed: run this again"
  fi
  local command=("$bin/muster-agent" enroll --url "$url" --token-file "$token_file" --state "$state")
  [ -z "$ca" ] || command+=(--ca "$ca")
  report enrol
  if [ "$token_file" = - ] && [ -z "$dry" ]; then
    change "enrol this host at $url" "${command[@]}" < <(printf '%s\n' "$token") || die 'the agent is installed, but the host is not enrolled: mend the above and run this again'
    return
  fi
  change "enrol this host at $url" "${command[@]}" || die 'the agent is installed, but the host is not enrolled: mend the above and run this again'
}

start() {
  if ! enrolled && [ -z "$url" ]; then
    say 'This host is not enrolled: run this again with --url and --token-file, a one-time token from your dashboard.'
    return
  fi
  systemd || return 0
  systemctl is-enabled --quiet muster-agent.service 2>/dev/null || change 'enable muster-agent.service' systemctl enable --quiet muster-agent.service
  # Only the agent restarts (KillMode=process): workloads and their networks go on and are adopted.
  if ! systemctl is-active --quiet muster-agent.service; then
    change 'start muster-agent.service' systemctl start muster-agent.service
  elif [ -n "$replaced" ]; then
    change 'restart muster-agent.service (what runs for renters goes on)' systemctl restart muster-agent.service
  fi
}

install_agent() {
  read_token
  report fetch
  fetch
  name_version
  report check
  examine
  report install
  # Versions lie beside each other; "current" is the one that has proven itself, and the agent's launcher moves it.
  place "$work/new/muster-guest" 0755 "$lib/versions/$version/muster-guest"
  place "$work/new/muster-agent" 0755 "$lib/versions/$version/muster-agent"
  point "versions/$version" "$lib/current"
  point ../lib/muster-agent/current/muster-agent "$bin/muster-agent"
  [ ! -f "$bin/muster-guest" ] || change "remove $bin/muster-guest, which lies beside the agent now" rm -f "$bin/muster-guest"
  local before=$changes
  place "$work/new/muster-agent.service" 0644 "$unit"
  if systemd && [ "$changes" != "$before" ]; then
    change 'let systemd read its units again' systemctl daemon-reload
  fi
  enrol
  start
  finish
}

# refuse_leases ends the script while a lease runs. A run's folder stays until the platform has confirmed its end, but
# once its containers, network and data are removed, the agent's record in it says "gone". (In a renter's strings quotes
# are escaped, so none of them looks like this.)
refuse_leases() {
  local folder running=()
  for folder in "$state"/leases/*/; do
    [ -d "$folder" ] || continue
    grep -q '"gone":true' "$folder/lease.json" 2>/dev/null || running+=("$(basename "$folder")")
  done
  if [ ${#running[@]} -gt 0 ]; then
    if [ "${1:-}" = resume ]; then
      systemctl start muster-agent.service
    fi
    local what="${#running[@]} leases run"
    [ ${#running[@]} -ne 1 ] || what="1 lease runs"
    die "$what here: ${running[*]}. Drain the host and wait until they end (muster host drain). Nothing was removed"
  fi
}

uninstall_agent() {
  refuse_leases
  if systemd; then
    if systemctl is-active --quiet muster-agent.service; then
      change 'stop muster-agent.service' systemctl stop muster-agent.service
      [ -n "$dry" ] || refuse_leases resume # one may have begun meanwhile
    fi
    ! systemctl is-enabled --quiet muster-agent.service 2>/dev/null || change 'disable muster-agent.service' systemctl disable --quiet muster-agent.service
  fi
  if [ -x "$bin/muster-agent" ] && enrolled; then
    change 'remove the networks, firewall rules and images of the agent' "$bin/muster-agent" purge --images --state "$state"
  fi
  local f
  for f in "$unit" "$bin/muster-agent" "$bin/muster-guest" "$lib"; do
    if [ -e "$f" ] || [ -L "$f" ]; then
      change "remove $f" rm -rf "$f"
    fi
  done
  if systemd && [ "$changes" -gt 0 ]; then
    change 'let systemd read its units again' systemctl daemon-reload
  fi
  [ ! -d "$state" ] || say "$state stays: this host's keys, and the proof of what is owed to it. Remove it when all is paid out."
  finish
}

main() {
  umask 022
  parse "$@"
  prepare_host
  if [ -n "$uninstall" ]; then
    uninstall_agent
    return
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  if [ -n "$url" ] && [ "$url" = "$served_url" ] && [ -z "$ca" ] && [ -n "$served_ca" ]; then
    ca=$work/platform-ca.pem
    printf '%s\n' "$served_ca" >"$ca"
  fi
  install_agent
}

main "$@"
