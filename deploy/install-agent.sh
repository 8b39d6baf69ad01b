#!/usr/bin/env bash
# Prepares a Debian or Ubuntu host for the Muster agent, and installs, upgrades or removes the agent. See --help.
# What always holds: nothing of an archive runs or is installed before its sha256 was verified; the token is never an
# argument of a process; leases continue through an upgrade, and --uninstall never ends one; --prepare changes nothing
# without --yes.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: install-agent.sh [--archive FILE|URL --sha256 HEX] [--url PLATFORM --token-file FILE|- [--ca FILE] [--ephemeral]] [--force]
       install-agent.sh --prepare [--yes]
       install-agent.sh --uninstall
       each with [--root DIR], the first and the last also with [--dry-run]

  --prepare            print the commands that install and set up what the agent needs on Ubuntu 22.04, Ubuntu 24.04 or
                       Debian 12: the driver, Docker, NVIDIA's container toolkit, package holds, a firewall rule
  --yes                with --prepare: run these commands
  --archive FILE|URL   the agent's archive (make release builds it); a URL must be https
  --sha256 HEX         the SHA-256 that the archive must have
  --url PLATFORM       enrol this host at the platform's address for hosts, unless it is enrolled
  --token-file FILE|-  file with the one-time token; - is standard input
  --ca FILE            PEM file to verify the platform with (default: the system's)
  --ephemeral          with --url: this machine may vanish, as a cloud's virtual machine; a silent host is retired after a day
  --force              install even if muster-agent doctor finds that this host cannot be rented out
  --uninstall          remove the agent; refused while a lease runs. Its identity and journal stay
  --dry-run            check everything and say what would change; change nothing
  --root DIR           install below DIR instead of /, without systemd (for images and tests)

The script that a platform serves (https://PLATFORM/install-agent.sh) contains the platform's address and the address of
the archive, and needs only --token-file.

With the same archive, a second run changes nothing. With another archive, it upgrades the agent. Leases continue.
USAGE
}

say() { printf '%s\n' "$*"; }
die() {
  printf 'install-agent: %s\n' "$*" >&2
  report "$step" "$*" failed
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# The platform that serves this script fills in these values: the address of its archives, their version and hashes (ARCH=HEX …),
# its address for hosts, and the certificates to verify that with, if they are its own.
served_archives='' served_version='' served_sums='' served_url='' served_ca=''

archive='' sha='' url='' token_file='' ca='' root='' force='' dry='' uninstall='' prepare='' yes='' ephemeral=''
changes=0 # made, or with --dry-run: to be made
version='' # of the archive's agent
replaced='' # something the running agent is made of
work=''
token='' # the one-time token, once it is read
step=start # of the installation, as the platform's page names it: start, fetch, check, install, enrol

# report STEP [DETAIL [failed]] reports the progress to the platform, for the page that shows the command. Nothing depends
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

# read_token reads the token before the agent needs it, so that the progress can be reported to the platform.
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

# change WHAT COMMAND… prints one change and makes it; with --dry-run it only prints it.
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
      --ephemeral) ephemeral=--ephemeral ;;
      --dry-run) dry=yes ;;
      --uninstall) uninstall=yes ;;
      --prepare) prepare=yes ;;
      --yes) yes=yes ;;
      -h | --help) usage; exit 0 ;;
      --token | --token=*) die 'a token on the command line can be read by every user of this machine: use --token-file' ;;
      *) die "unknown argument: $1 (see --help)" ;;
    esac
    shift
  done
  bin=$root/usr/local/bin lib=$root/usr/local/lib/muster-agent unit=$root/etc/systemd/system/muster-agent.service state=$root/var/lib/muster-agent
  if [ -n "$prepare" ]; then
    [ -z "$archive$sha$url$token_file$ca$ephemeral$force$dry$uninstall" ] || die '--prepare can be combined with --yes and --root only'
    return
  fi
  [ -z "$yes" ] || die '--yes is for --prepare'
  if [ -n "$uninstall" ]; then
    [ -z "$archive$sha$url$token_file$ca$ephemeral$force" ] || die '--uninstall can be combined with --dry-run and --root only'
    return
  fi
  use_served
  [ -n "$archive" ] || die '--archive is missing: the file or https address of the archive (see --help)'
  [[ $sha =~ ^[0-9a-fA-F]{64}$ ]] || die '--sha256 is missing or not 64 hexadecimal digits: take it from the SHA256SUMS you verified'
  sha=${sha,,}
  [ -z "$url" ] || [ -n "$token_file" ] || die '--url needs --token-file'
  [ -n "$url" ] || [ -z "$token_file$ca$ephemeral" ] || die '--token-file, --ca and --ephemeral go with --url'
}

# use_served takes the values that the platform filled in, unless an argument sets them.
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

# check_host refuses machines on which the agent cannot be installed.
check_host() {
  if systemd; then
    [ "$(id -u)" = 0 ] || die 'run it as root: sudo'
    [ -d /run/systemd/system ] || die 'this host was not booted with systemd, which keeps the agent running'
    grep -qiE '^(ID|ID_LIKE)=.*(debian|ubuntu)' /etc/os-release || say 'note: this script is made for Debian and Ubuntu, and was not tested on this distribution'
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
  # Releases before buckets have none.
  tar --extract --gzip --no-same-owner --file "$file" --directory "$work/new" muster-mount 2>/dev/null || true
  local name
  for name in muster-agent muster-guest muster-agent.service muster-mount; do
    [ "$name" != muster-mount ] || [ -e "$work/new/$name" ] || [ -L "$work/new/$name" ] || continue
    if [ ! -f "$work/new/$name" ] || [ -L "$work/new/$name" ]; then
      die "$name in the archive is not a file"
    fi
  done
  "$work/new/muster-agent" version </dev/null >"$work/version" 2>&1 ||
    die "the archive's agent does not run on this $(uname -m) machine: $(head -c 300 "$work/version"). Is it for another architecture, or a newer glibc; is ${TMPDIR:-/tmp} mounted noexec (set TMPDIR)?"
}

# name_version reads the version of the archive's agent, which names its folder.
name_version() {
  version=$(awk 'NR == 1 && $1 == "muster-agent" { print $2 }' "$work/version")
  [[ $version =~ ^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$ ]] || die "the archive's agent does not print its version: $(head -c 300 "$work/version")"
}

# examine prints what the new agent's doctor finds on this host.
examine() {
  say 'checking this host (muster-agent doctor):'
  local look=()
  # Older agents check no ports.
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
    [ -n "$force" ] || die 'fix what is "bad" above and run this again, or add --force to install anyway. Nothing was changed'
    say 'continuing because of --force: the host cannot be rented out until this is fixed'
  fi
}

# put NEW MODE TARGET replaces a file atomically: a running program, and one mounted into containers, keeps its old
# content.
put() {
  mkdir -p "$(dirname "$3")"
  install -m "$2" "$1" "$3.new"
  mv -f "$3.new" "$3"
}

# place installs a file unless the same file is there.
place() {
  if ! cmp -s "$1" "$3"; then
    change "install $3" put "$1" "$2" "$3"
    replaced=yes
  fi
}

# point replaces a link atomically.
point() {
  if [ "$(readlink "$2" 2>/dev/null)" != "$1" ]; then
    change "link $2 to $1" put_link "$1" "$2"
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
  [ -z "$ephemeral" ] || command+=("$ephemeral")
  report enrol
  if [ "$token_file" = - ] && [ -z "$dry" ]; then
    change "enrol this host at $url" "${command[@]}" < <(printf '%s\n' "$token") || die 'the agent is installed, but the host is not enrolled: fix the problem above and run this again'
    return
  fi
  change "enrol this host at $url" "${command[@]}" || die 'the agent is installed, but the host is not enrolled: fix the problem above and run this again'
}

start() {
  if ! enrolled && [ -z "$url" ]; then
    say 'This host is not enrolled: run this again with --url and --token-file, a one-time token from your dashboard.'
    return
  fi
  systemd || return 0
  systemctl is-enabled --quiet muster-agent.service 2>/dev/null || change 'enable muster-agent.service' systemctl enable --quiet muster-agent.service
  # Only the agent restarts (KillMode=process). Workloads and their networks continue, and the agent adopts them.
  if ! systemctl is-active --quiet muster-agent.service; then
    change 'start muster-agent.service' systemctl start muster-agent.service
  elif [ -n "$replaced" ]; then
    change 'restart muster-agent.service (leases continue)' systemctl restart muster-agent.service
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
  # Versions are installed next to each other. "current" is the version that has worked; the agent's launcher moves it.
  place "$work/new/muster-guest" 0755 "$lib/versions/$version/muster-guest"
  [ ! -f "$work/new/muster-mount" ] || place "$work/new/muster-mount" 0755 "$lib/versions/$version/muster-mount"
  place "$work/new/muster-agent" 0755 "$lib/versions/$version/muster-agent"
  point "versions/$version" "$lib/current"
  point ../lib/muster-agent/current/muster-agent "$bin/muster-agent"
  [ ! -f "$bin/muster-guest" ] || change "remove $bin/muster-guest, which is next to the agent now" rm -f "$bin/muster-guest"
  local before=$changes
  place "$work/new/muster-agent.service" 0644 "$unit"
  if systemd && [ "$changes" != "$before" ]; then
    change 'reload the units of systemd' systemctl daemon-reload
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
    change 'reload the units of systemd' systemctl daemon-reload
  fi
  [ ! -d "$state" ] || say "$state is kept: it has this host's keys and the proof of what the platform owes you. Delete it after your last payout."
  finish
}

# do_step COMMAND… prints shell commands, as root would type them, and with --yes runs them.
do_step() {
  local command
  for command in "$@"; do
    changes=$((changes + 1))
    printf '  %s\n' "$command"
    [ -z "$yes" ] || bash -euo pipefail -c "$command" || die "this command failed: $command"
  done
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# apt_install HEADING PACKAGE… installs the packages that are missing.
apt_install() {
  local heading=$1 name missing=()
  shift
  for name in "$@"; do
    installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "$heading"
  do_step 'apt-get update' "apt-get install -y ${missing[*]}"
}

# add_repository NAME KEY-URL LINE adds a package repository with its own key. (The list is written last, so that an
# interrupted run repeats the step.)
add_repository() {
  local key=$root/etc/apt/keyrings/$1.asc list=$root/etc/apt/sources.list.d/$1.list
  [ ! -s "$list" ] || return 0
  do_step "install -d -m 0755 '$root/etc/apt/keyrings' '$root/etc/apt/sources.list.d'" \
    "curl -fsSL --proto '=https' '$2' -o '$key'" \
    "printf '%s\\n' 'deb [signed-by=/etc/apt/keyrings/$1.asc] $3' >'$list'"
}

# pci_display VENDOR reports whether a display controller or 3D controller of this PCI vendor is in the machine.
pci_display() {
  local device
  for device in "$root"/sys/bus/pci/devices/*/; do
    if [ "$(cat "$device/vendor" 2>/dev/null)" = "$1" ] && [[ $(cat "$device/class" 2>/dev/null) == 0x03* ]]; then
      return 0
    fi
  done
  return 1
}

# refuse_machine ends the script where --prepare cannot help.
refuse_machine() {
  local id='' release=''
  id=$(sed -n 's/^ID="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$root/etc/os-release" 2>/dev/null || true)
  release=$(sed -n 's/^VERSION_ID="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$root/etc/os-release" 2>/dev/null || true)
  system="$id $release"
  case $system in
    'ubuntu 22.04') codename=jammy ;;
    'ubuntu 24.04') codename=noble ;;
    'debian 12') codename=bookworm ;;
    *) die "--prepare supports Ubuntu 22.04, Ubuntu 24.04 and Debian 12; this machine has ${system:-an unknown system}. docs/hosts.md lists what to install" ;;
  esac
  if ! pci_display 0x10de; then
    if pci_display 0x1002; then
      die 'this machine has AMD GPUs and no NVIDIA GPU, and --prepare sets up NVIDIA GPUs only. docs/host-gpus.md, "AMD", lists what to install. Nothing was changed'
    fi
    die 'no NVIDIA GPU is on the PCI bus of this machine. Nothing was changed'
  fi
  if have snap && snap list docker >/dev/null 2>&1; then
    die 'Docker is installed as a snap, which cannot mount /var/lib/muster-agent. Remove it with "snap remove docker" (this deletes its containers and images), then run this again'
  fi
  [ -z "$yes" ] || [ -n "$root" ] || [ "$(id -u)" = 0 ] || die 'run it as root: sudo'
}

prepare_driver() {
  if [ -e "$root/proc/driver/nvidia/version" ]; then
    return
  fi
  reboot=yes
  case $system in
    ubuntu*)
      apt_install "NVIDIA's driver:" ubuntu-drivers-common
      dpkg-query -W -f '${binary:Package}\n' 'nvidia-driver-*' 'nvidia-headless-*' 2>/dev/null | grep -q . ||
        do_step 'ubuntu-drivers install --gpgpu'
      ;;
    debian*)
      if ! installed nvidia-driver; then
        say "NVIDIA's driver, from Debian's non-free component:"
        local list=$root/etc/apt/sources.list.d/non-free.list
        [ -s "$list" ] || do_step "printf '%s\\n' 'deb http://deb.debian.org/debian $codename contrib non-free non-free-firmware' >'$list'"
        apt_install "NVIDIA's driver:" "linux-headers-$(dpkg --print-architecture)" nvidia-driver
      fi
      ;;
  esac
}

prepare_docker() {
  if ! installed docker-ce && ! installed docker.io; then
    say 'Docker, from its own repository:'
    add_repository docker "https://download.docker.com/linux/${system% *}/gpg" \
      "https://download.docker.com/linux/${system% *} $codename stable"
    apt_install 'Docker:' docker-ce docker-ce-cli containerd.io
  fi
  if ! installed nvidia-container-toolkit; then
    say "NVIDIA's container toolkit, from its own repository:"
    # $(ARCH) is expanded by apt.
    # shellcheck disable=SC2016
    add_repository nvidia-container-toolkit https://nvidia.github.io/libnvidia-container/gpgkey \
      'https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /'
    apt_install "NVIDIA's container toolkit:" nvidia-container-toolkit
  fi
}

# set_daemon changes Docker's settings and keeps what else is in the file. It does nothing where they are set already.
set_daemon='import json, os, sys
path, check = sys.argv[1], "check" in sys.argv
have = json.load(open(path)) if os.path.exists(path) and os.path.getsize(path) else {}
want = dict(have, **{"live-restore": True, "features": dict(have.get("features", {}), cdi=True)})
want["runtimes"] = dict(have.get("runtimes", {}))
want["runtimes"].setdefault("nvidia", {"path": "nvidia-container-runtime", "args": []})
if check:
    sys.exit(have != want)
with open(path + ".new", "w") as f:
    json.dump(want, f, indent=2)
os.replace(path + ".new", path)'

configure_docker() {
  local file=$root/etc/docker/daemon.json
  if have python3 && python3 -c "$set_daemon" "$file" check 2>/dev/null; then
    return
  fi
  say "Docker's settings: containers outlive a restart of Docker (live-restore), GPUs are attached by CDI (features.cdi), NVIDIA's runtime:"
  # The reload switches live-restore on, so that the restart ends no container.
  do_step "install -d -m 0755 '$root/etc/docker'" "python3 -c '$set_daemon' '$file'" 'systemctl reload docker' \
    'systemctl restart docker'
}

# refreshes_gpus reports whether the container toolkit keeps the description of the GPUs up to date: 1.18 and newer do,
# and so does one that is yet to be installed.
refreshes_gpus() {
  local folder
  for folder in etc/systemd/system lib/systemd/system usr/lib/systemd/system; do
    [ ! -e "$root/$folder/nvidia-cdi-refresh.service" ] || return 0
  done
  ! installed nvidia-container-toolkit
}

# describe_gpus has the GPUs described in /var/run/cdi. A file in /etc/cdi would stay as it is when the driver, or a
# number of its device nodes, changes.
describe_gpus() {
  local static=$root/etc/cdi/nvidia.yaml file=$root/var/run/cdi/nvidia.yaml steps=()
  if [ -n "$reboot" ]; then
    advice+=('Reboot, so that the driver is loaded, then run --prepare again: it describes the GPUs for Docker (CDI).')
    return
  fi
  [ ! -e "$static" ] || steps+=("rm -f '$static'")
  if refreshes_gpus; then
    if [ ! -s "$file" ] || [ ! -L "$root/etc/systemd/system/multi-user.target.wants/nvidia-cdi-refresh.service" ]; then
      steps+=('systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service'
        'systemctl restart nvidia-cdi-refresh.service')
    fi
  else
    advice+=("Update nvidia-container-toolkit to 1.18 or newer: this one does not describe the GPUs for Docker again after a boot or an update of the driver.")
    [ -s "$file" ] || steps+=("install -d -m 0755 '$root/var/run/cdi'"
      "nvidia-ctk cdi generate --output='$file' --device-name-strategy=uuid --device-name-strategy=index")
  fi
  if [ ${#steps[@]} -gt 0 ]; then
    say 'The description of the GPUs for Docker (CDI), in /var/run/cdi:'
    do_step "${steps[@]}"
  fi
}

# hold_packages keeps the driver and the toolkit at their version: an upgrade under a running lease breaks CUDA until a
# reboot.
hold_packages() {
  local held name hold=()
  held=$(apt-mark showhold)
  while read -r name; do
    [ -z "$name" ] || grep -qxF -- "$name" <<<"$held" || hold+=("$name")
  done < <(dpkg-query -W -f '${db:Status-Status} ${binary:Package}\n' 'nvidia-driver*' 'nvidia-dkms*' 'nvidia-kernel*' \
    'nvidia-fabricmanager*' 'libnvidia-compute*' 'linux-modules-nvidia*' 'nvidia-container-toolkit*' \
    'libnvidia-container*' 2>/dev/null | sed -n 's/^installed //p' | sed 's/:.*//' | sort -u)
  if [ ${#hold[@]} = 0 ]; then
    if [ -z "$yes" ] && ! installed nvidia-container-toolkit; then
      say 'Then the packages of the driver and the toolkit that were installed are held at their version (apt-mark hold).'
    fi
    return
  fi
  say 'Unattended upgrades leave the driver and the toolkit alone. (apt-mark unhold before you upgrade them yourself.)'
  do_step "apt-mark hold ${hold[*]}"
}

open_firewall() {
  local low high
  have ufw && ufw status 2>/dev/null | grep -q '^Status: active' || return 0
  read -r low high <"$root/proc/sys/net/ipv4/ip_local_port_range"
  ! ufw status | grep -q "^$low:$high/udp .*ALLOW" || return 0
  say 'The firewall: other hosts may reach the networks of clusters directly (without this rule, through a relay):'
  do_step "ufw allow $low:$high/udp"
}

advise_disk() {
  local kind options
  read -r kind options < <(findmnt -n -o FSTYPE,OPTIONS -T "$root/var/lib" 2>/dev/null) || true
  case $kind in
    btrfs | zfs) return ;;
    xfs) [[ $options != *prjquota* && $options != *pquota* ]] || return 0 ;;
  esac
  advice+=("Docker's disk is ${kind:-unknown} without project quotas, so a lease can fill the whole disk. With a disk of its own for Docker (this erases DISK):
    mkfs.xfs /dev/DISK
    echo '/dev/DISK /var/lib/docker xfs defaults,pquota 0 2' >>/etc/fstab
    systemctl stop docker && mount /var/lib/docker && systemctl start docker")
}

prepare_machine() {
  local system='' codename='' reboot='' advice=() text
  refuse_machine
  [ -n "$yes" ] || say 'These commands prepare this machine. Nothing is changed now.'
  apt_install 'What the agent and this script need:' ca-certificates curl nftables e2fsprogs xfsprogs apparmor python3
  prepare_driver
  prepare_docker
  configure_docker
  describe_gpus
  hold_packages
  open_firewall
  advise_disk
  for text in ${advice[@]+"${advice[@]}"}; do
    say "To do by hand: $text"
  done
  if [ "$changes" = 0 ] && [ ${#advice[@]} = 0 ]; then
    say 'This machine is prepared. Nothing to change.'
  elif [ "$changes" = 0 ]; then
    say 'Nothing else to change.'
  elif [ -z "$yes" ]; then
    say 'To run them: add --yes.'
  else
    say 'Done. Next: create a token with "muster host enroll", and run this script with it.'
  fi
}

main() {
  umask 022
  parse "$@"
  if [ -n "$prepare" ]; then
    prepare_machine
    return
  fi
  check_host
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
